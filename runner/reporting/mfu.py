"""Model FLOPs utilization (MFU): the fraction of the devices' peak that training uses.

It is the ratio of actual steps per second to those possible at peak, as in appendix B of PaLM
(Chowdhery et al., 2022, arXiv:2204.02311). `runner.reporting.flops.graph` counts a step's FLOPs, so
recomputed activations are counted twice.
"""

import dataclasses
import os
import re

import tensorflow as tf

# Dense TFLOP/s of a device in float32, float16, bfloat16, by the words in its name. 0 means
# unsupported. float32 is TF32 where available, which is TensorFlow's default. Source: NVIDIA's data
# sheets, with sparse figures halved, for SXM unless the name says otherwise.
_GPUS = {
    "V100": (15.7, 125.0, 0.0),
    "V100 PCIE": (14.0, 112.0, 0.0),
    "V100S": (16.4, 130.0, 0.0),
    "T4": (8.1, 65.0, 0.0),
    "A10": (62.5, 125.0, 125.0),
    "A10G": (35.0, 70.0, 70.0),
    "A30": (82.0, 165.0, 165.0),
    "A40": (74.8, 149.7, 149.7),
    "A100": (156.0, 312.0, 312.0),
    "RTX A6000": (77.4, 154.8, 154.8),
    "L4": (60.0, 121.0, 121.0),
    "L40": (90.5, 181.0, 181.0),
    "L40S": (183.0, 362.0, 362.0),
    "H100": (494.7, 989.4, 989.4),
    "H100 PCIE": (378.0, 756.0, 756.0),
    "H100 NVL": (417.5, 835.5, 835.5),
    "H200": (494.7, 989.4, 989.4),
    "H200 NVL": (417.5, 835.5, 835.5),
    "B200": (1125.0, 2250.0, 2250.0),
}
# Source: Google Cloud's pages on TPUs, which multiply float32 as bfloat16. Each of the two cores of
# a v2 or v3 is a device.
_TPUS = {
    "v2": (22.5, 0.0, 22.5),
    "v3": (61.5, 0.0, 61.5),
    "v4": (275.0, 0.0, 275.0),
    "v5litepod": (197.0, 0.0, 197.0),
    "v5p": (459.0, 0.0, 459.0),
    "v6e": (918.0, 0.0, 918.0),
}
_KNOWN = _GPUS | _TPUS
_PRECISIONS = ("float32", "float16", "bfloat16")


@dataclasses.dataclass(frozen=True)
class Peak:
    """The peak throughput of one device.

    Attributes:
        flops: Floating-point operations per second.
        source: The source of the figure.
    """

    flops: float
    source: str

    def __str__(self) -> str:
        return f"peak {self.flops / 1e12:.4g} TFLOP/s a device ({self.source})"


@dataclasses.dataclass(frozen=True)
class Utilization:
    """The fraction of the devices' peak that training uses at a given speed.

    Attributes:
        step_flops: FLOPs of a training step on all devices.
        devices: The number of devices.
        peak: The peak of one device.
    """

    step_flops: int
    devices: int
    peak: Peak

    def __call__(self, steps_per_second: float) -> float:
        """Returns the fraction of the peak, 0 to 1."""
        return self.step_flops * steps_per_second / (self.devices * self.peak.flops)


def peak(device: str, precision: str, *, given: float = 0.0) -> Peak | None:
    """Returns the peak of one device, or None if unknown.

    Args:
        device: The device's name, from `device_name`.
        precision: The type of matrix products: `float32`, `float16` or `bfloat16`.
        given: FLOP/s that override the table, or 0 to use the table.
    """
    if given:
        return Peak(given, "RunConfig.peak_flops")
    words = _words(device)
    fitting = [kind for kind in _KNOWN if _words(kind) <= words]
    if not fitting or "mig" in words:  # a slice of a GPU
        return None
    closest = max(fitting, key=lambda kind: len(_words(kind)))
    flops = _KNOWN[closest][_PRECISIONS.index(precision)] * 1e12
    return Peak(flops, f"{device}, {precision}") if flops else None


def device_name(variable: tf.Variable) -> str:
    """Returns the product name of a variable's device, or "" for a CPU or an unknown device."""
    device = tf.DeviceSpec.from_string(variable.device)
    if device.device_type == "GPU":
        gpus = tf.config.list_physical_devices("GPU")
        return tf.config.experimental.get_device_details(gpus[0]).get("device_name", "")
    return os.environ.get("TPU_ACCELERATOR_TYPE", "") if device.device_type == "TPU" else ""


def _words(name: str) -> set[str]:
    return set(re.findall(r"[a-z0-9]+", name.lower()))
