"""What a user reads of TensorFlow's errors."""

import errno

import pytest
import tensorflow as tf
from wording import says

from runner import errors


@pytest.mark.parametrize(
    ("message", "kind", "words"),
    [
        ("Error: ConfigError: a.npz: no file\nTraceback ...", errors.ConfigError, "a.npz: no file"),
        (
            "[_Derived_] runs/d/train/events.1; No space left on device\n\t [[{{node Save}}]]",
            errors.RunnerError,
            "[_Derived_] runs/d/train/events.1 space command",
        ),
    ],
)
def test_what_can_be_read_is_one_line(message, kind, words):
    found = errors.from_graph(tf.errors.ResourceExhaustedError(None, None, message))
    assert type(found) is kind
    says(str(found), words)
    assert "\n" not in str(found)


def test_a_share_whose_handle_is_stale_is_one_line():
    found = errors.readable(OSError(errno.ESTALE, "Stale file handle", "/shared/claim.json"))
    says(str(found), "/shared/claim.json Stale handle")


def test_what_nobody_foresaw_keeps_its_traceback():
    assert errors.from_graph(tf.errors.InternalError(None, None, "no idea")) is None


def test_a_label_without_an_output_is_named():
    error = tf.errors.InvalidArgumentError(
        None, None, "Received a label value of 9 which is outside the valid range of [0, 3)."
    )
    says(str(errors.from_graph(error)), "label 9 outputs [0, 3)")
