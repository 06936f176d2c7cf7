"""Loads an exported file in a separate process and runs it for another process.

It does not import the runner, a task or Keras, so that only the contents of the file run here.
Requests arrive pickled on stdin. Answers go to the original stdout as `(True, result)` or
`(False, error)`. The first answer reports whether the file could be loaded.

    python -P lazy_imports.py loaded.py saved_model FOLDER
"""

import os
import pickle
import signal
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

Arrays = Mapping[str, np.ndarray]

_WARM_UP = 3
_RUNS = 50
_SECONDS = 1.0


Model = Callable[[str, Arrays], Arrays]
"""Maps the name of a signature and its inputs to its outputs."""


def saved_model(path: str) -> Model:
    """Loads a SavedModel. Registers the ops of `tensorflow_text` if it needs them."""
    import tensorflow as tf

    try:
        loaded = tf.saved_model.load(path)
    except Exception as error:
        if "Op type not registered" not in str(error):
            raise
        import tensorflow_text  # noqa: F401

        loaded = tf.saved_model.load(path)

    def call(signature: str, inputs: Arrays) -> Arrays:
        given = {name: tf.constant(value) for name, value in inputs.items()}
        return {k: v.numpy() for k, v in loaded.signatures[signature](**given).items()}

    return call


def tflite(path: str) -> Model:
    """Loads a LiteRT model. Inputs are resized to the batch."""
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(model_path=path)
    runners = {name: interpreter.get_signature_runner(name) for name in _signatures(interpreter)}
    return lambda signature, inputs: runners[signature](**inputs)


def _signatures(interpreter: Any) -> list[str]:
    return list(interpreter.get_signature_list())


def onnx(path: str) -> Model:
    """Loads an ONNX model on the CPU. It has one signature."""
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]

    def call(_: str, inputs: Arrays) -> Arrays:
        return dict(zip(names, session.run(names, dict(inputs)), strict=True))

    return call


LOADERS: Mapping[str, Callable[[str], Model]] = {
    "saved_model": saved_model,
    "tflite": tflite,
    "onnx": onnx,
}


def milliseconds(run: Callable[[], object]) -> float:
    """Returns the median duration of a call, after a warm-up of three calls.

    It measures 50 calls, or as many as take a second.
    """
    for _ in range(_WARM_UP):
        run()
    seconds: list[float] = []
    while len(seconds) < _RUNS and sum(seconds) < _SECONDS:
        start = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - start)
    return 1000 * statistics.median(seconds)


def _answer(model: Model, request: tuple[str, str, Arrays]) -> Any:
    what, signature, inputs = request
    if what == "time":
        return milliseconds(lambda: model(signature, inputs))
    return {name: np.asarray(value) for name, value in model(signature, inputs).items()}


def _serve(kind: str, path: str) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # from the terminal, but the parent decides
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # for the output of libraries
    model: Model | None = None
    while True:
        try:
            if model is None:
                model, result = LOADERS[kind](path), None
            else:
                result = _answer(model, pickle.load(sys.stdin.buffer))
            answer = True, result
        except EOFError:  # the parent is done or has died
            return
        except Exception as error:
            answer = False, f"{type(error).__name__}: {error}"
        pickle.dump(answer, answers, protocol=pickle.HIGHEST_PROTOCOL)
        answers.flush()
        if model is None:
            return


if __name__ == "__main__":
    _serve(sys.argv[1], sys.argv[2])
    os._exit(0)  # TensorFlow's clean-up takes a second
