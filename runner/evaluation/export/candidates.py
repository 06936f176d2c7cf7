"""The files made from a checkpoint, before export validation has accepted them."""

import contextlib
import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from official.core import base_task

from runner.configuration import limits
from runner.core import console
from runner.evaluation import evaluator
from runner.evaluation.export import conversion, fresh_process, gate, loaded, signatures, versions
from runner.reporting import scalars
from runner.run_config import ExportConfig


class Candidates:
    """Makes the formats of an evaluator's model, and scores each file.

    Args:
        built: Holds the weights. Its averages are exported, if it has any.
        folder: The directory where files are made.
        options: The settings of the comparison.
        check: Called regularly. It raises if a signal has arrived.

    Attributes:
        servable: The model to export.
        folders: The version's directory of each format made.
    """

    def __init__(
        self,
        built: evaluator.Evaluator,
        folder: Path,
        options: ExportConfig,
        check: Callable[[], None],
    ) -> None:
        self._built = built
        self._folder = folder
        self._options = options
        self._check = check
        features = built.eval_dataset.element_spec
        self._own = signatures.of_model(
            built.model, features[0] if isinstance(features, tuple) else features
        )
        self.servable = signatures.Servable(built.task, built.model, self._own)
        self.folders: dict[str, Path] = {}
        self._gate = gate.Gate(built, self._own, check)
        self._processes: dict[str, fresh_process.FreshProcess] = {}
        self._failed: dict[str, str] = {}  # converter errors by format

    @property
    def task(self) -> base_task.Task:
        """The task."""
        return self._built.task

    @property
    def weights(self) -> str:
        """The kind of exported weights."""
        return "averaged" if self._built.averages else "trained"

    @property
    def examples(self) -> int:
        """The number of examples that the files were scored on."""
        return self._gate.stand_in.examples

    def make(
        self,
        formats: Sequence[str],
        training_data: Callable[[], Iterable[Any]],
        processes: contextlib.ExitStack,
    ) -> None:
        """Makes each format, and starts to load it in a separate process.

        Args:
            formats: The formats to make.
            training_data: Batches for `tflite_int8`, which needs the ranges of activations.
            processes: Ends the processes.

        A format whose converter fails is left out, and `score` reports the reason.
        """
        saved = self._folder / "model"
        with self._built.averages.in_force() if self._built.averages else contextlib.nullcontext():
            conversion.save(self.servable, saved)
            examples = self._representative(training_data) if conversion.INT8 in formats else []
        first = sorted(formats, key=lambda name: name != conversion.SAVED_MODEL)
        for name in first:  # a SavedModel first, because it takes seconds to load
            self._check()
            self.folders[name] = self._folder / name
            try:
                folder = conversion.convert(name, saved, self._folder, examples)
            except conversion.ConverterError as error:
                console.say(f"{name}: {error}", style="red")
                self._failed[name] = str(error)
                continue
            form = conversion.FORMATS[name]
            log = self._folder / f"{name}.log"
            process = fresh_process.FreshProcess(form.loader, folder / form.file, log)
            self._processes[name] = processes.enter_context(process)
            self.folders[name] = folder

    def reference(self, path: Path) -> gate.Scored:
        """Scores the checkpoint at `path`, whose weights the evaluator holds."""
        number = limits.validation_batches(self._built.config)
        metrics = scalars.scalars(self._built.evaluate(tf.constant(number)))
        gate.check_names(metrics, self._options)
        return gate.Scored(gate.CHECKPOINT, metrics, versions.size_of_checkpoint(path), None)

    def score(self, name: str, reference: gate.Scored) -> list[gate.Scored]:
        """Scores a format's file from the model's inputs and, if possible, from raw ones."""
        if name in self._failed:
            return [gate.Scored(name, {}, 0, None, self._failed[name])]
        process, size = self._processes[name], versions.size(self.folders[name])
        from_raw: Mapping[str, float] = {}
        try:
            scored = self._gate.score(name, process, size)
            if name == conversion.SAVED_MODEL and self.servable.has_own_serving:
                from_raw = self._gate.score_serving(process)
        except fresh_process.LoadError as error:
            return [gate.Scored(name, {}, size, None, str(error))]
        found = [scored]
        if from_raw:
            title = f"{name} from {' and '.join(self.servable.inputs(signatures.SERVING))}"
            found.append(gate.Scored(title, from_raw, size, None))
        return [self._judged(each, reference) for each in found]

    def milliseconds(self) -> float | None:
        """Returns the checkpoint's median latency for one example here, or None if unknown."""
        if not self._gate.stand_in.one:  # no file was scored
            return None
        one = {name: tf.constant(array) for name, array in self._gate.stand_in.one.items()}
        return loaded.milliseconds(lambda: self._own.function(**one))

    def _judged(self, scored: gate.Scored, reference: gate.Scored) -> gate.Scored:
        reason = gate.objection(reference.metrics, scored.metrics, self._options)
        return dataclasses.replace(scored, reason=reason)

    def _representative(
        self, training_data: Callable[[], Iterable[Any]]
    ) -> list[dict[str, np.ndarray]]:
        return gate.inputs_of(
            self._built.task,
            training_data(),
            self._gate.stand_in,
            self._own.function,
            self._options.representative_examples,
        )
