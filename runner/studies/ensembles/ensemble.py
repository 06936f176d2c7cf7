"""The mode `ensemble`: averages the predictions of several runs, and scores mean and members."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from runner.core import console, files, layout
from runner.core.spelling import did_you_mean, metric_name
from runner.errors import ConfigError
from runner.history import records
from runner.reporting import table
from runner.runs.call import Call, Outcome
from runner.storage import display_names
from runner.studies.ensembles import averaging, members, outputs, scoring
from runner.studies.ensembles.members import Member
from runner.studies.ensembles.outputs import Predicted

_VALIDATION = "validation"


class _Metric(NamedTuple):
    """The metric that members are chosen by."""

    name: str
    higher: bool


class _Data(NamedTuple):
    """A data set with each member's predictions and the scorer."""

    name: str
    predicted: list[Predicted]
    scorer: scoring.Scorer

    def mean(self, chosen: Sequence[int] = ()) -> list[np.ndarray]:
        """Returns the mean of the chosen members, or of all members if none is chosen."""
        numbers = chosen or range(len(self.predicted))
        return averaging.mean([self.predicted[number].parts for number in numbers])

    @property
    def labels(self) -> list[np.ndarray] | None:
        """The classes of the predictions, or None if predictions are not class probabilities."""
        parts = [one.parts for one in self.predicted]
        return self.predicted[0].labels if all(map(averaging.are_probabilities, parts)) else None

    def score(self, chosen: Sequence[int] = ()) -> dict[str, float]:
        """Returns the metrics of that mean."""
        return self.scored(self.mean(chosen))

    def scored(self, parts: Sequence[np.ndarray]) -> dict[str, float]:
        """Returns the task's metrics of predictions, and the metrics of their probabilities."""
        labels, own = self.labels, self.scorer.score(parts)
        return {**(averaging.calibration(parts, labels) if labels else {}), **own}


class Choice(NamedTuple):
    """The settings of an ensemble.

    Attributes:
        checkpoint: The checkpoint of each member, or empty for its best.
        data: The data to score on, or empty for the validation data.
        select: The number of members to choose for an additional mean, or 0 to choose none.
        metric: The metric that they are chosen by, or empty for that of their best checkpoints.
    """

    checkpoint: str = ""
    data: str = ""
    select: int = 0
    metric: str = ""


def ensemble(
    call: Call, folders: Sequence[Path], choice: Choice, *, dry_run: bool = False
) -> Outcome:
    """Averages the predictions of several runs, and scores the mean and each of them.

    Args:
        call: The mode's arguments.
        folders: The members, or empty for the trials of the study in the call's directory.
        choice: The settings.
        dry_run: Only find the members.

    Raises:
        ConfigError: the runs do not fit together, or there are no data to fit on.
    """
    runs = members.find(call.model_dir, folders, choice.checkpoint)
    if call.given.objects:
        runs = [run.with_objects(call.given.objects) for run in runs]
    metric = _metric(choice.metric, runs[0])
    name = choice.data or _VALIDATION
    if why := members.same_data(runs, name):
        raise ConfigError(
            f"members must be scored on the same data: {why}. Choose other data with {{data}}",
            data=None,
        )
    apart = members.same_data(runs, _VALIDATION)
    if choice.select and apart:
        raise ConfigError(f"{{select}} needs common validation data: {apart}", select=None)
    if dry_run:
        for run in runs:
            console.say(
                f"{display_names.of(run.folder)}: step {run.step:,} ({run.checkpoint.name})"
            )
        return Outcome({"status": "rehearsed", "model_dir": str(call.model_dir)})
    data, fitted = _data(call, runs, name, fits=not apart)
    made = _report(runs, metric, data, fitted, select=choice.select)
    if apart:
        made["not_calibrated"] = f"there are no common validation data: {apart}"
    elif "temperature" not in made:
        made["not_calibrated"] = "predictions are not probabilities of labelled classes"
    path = call.model_dir / layout.ENSEMBLE
    results = records.plain(made)
    files.write_json(path, results)
    console.say("\n".join(_lines(made)))
    console.say(f"written: {display_names.of(path)}")
    return Outcome({"status": "done", **results, "model_dir": str(call.model_dir)})


def _data(
    call: Call, runs: Sequence[Member], name: str, *, fits: bool
) -> tuple[_Data, _Data | None]:
    """Returns the data to score on, and the data to fit on, if there are any."""
    names = [name, *([_VALIDATION] if fits and name != _VALIDATION else [])]
    cache = call.model_dir / layout.ENSEMBLE_PREDICTIONS
    found = []
    for run in runs:
        call.stop.check()
        found.append(outputs.predicted(call, run, names, cache))
    for each in names:
        _check_alike(runs, [one[each] for one in found], each)
    built = outputs.built_for(call, runs[0], cache)
    made = [
        _Data(
            each,
            [one[each] for one in found],
            scoring.Scorer(built, outputs.dataset(built, runs[0], each)),
        )
        for each in names
    ]
    return made[0], made[-1] if fits else None


def _check_alike(runs: Sequence[Member], predicted: Sequence[Predicted], name: str) -> None:
    """Raises ConfigError unless all members predict the same classes of the same examples."""
    first = predicted[0]
    for run, other in zip(runs[1:], predicted[1:], strict=True):
        both = f"{runs[0].folder} and {run.folder}"
        if first.classes != other.classes:
            shown = [", ".join(each.classes[:5]) or "none" for each in (first, other)]
            raise ConfigError(f"{both} have other classes: {shown[0]}; {shown[1]}")
        shapes = [[part.shape for part in each.parts] for each in (first, other)]
        if shapes[0] != shapes[1]:
            raise ConfigError(
                f"{both} predict other things of the {name} data: {list(shapes[0][0])} and "
                f"{list(shapes[1][0])}"
            )
        if first.labels and other.labels:
            pairs = zip(first.labels, other.labels, strict=True)
            if not all(np.array_equal(a, b) for a, b in pairs):
                raise ConfigError(f"{both} have other labels in the {name} data")


def _metric(asked: str, run: Member) -> _Metric:
    """Returns the requested metric, by default that of the run's best checkpoint."""
    trainer = run.config.trainer
    best = metric_name(trainer.best_checkpoint_eval_metric or "validation_loss")
    compared = trainer.best_checkpoint_metric_comp if trainer.best_checkpoint_eval_metric else ""
    name, _, better = asked.partition(":")
    name = name or best
    if name == best:
        better = better or compared or "lower"
    if better not in ("higher", "lower"):
        raise ConfigError(
            f"--metric={asked}: say what is better: --metric={name}:higher or {name}:lower"
        )
    return _Metric(name, better == "higher")


def _report(
    runs: Sequence[Member], metric: _Metric, data: _Data, fitted: _Data | None, *, select: int
) -> dict[str, Any]:
    """Returns the contents of ensemble.json."""
    own = [data.score([number]) for number in range(len(runs))]
    if metric.name not in own[0]:
        raise ConfigError(
            f"{{metric}}: the task has no such metric; it has "
            f"{', '.join(sorted(own[0]))}{did_you_mean(metric.name, list(own[0]))}",
            metric=metric.name,
        )
    made: dict[str, Any] = {
        "data": data.name,
        "metric": metric.name,
        "members": [
            {
                "run": display_names.of(run.folder),
                "checkpoint": run.checkpoint.name,
                "step": run.step,
                "metrics": metrics,
            }
            for run, metrics in zip(runs, own, strict=True)
        ],
        "mean": {"metrics": data.score()},
    }
    parts = [one.parts for one in data.predicted]
    if all(map(averaging.are_probabilities, parts)):
        diverse = averaging.diversity(parts)
        pairs = {name: values.tolist() for name, values in diverse._asdict().items()}
        made["diversity"] = {**diverse.means, "pairs": pairs}
    chosen: list[int] = []
    if select and fitted:
        chosen, made["selected"] = _selected(select, metric, data, fitted)
    if fitted and fitted.labels:
        made["temperature"] = _calibrated(data, fitted, chosen)
    return made


def _selected(
    size: int, metric: _Metric, data: _Data, fitted: _Data
) -> tuple[list[int], dict[str, Any]]:
    """Selects members greedily on the validation data, and scores their mean."""
    rounds = averaging.select(
        lambda chosen: fitted.score(chosen)[metric.name],
        len(fitted.predicted),
        size,
        higher=metric.higher,
    )
    chosen = [each.member for each in rounds]
    return chosen, {
        "by": f"{metric.name} on the validation data",
        "members": chosen,
        "scores": [each.score for each in rounds],
        "metrics": data.score(chosen),
    }


def _calibrated(data: _Data, fitted: _Data, chosen: Sequence[int]) -> dict[str, Any]:
    assert fitted.labels is not None
    found = averaging.temperature(fitted.mean(chosen), fitted.labels)
    return {
        "value": found,
        "of": "selected" if chosen else "mean",
        "at_an_end": averaging.is_at_an_end(found),
        "metrics": data.scored(averaging.tempered(data.mean(chosen), found)),
    }


def _lines(made: Mapping[str, Any]) -> list[str]:
    """Returns the table and the remarks below it."""
    weights = Counter(made.get("selected", {}).get("members", ()))
    runs = [each["run"] for each in made["members"]]
    names = [Path(run).name for run in runs]
    shown = names if len(set(names)) == len(names) else runs
    rows = [
        (shown[n], f"{weights[n]}" if weights else "", each["metrics"])
        for n, each in enumerate(made["members"])
    ]
    rows.append((f"mean of {len(rows)}", "", made["mean"]["metrics"]))
    if "selected" in made:
        count = len(made["selected"]["members"])
        rows.append((f"selected {count}", "", made["selected"]["metrics"]))
    if "temperature" in made:
        heat = made["temperature"]
        rows.append((f"{heat['of']} at T={heat['value']:.3g}", "", heat["metrics"]))
    first = made["metric"]
    names = [first, *sorted(set(made["mean"]["metrics"]) - {first})]
    head = [f"{made['data']} data", "taken" if weights else "", *names]
    cells = [[what, taken, *(f"{m[name]:.4g}" for name in names)] for what, taken, m in rows]
    lines = table.aligned([head, *cells], left=1, width=console.STDERR.width)
    if "diversity" in made:
        said = made["diversity"]
        lines.append(
            f"members disagree on {100 * said['disagreement']:.3g} % of predictions; "
            f"their divergence (KL) is {said['kl']:.3g} nats"
        )
    if made.get("temperature", {}).get("at_an_end"):
        lines.append(
            f"T={made['temperature']['value']:.3g} is at an end of the range that is searched: the "
            "validation data do not determine it"
        )
    if "temperature" in made and made["data"] == _VALIDATION:
        what = "temperature and selection were" if weights else "the temperature was"
        lines.append(f"{what} fitted on these data: --data=test shows more")
    if "not_calibrated" in made:
        lines.append(f"not calibrated: {made['not_calibrated']}")
    return lines
