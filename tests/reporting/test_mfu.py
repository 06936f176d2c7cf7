"""What a run makes of its devices' peak."""

import json

import pytest
import tensorflow as tf
import toy
from tensorboard.backend.event_processing import event_accumulator
from trainers import MIRRORED

import runner
from runner.reporting import mfu

GIVEN = {"run": {"peak_flops": 1e6}}


def last_row(folder):
    return json.loads((folder / "train.jsonl").read_text().splitlines()[-1])


@pytest.mark.parametrize(("strategy", "devices"), [({}, 1), (MIRRORED, 2)], ids=["off", "mirrored"])
def test_a_row_says_the_flops_done_in_a_second_over_those_that_could_be(
    tmp_path, capsys, strategy, devices
):
    made = toy.experiment(strategy)
    made.override(GIVEN)
    runner.run(made, tmp_path, "train")
    row = last_row(tmp_path)
    flops = json.loads((tmp_path / "overview.json").read_text())["training_step_flops"]
    expected = flops * row["steps_per_second"] / (devices * 1e6)
    assert row["mfu"] == pytest.approx(expected, abs=1e-4)
    said = capsys.readouterr().err
    assert "peak 1e-06 TFLOP/s a device (RunConfig.peak_flops)" in said
    assert "  MFU " in said
    board = event_accumulator.EventAccumulator(str(tmp_path / "train"))
    (*_, point) = board.Reload().Scalars("mfu")
    assert point.value == pytest.approx(row["mfu"], abs=1e-4)


EAGER = {"trainer": {"train_tf_function": False, "train_tf_while_loop": False}}


@pytest.mark.parametrize("overrides", [{}, GIVEN | EAGER], ids=["CPU", "eager"])
def test_nothing_is_said_where_the_peak_or_the_flops_are_not_known(tmp_path, capsys, overrides):
    runner.run(toy.experiment(overrides), tmp_path, "train")
    assert "mfu" not in last_row(tmp_path)
    said = capsys.readouterr().err
    assert "TFLOP/s" not in said
    assert "MFU" not in said


@pytest.mark.parametrize(
    ("device", "precision", "tera"),
    [
        ("NVIDIA A100-SXM4-40GB", "float32", 156),
        ("NVIDIA A100-SXM4-40GB", "bfloat16", 312),
        ("NVIDIA A10", "float16", 125),
        ("NVIDIA A10G", "float16", 70),
        ("NVIDIA L4", "bfloat16", 121),
        ("NVIDIA L40S", "bfloat16", 362),
        ("NVIDIA H100 80GB HBM3", "bfloat16", 989.4),
        ("NVIDIA H100 PCIe", "bfloat16", 756),
        ("NVIDIA H100 NVL", "float32", 417.5),
        ("Tesla V100-SXM2-16GB", "float16", 125),
        ("Tesla V100-PCIE-16GB", "float16", 112),
        ("Tesla T4", "float32", 8.1),
        ("v3-8", "bfloat16", 61.5),
        ("v5litepod-16", "float32", 197),
        ("Tesla T4", "bfloat16", None),
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", "bfloat16", None),
        ("NVIDIA A100X", "bfloat16", None),
        ("a device of tomorrow", "float32", None),
        ("", "float32", None),
    ],
)
def test_the_peak_is_looked_up_by_the_devices_name_and_the_precision(device, precision, tera):
    found = mfu.peak(device, precision)
    if tera is None:
        assert found is None
    else:
        assert found.flops == pytest.approx(tera * 1e12)
        assert str(found) == f"peak {tera:g} TFLOP/s a device ({device}, {precision})"


def test_a_peak_that_is_given_counts():
    found = mfu.peak("NVIDIA A100-SXM4-40GB", "float32", given=19.5e12)
    assert str(found) == "peak 19.5 TFLOP/s a device (RunConfig.peak_flops)"


def test_the_device_is_the_one_that_holds_the_variable(monkeypatch):
    class On:
        def __init__(self, kind):
            self.device = f"/job:localhost/replica:0/task:0/device:{kind}:0"

    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: [f"first {kind}"])
    monkeypatch.setattr(
        tf.config.experimental, "get_device_details", lambda one: {"device_name": f"the {one}"}
    )
    monkeypatch.setenv("TPU_ACCELERATOR_TYPE", "v4-8")
    names = [mfu.device_name(On(kind)) for kind in ("GPU", "TPU", "CPU")]
    assert names == ["the first GPU", "v4-8", ""]
