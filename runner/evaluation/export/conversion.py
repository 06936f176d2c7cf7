"""The formats of an export, and their conversion from a SavedModel."""

import contextlib
import importlib.util
import os
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from runner.checkpoints import checkpoint_files
from runner.core import files, installation, text
from runner.errors import ConfigError, RunnerError
from runner.evaluation.export import signatures

SAVED_MODEL = "saved_model"
INT8 = "tflite_int8"

Examples = Sequence[Mapping[str, np.ndarray]]


class ConverterError(RunnerError):
    """A converter cannot convert this model to its format."""


class Format(NamedTuple):
    """A row of the table of formats.

    Attributes:
        loader: The loader in `runner.evaluation.export.loaded`.
        file: The file in a version's directory, or empty for the directory itself.
        convert: Converts a SavedModel, given the target path and representative examples. None for
            a SavedModel itself.
    """

    loader: str
    file: str
    convert: Callable[[Path, Path, Examples], None] | None


def save(servable: signatures.Servable, folder: Path) -> None:
    """Writes a SavedModel.

    Raises:
        RunnerError: it cannot be written.
    """
    try:
        tf.saved_model.save(servable.root, str(folder), signatures=servable.signatures)
    except checkpoint_files.UNWRITABLE as error:
        kept = "nothing was exported; make it writable and rerun the command"
        raise checkpoint_files.not_written(folder, error, kept=kept) from error


def _tflite(
    configure: Callable[[Any, Examples], None] = lambda *_: None,
) -> Callable[[Path, Path, Examples], None]:
    def convert(source: Path, target: Path, examples: Examples) -> None:
        converter = tf.lite.TFLiteConverter.from_saved_model(
            str(source), signature_keys=[signatures.MODEL]
        )
        configure(converter, examples)
        with _in_silence():
            content = converter.convert()
        with files.naming(target):
            target.write_bytes(content)

    return convert


@contextlib.contextmanager
def _in_silence() -> Iterator[None]:
    """Discards stderr within the block, where converters print notes."""
    before = os.dup(2)
    with Path(os.devnull).open("w") as nothing, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        os.dup2(nothing.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(before, 2)
            os.close(before)


def _float16(converter: Any, _: Examples) -> None:
    converter.optimizations = [tf.lite.Optimize.DEFAULT]
    converter.target_spec.supported_types = [tf.float16]


def _int8(converter: Any, examples: Examples) -> None:
    converter.optimizations = [tf.lite.Optimize.DEFAULT]
    converter.representative_dataset = lambda: (
        (signatures.MODEL, dict(example)) for example in examples
    )


def _onnx(source: Path, target: Path, _: Examples) -> None:
    names = [f"--saved-model={source}", f"--signature_def={signatures.MODEL}"]
    command = [sys.executable, "-m", "tf2onnx.convert", *names, f"--output={target}", "--opset=18"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode or not target.exists():
        raise RunnerError((done.stderr.strip().splitlines() or ["it wrote no file"])[-1])


FORMATS: Mapping[str, Format] = {
    SAVED_MODEL: Format("saved_model", "", None),
    "tflite": Format("tflite", "model.tflite", _tflite()),
    "tflite_float16": Format("tflite", "model.tflite", _tflite(_float16)),
    INT8: Format("tflite", "model.tflite", _tflite(_int8)),
    "onnx": Format("onnx", "model.onnx", _onnx),
}


def check_installed(formats: Sequence[str]) -> None:
    """Raises ConfigError for a format whose packages are not installed."""
    needed = ("tf2onnx", "onnxruntime")
    missing = [name for name in needed if importlib.util.find_spec(name) is None]
    if "onnx" in formats and missing:
        raise ConfigError(
            f"ExportConfig.formats: onnx needs {' and '.join(missing)}: "
            f"{installation.command_for('onnx')}"
        )


def check_carries(formats: Sequence[str], servable: signatures.Servable) -> None:
    """Raises ConfigError for formats without the model's ops, before the conversion starts."""
    refused = [name for name in formats if name != SAVED_MODEL]
    if refused and (ops := servable.text_ops()):
        raise ConfigError(
            f"ExportConfig.formats: {' and '.join(refused)} cannot carry this model: it reads "
            f"text by {text.some(ops)}, which only TensorFlow has; leave "
            f"{'it' if len(refused) == 1 else 'them'} out and export 'saved_model'"
        )


def convert(name: str, source: Path, folder: Path, examples: Examples) -> Path:
    """Makes a format from a SavedModel.

    Args:
        name: The format.
        source: The SavedModel.
        folder: The parent of the target directory, which is named after the format.
        examples: Representative examples, one in each batch.

    Returns:
        The version's directory: `source` itself for a SavedModel.

    Raises:
        ConverterError: the converter failed.
        OSError: the files could not be written.
    """
    make, target = FORMATS[name].convert, folder / name
    if make is None:
        return source
    target.mkdir()
    try:
        make(source, target / FORMATS[name].file, examples)
    except OSError:
        raise
    except Exception as error:
        said = " ".join(str(error).split())[:300]
        raise ConverterError(
            f"the converter failed: {said}; leave it out of ExportConfig.formats"
        ) from error
    return target
