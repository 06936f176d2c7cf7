"""Energy is added up from counters that begin again, and from the power of GPUs."""

from runner.run_folder import energy


def zone(folder, name, microjoules):
    (folder / name).mkdir(exist_ok=True)
    (folder / name / "energy_uj").write_text(f"{microjoules}\n")
    (folder / name / "max_energy_range_uj").write_text("100000000\n")


def test_counters_of_packages_are_added_also_when_they_begin_again(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", "")
    zone(tmp_path, "intel-rapl:0", 95_000_000)
    zone(tmp_path, "intel-rapl:0:0", 1)  # a part of the package
    meter = energy.Meter(tmp_path)
    meter.read()
    assert meter.joules is None
    zone(tmp_path, "intel-rapl:0", 5_000_000)
    zone(tmp_path, "intel-rapl:0:0", 9_000_000)
    meter.read()
    assert meter.joules == 10.0


def test_the_power_of_gpus_counts_for_the_time_since_the_last_look(tmp_path, monkeypatch):
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\necho 100.0\necho 50.5\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    times = iter([0.0, 2.0])
    meter = energy.Meter(tmp_path, clock=lambda: next(times))
    meter.read()
    meter.read()
    assert meter.joules == 301.0


def test_a_machine_that_tells_nothing_has_no_energy(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", "")
    meter = energy.Meter(tmp_path)
    meter.read()
    assert meter.joules is None
