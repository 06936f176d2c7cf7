"""The files next to an exported model: a model card, and the same facts as JSON."""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from scipy import stats

from runner import config
from runner.core import files, layout, text
from runner.evaluation.export import conversion, gate, signatures
from runner.history import records
from runner.run_directory import provenance
from runner.storage import display_names

Interval: TypeAlias = tuple[float, float]

_ABOUT_INTERVALS = (
    "The intervals (Wilson's) say how far an accuracy may be from the one on all such data. Other "
    "metrics have none: they are not shares of the examples."
)

_HOW = {
    "saved_model": """\
import tensorflow as tf  # with `import tensorflow_text` too, if the model reads text

model = tf.saved_model.load({folder!r})
outputs = model.signatures["serving_default"]({arguments})""",
    "tflite": """\
from ai_edge_litert.interpreter import Interpreter

interpreter = Interpreter({path!r})
outputs = interpreter.get_signature_runner("model")({arguments})""",
    "onnx": """\
import onnxruntime

session = onnxruntime.InferenceSession({path!r})
outputs = session.run(None, {{{pairs}}})""",
}


@dataclasses.dataclass(frozen=True)
class Export:
    """The facts that all formats of one export share.

    Attributes:
        experiment: The experiment.
        checkpoint: The exported checkpoint.
        step: Its step.
        weights: `averaged` or `trained`.
        digest: Identifies the checkpoint.
        examples: The number of examples behind the metrics.
        reference: The scores of the checkpoint.
        servable: Has the signatures.
    """

    experiment: config.Experiment
    checkpoint: Path
    step: int
    weights: str
    digest: str
    examples: int
    reference: gate.Scored
    servable: signatures.Servable


def interval(name: str, scored: gate.Scored, count: int) -> Interval | None:
    """Returns Wilson's 95 % interval of an accuracy over `count` examples, else None."""
    value = scored.metrics[name]
    if not ("accuracy" in name and 0 <= value <= 1 and count > 0):
        return None
    right = round(value * count)
    if abs(value * count - right) >= 1e-6 * max(count, 1000):
        return None
    found = stats.binomtest(right, count).proportion_ci(method="wilson")
    return float(found.low), float(found.high)


def write(folder: Path, export: Export, name: str, scored: Sequence[gate.Scored]) -> dict[str, Any]:
    """Writes the card and the facts of one format to its directory. Returns the facts.

    Args:
        folder: The directory of the version.
        export: The export that it belongs to.
        name: The format.
        scored: The file's scores from the model's inputs and, for some SavedModels, from raw
            inputs.
    """
    found = _facts(export, name, scored)
    files.write_json(folder / layout.EXPORT_FACTS, found)
    files.write_text(folder / layout.MODEL_CARD, _card(export, name, scored))
    return found


def _facts(export: Export, name: str, scored: Sequence[gate.Scored]) -> dict[str, Any]:
    """Returns the facts of one format, for JSON."""
    first = scored[0]
    made: dict[str, Any] = {
        "format": name,
        "accepted": not any(each.reason for each in scored),
        "step": export.step,
        "checkpoint": display_names.of(export.checkpoint),
        "digest": export.digest,
        "weights": export.weights,
        "examples": export.examples,
        "checkpoint_metrics": records.plain(export.reference.metrics),
        "metrics": records.plain(first.metrics),
        "intervals": {
            name: interval(name, first, export.examples) for name in sorted(first.metrics)
        },
        "bytes": first.bytes,
        "milliseconds": first.milliseconds,
    }
    if reasons := [each.reason for each in scored if each.reason]:
        made["reason"] = "; ".join(reasons)
    if limit := export.experiment.run.limit_evaluation:
        made["limited"] = limit
    if len(scored) > 1:
        made["metrics_from_raw_inputs"] = records.plain(scored[1].metrics)
    return made


def _card(export: Export, name: str, scored: Sequence[gate.Scored]) -> str:
    verdict = "; ".join(each.reason for each in scored if each.reason)
    title = f"{type(export.experiment.task).__name__.removesuffix('Config')}, step {export.step:,}"
    parts = [
        f"# {title}: {name}",
        f"**Rejected**: {verdict}." if verdict else "",
        f"Exported from `{export.checkpoint.name}` ({export.weights} weights), computing in "
        "float32. The file was loaded in a fresh process and scored with the task's own metrics.",
        f"## Scores\n\n{_scores(export, scored)}",
        f"## Loading\n\n```python\n{_how(export, name)}\n```\n\n{_signatures(export, name)}",
        f"## Data\n\n```json\n{_data(export.experiment)}\n```",
        f"## Code and packages\n\n{_provenance()}",
        f"## Configuration\n\n```yaml\n{config.as_yaml(export.experiment).strip()}\n```",
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _scores(export: Export, scored: Sequence[gate.Scored]) -> str:
    columns, first = [export.reference, *scored], scored[0]
    names = [*(each.name for each in columns), f"95 % interval of {first.name}"]
    lines = [
        f"| validation, {export.examples:,} examples | {' | '.join(names)} |",
        "|---" * (len(names) + 1) + "|",
    ]
    for metric in sorted(export.reference.metrics):
        cells = [_value(metric, each) for each in columns]
        lines.append(f"| {metric} | {' | '.join(cells)} | {_interval(metric, first, export)} |")
    lines.append(f"| size | {' | '.join(text.size(each.bytes) for each in columns)} | |")
    times = ("-" if c.milliseconds is None else f"{c.milliseconds:.3g} ms" for c in columns)
    lines.append(f"| one example, median | {' | '.join(times)} | |")
    return "\n".join([*lines, "", _ABOUT_INTERVALS])


def _value(metric: str, each: gate.Scored) -> str:
    return f"{each.metrics[metric]:.4g}" if metric in each.metrics else "-"


def _interval(metric: str, scored: gate.Scored, export: Export) -> str:
    found = interval(metric, scored, export.examples) if metric in scored.metrics else None
    return f"{found[0]:.4g} to {found[1]:.4g}" if found else "-"


def _how(export: Export, name: str) -> str:
    form = conversion.FORMATS[name]
    served = signatures.SERVING if name == conversion.SAVED_MODEL else signatures.MODEL
    names = list(export.servable.inputs(served))
    return _HOW[form.loader].format(
        folder=str(export.step),
        path=form.file,
        arguments=", ".join(f"{each}=..." for each in names),
        pairs=", ".join(f"{each!r}: ..." for each in names),
    )


def _signatures(export: Export, name: str) -> str:
    kept = export.servable.signatures if name == conversion.SAVED_MODEL else (signatures.MODEL,)
    lines = ["| signature | inputs | outputs |", "|---|---|---|"]
    for each in kept:
        inputs = _specs(export.servable.inputs(each))
        outputs = _specs(export.servable.signatures[each].structured_outputs)
        lines.append(f"| `{each}` | {inputs} | {outputs} |")
    return "\n".join(lines)


def _specs(specs: Mapping[str, Any]) -> str:
    return ", ".join(
        f"`{name}` {spec.dtype.name} {_shape(spec.shape)}" for name, spec in specs.items()
    )


def _shape(shape: Any) -> str:
    if shape.rank is None:
        return "of any shape"
    sizes = [str(size or "?") for size in shape]
    return f"[{', '.join(['batch', *sizes[1:]] if shape[:1] == [None] else sizes)}]"


def _data(experiment: config.Experiment) -> str:
    """Returns the configured values of the training and validation data."""
    task = experiment.task
    sections = {name: getattr(task, name, None) for name in ("train_data", "validation_data")}
    given = {name: _given(section) for name, section in sections.items() if section is not None}
    return json.dumps(given, indent=2, default=str)


def _given(section: Any) -> dict[str, Any]:
    standard = type(section)().as_dict()
    return {k: v for k, v in section.as_dict().items() if standard.get(k) != v}


def _provenance() -> str:
    code = provenance.code(Path.cwd())
    lines = [f"- {package} {version}" for package, version in provenance.versions().items()]
    if code:
        changed = ", with changes that are not committed" if code["diff"] else ""
        lines.insert(0, f"- commit {code['commit']}{changed}")
    return "\n".join(lines)
