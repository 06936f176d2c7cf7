import dataclasses
import json
import pathlib
import random
import subprocess
import sys
import time
import types

import pytest
import warm
from wording import says

from runner import main
from runner.core import layout
from runner.history import history
from runner.run_directory.verification import comparison
from runner.studies import findings, population, space, summary, trial

OBJECTIVE = trial.Objective("accuracy", higher=True)
RATE = "CosineLrConfig.initial_learning_rate"
STEPS = (10, 20, 30, 40)


def members(*texts, factor=3, resample=0.25, seed=5):
    options = types.SimpleNamespace(factor=factor, resample=resample, seed=seed)
    over = ("done", "stopped", "diverged", "refused", "failed")
    return population.Population(space.parse(texts), STEPS, options, lambda one: one.state in over)


def begun(number, parameters, **more):
    return trial.Trial(
        number,
        pathlib.Path(f"{number}"),
        parameters,
        0,
        None,
        "waiting",
        objective=OBJECTIVE,
        **more,
    )


def trained(one, step):
    """The trial at a step: its accuracy grows faster the nearer its value is to 0.5."""
    if step == one.step:
        return dataclasses.replace(one, state="paused")
    gain = 1 - abs(one.parameters["A.x"] - 0.5)
    score = one.last.get("accuracy", 0.0) + gain * (step - one.step)
    state = "done" if step == STEPS[-1] else "paused"
    rows = (*one.evaluations, (step, {"accuracy": score}))
    return dataclasses.replace(
        one, state=state, step=step, evaluations=rows, last=rows[-1][1], best=rows[-1][1]
    )


def copied(facts, trials, number):
    lineage = trial.Lineage(*facts["lineage"])
    parent = next(each for each in trials if each.number == lineage.parent)
    assert (parent.state, parent.step) == ("paused", lineage.step)
    return dataclasses.replace(
        parent, number=number, parameters=facts["parameters"], lineage=lineage
    )


def missing(whole, trials):
    there = [each.lineage for each in trials]
    return [each for each in whole.copies(trials) if trial.Lineage(*each["lineage"]) not in there]


def studied(whole, values, order):
    """All trials at the end, trained in an order of chance, and killed at moments of chance."""
    trials = [begun(number, {"A.x": value}) for number, value in enumerate(values)]
    while True:
        for facts in missing(whole, trials):
            trials.append(copied(facts, trials, len(trials)))
            if order.random() < 0.3:  # killed in between: the others come next time
                break
        ready = [each for each in trials if whole.target(each, trials)]
        if ready:
            one = order.choice(ready)
            step = whole.target(one, trials)
            killed = one.state == "paused" and order.random() < 0.3
            now = dataclasses.replace(one, state="preempted") if killed else trained(one, step)
            trials[one.number] = now
        elif not missing(whole, trials):
            return trials


VALUES = [0.01, 0.05, 0.1, 0.2, 0.8, 0.95]


def test_neither_the_order_nor_kills_change_who_copies_whom():
    whole = members("A.x=uniform(0, 1)")
    first, *others = (studied(whole, VALUES, random.Random(n)) for n in range(8))
    assert all(each == first for each in others)
    assert [each.state for each in first].count("done") == len(VALUES)
    copies = [each for each in first if each.lineage]
    assert len(copies) == 2 * 3  # a third of six, at each of three pauses
    assert max(each.last["accuracy"] for each in copies) > max(
        each.last["accuracy"] for each in first if not each.lineage
    )


def test_the_worst_copy_the_best_and_change_their_values():
    whole = members("A.x=uniform(0, 1)", resample=0)
    paused = [trained(begun(n, {"A.x": x}), 10) for n, x in enumerate(VALUES)]
    facts = whole.copies(paused)
    assert [each["lineage"][0] for each in facts] == [0, 5]  # the farthest from 0.5
    for each in facts:
        _, generation, parent, step = each["lineage"]
        assert (generation, step) == (0, 10)
        assert parent in (3, 4)
        ratio = each["parameters"]["A.x"] / VALUES[parent]
        assert ratio == pytest.approx(0.8) or ratio == pytest.approx(1.2)
    assert [whole.target(each, paused) for each in paused] == [
        None
    ] * 6  # until the copies are there


def test_lists_go_to_a_neighbour_and_ranges_end():
    texts = "A.n=1,2,4,8", "A.i=int(1, 3)", "A.x=uniform(0, 1)"
    found = set()
    for seed in range(40):
        each = members(*texts, resample=0, seed=seed)
        paused = [
            trained(begun(n, {"A.n": 4, "A.i": 1, "A.x": x}), 10)
            for n, x in enumerate((0.9, 0.05, 0.0))
        ]
        (facts,) = each.copies(paused)
        found |= {(name, round(value, 3)) for name, value in facts["parameters"].items()}
    assert found == {("A.n", 2), ("A.n", 8), ("A.i", 2), ("A.x", 0.72), ("A.x", 1.0)}


@pytest.mark.parametrize("state", ["diverged", "refused", "failed"])
def test_who_diverged_or_fails_for_good_is_replaced_and_copied_by_nobody(state):
    whole = members("A.x=uniform(0, 1)")
    paused = [trained(begun(n, {"A.x": x}), 10) for n, x in enumerate((0.5, 0.4, 0.3))]
    paused[0] = dataclasses.replace(paused[0], state=state, step=7, evaluations=())
    (facts,) = whole.copies(paused)
    assert facts["lineage"] == [0, 0, 1, 10]
    lost = [dataclasses.replace(each, state=state, evaluations=()) for each in paused]
    assert whole.copies(lost) == ()
    assert [whole.target(each, lost) for each in lost] == [None] * 3


def test_the_summary_says_who_goes_back_to_whom():
    trials = studied(members("A.x=uniform(0, 1)"), VALUES, random.Random(0))
    found = summary.of(trials)
    said = "\n".join([*findings.notes(found), *findings.comparisons(found)])
    says(said, "population 6 3 pauses")
    says(said, f"{6 * 40:,} steps trained")
    assert "lineage of" in said
    assert "from step" in said
    says(said, "population copy")
    assert len(found.configurations) == len(trials)


SHORT = {
    "train_steps": 20,
    "steps_per_loop": 10,
    "summary_interval": 10,
    "validation_interval": 10,
    "checkpoint_interval": 10,
}
STUDY = [
    "--mode=study",
    "--gin_file=digits.gin",
    *(f"--gin.TrainerConfig.{name}={value}" for name, value in SHORT.items()),
    "--gin.RunConfig.tensorboard=False",
    "--params_override=run.study.stopping=pbt",
]
VARIED = f"--vary={RATE}=0.00001,0.02"


def outcome(folder):
    return [
        (one.number, one.folder.name, one.parameters, one.lineage, one.state, one.evaluations)
        for one in trial.all_of(folder)
    ]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("population") / "study"
    assert main.main([*STUDY, VARIED, "--jobs=1", f"--model_dir={folder}"]) == 0
    return folder


def test_a_copy_is_a_run_that_began_as_another(finished):
    *first, copy = trial.all_of(finished)
    assert [each.state for each in first].count("paused") == 1
    assert (copy.state, copy.step, copy.lineage.step) == ("done", 20, 10)
    parent = first[copy.lineage.parent]
    assert parent.state == "done"
    for kind in ("index", "data-00000-of-00001"):
        name = f"ckpt-10.{kind}"
        assert (copy.folder / name).read_bytes() == (parent.folder / name).read_bytes()
    ours, theirs = (history.read(each.folder / layout.HISTORY) for each in (copy, parent))
    assert ours[0] == theirs[0]
    assert ours[1:] != theirs[1:]
    assert copy.parameters[RATE] != parent.parameters[RATE]
    configured = (copy.folder / layout.GIN).read_text()
    assert f"initial_learning_rate = {copy.parameters[RATE]}" in configured


def test_a_population_that_was_killed_ends_as_one_left_alone(finished, tmp_path):
    folder = tmp_path / "study"
    command = [sys.executable, "-m", "runner", *STUDY, VARIED, f"--model_dir={folder}"]
    with (tmp_path / "log").open("a") as file:
        options = {"stdin": subprocess.PIPE, "stdout": file, "stderr": file}
        process = warm.Popen([*command, "--jobs=1"], **options)
        end = time.monotonic() + 600
        while len(list(folder.glob("trials/0002-*"))) < 1:
            assert process.poll() is None
            assert time.monotonic() < end
            time.sleep(0.01)
        process.kill()
        process.wait(600)
        assert warm.Popen([*command, "--jobs=1"], **options).wait(600) == 0
    assert outcome(folder) == outcome(finished)
    for ours, theirs in zip(trial.all_of(folder), trial.all_of(finished), strict=True):
        assert not comparison.differing(comparison.compare(ours.folder, theirs.folder))


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--vary=MLPConfig.hidden=(8,),(16,)"], "task.model.mlp.hidden"),
        (["--vary=train/ImageData.global_batch_size=8,16"], "task.train_data.global_batch_size"),
        (["--vary=OptimizerConfig.type='adam','sgd'"], "trainer.optimizer_config.optimizer"),
        ([VARIED, "--seeds=2"], "seed folds"),
        ([f"--vary={RATE}=0.1,"], "not value"),
        ([f"--vary={RATE}=0.1"], "two members"),
        (["--seeds=2"], "pass --vary"),
    ],
)
def test_what_cannot_change_as_members_go_on_is_refused(tmp_path, capsys, flags, message):
    assert main.main([*STUDY, *flags, f"--model_dir={tmp_path / 'study'}"]) == 2
    says(capsys.readouterr().err, message)
    assert not (tmp_path / "study").exists()


def test_a_dropout_may_change(tmp_path, capsys):
    flags = ["--vary=MLPConfig.dropout=0.1,0.3", "--dry_run", f"--model_dir={tmp_path / 'study'}"]
    assert main.main([*STUDY, *flags]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["trials"] == 2
