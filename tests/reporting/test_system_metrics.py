"""system.jsonl and TensorBoard's run `system`: what a run takes of its machine."""

import json
import os
import sys
import time
import types

import pytest
import toy
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import runner
from runner.reporting import system_metrics


def rows(folder):
    return [json.loads(line) for line in (folder / "system.jsonl").read_text().splitlines()]


def test_a_run_samples_its_machine(tmp_path):
    began = time.time()
    runner.run(toy.experiment({"run": {"system_seconds": 0.01}}), tmp_path, "train")
    found = rows(tmp_path)
    steps = [row["step"] for row in found]
    assert steps == sorted(steps)
    assert 0 <= steps[0] <= steps[-1] <= 40
    assert began <= found[0]["time"] + 0.1 <= found[-1]["time"] + 0.1 <= time.time() + 0.2
    assert 50e6 < found[-1]["memory"] < 50e9
    assert {"cpu", "cpu_machine", "memory_free"} <= found[-1].keys()
    events = EventAccumulator(str(tmp_path / "system")).Reload()
    drawn = events.Scalars("system/memory")
    assert [point.step for point in drawn] == steps
    assert [point.value for point in drawn] == pytest.approx([row["memory"] for row in found])


def test_a_run_can_do_without(tmp_path):
    runner.run(toy.experiment({"run": {"system_seconds": 0}}), tmp_path, "train")
    assert not (tmp_path / "system.jsonl").exists()
    assert not (tmp_path / "system").exists()


def test_measures_this_process(tmp_path):
    began, until = time.monotonic(), time.process_time() + 0.2
    machine = system_metrics.Machine()
    while time.process_time() < until:
        pass
    busy = machine.sample()["cpu"]
    share = 0.2 / (time.monotonic() - began)  # of one processor, which others may have used, too
    time.sleep(0.2)
    idle = machine.sample()["cpu"]
    assert 0 <= idle < busy <= 1.1
    assert busy * len(os.sched_getaffinity(0)) > share / 2


def test_measures_gpus(monkeypatch):
    """With a stand-in for NVIDIA's library, since there is no GPU."""
    library = types.ModuleType("pynvml")
    library.NVMLError = OSError
    library.nvmlInit = lambda: None
    library.nvmlDeviceGetCount = lambda: 2
    library.nvmlDeviceGetHandleByIndex = lambda number: number
    library.nvmlDeviceGetUtilizationRates = lambda number: types.SimpleNamespace(gpu=50 + number)
    library.nvmlDeviceGetMemoryInfo = lambda number: types.SimpleNamespace(used=1000 * number)

    def power(number):
        if number:
            raise OSError("not supported")
        return 70_500

    library.nvmlDeviceGetPowerUsage = power
    monkeypatch.setitem(sys.modules, "pynvml", library)
    found = system_metrics.Machine().sample()
    gpus = {name: value for name, value in found.items() if name.startswith("gpu")}
    assert gpus == {
        **{"gpu0": 0.5, "gpu0_memory": 0, "gpu0_watts": 70.5},
        **{"gpu1": 0.51, "gpu1_memory": 1000},
    }


def test_goes_on_without_gpus(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert not [name for name in system_metrics.Machine().sample() if name.startswith("gpu")]


def zone(folder, name, microjoules):
    (folder / name).mkdir(exist_ok=True)
    (folder / name / "energy_uj").write_text(f"{microjoules}\n")
    (folder / name / "max_energy_range_uj").write_text("100000000\n")


def test_measures_the_power_of_processors_also_when_their_counters_begin_again(
    tmp_path, monkeypatch
):
    times = iter([0.0, 5.0])
    monkeypatch.setattr(
        system_metrics, "time", types.SimpleNamespace(monotonic=lambda: next(times))
    )
    zone(tmp_path, "intel-rapl:0", 95_000_000)
    zone(tmp_path, "intel-rapl:0:0", 1)  # a part of the processor
    machine = system_metrics.Machine(tmp_path)
    zone(tmp_path, "intel-rapl:0", 5_000_000)
    zone(tmp_path, "intel-rapl:0:0", 9_000_000)
    assert machine.sample()["cpu_watts"] == 2


def test_a_machine_that_does_not_tell_its_power_has_none(tmp_path):
    assert "cpu_watts" not in system_metrics.Machine(tmp_path).sample()
