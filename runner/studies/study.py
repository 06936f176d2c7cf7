"""`--mode=study`: a sweep over one experiment. All state is in the trials' directories.

    runner --mode=study --gin_file=digits.gin --model_dir=studies/digits --seeds=5

Rerun the command to continue the study. While the first process still runs, the new one joins it as
a second worker.
"""

import socket
import time
from pathlib import Path
from typing import Any

from runner.configuration import folding
from runner.core import console, files, layout, text
from runner.errors import ConfigError, RunnerError
from runner.run_directory import claim, leftovers
from runner.run_directory.loggers import feed, launch
from runner.run_directory.run import has_begun
from runner.run_directory.state import ACTIVE, State
from runner.runs import notifications
from runner.runs.call import Call
from runner.storage import display_names
from runner.studies import (
    checks,
    creation,
    goals,
    places,
    plan,
    progress,
    publish,
    testing,
    trial,
    warm,
    worker,
)
from runner.studies.trial import Trial

_POLL_SECONDS = 0.05
_LOOK_SECONDS = 1.0
_LOCK = "planning.lock"
_LENGTH = "TrainerConfig.train_steps"


def study(call: Call, *, dry_run: bool = False) -> dict[str, Any]:
    """Trains the trials that are not finished yet.

    Args:
        call: The mode's arguments.
        dry_run: Whether to only check that each trial can be configured.

    Returns:
        The results for JSON, such as the number of trials in each state and the best configuration.

    Raises:
        ConfigError: the varying parameters cannot be configured.
        signals.Interrupted: a signal arrived, and every trial has saved its state.
    """
    call.loaded_from()
    folder = call.model_dir
    if has_begun(folder):
        raise ConfigError(
            f"--model_dir={folder} is the directory of a run; choose another one for the study"
        )
    feed.check_installed(call.config.run.loggers, "RunConfig.loggers")
    planned = plan.of(call.config)
    there = trial.all_of(folder)
    if there and goals.Goals.read(there[-1].more).facts != planned.goals.facts:
        raise ConfigError(
            f"the trials in {display_names.of(folder)} have other StudyConfig.objectives or limits:"
            " choose another {model_dir}",
            model_dir=None,
        )
    checks.check(call, planned, reads=not there)
    checks.check_unchanged(call, there)
    console.say(f"{text.counted(planned.size, 'trial')} in {display_names.of(folder)}")
    if planned.options.folds and (others := folding.left_out(call.config)):
        console.say(f"folds split the training data, so {others} is not used")
    if dry_run:
        return {"status": "rehearsed", "trials": planned.size, "model_dir": str(folder)}
    workshop = Workshop(call, planned, there, call.place or places.Here())
    run = call.config.run
    files.make_folder(folder / layout.TRIALS)
    with (
        notifications.Notifier(run.notify, run.notify_on, folder) as told,
        files.staying(folder),
    ):
        leftovers.clear(folder, shared=True)
        with call.stop.deferred():
            workshop.run()
        call.stop.check()
        results = _results(folder, workshop)
        launch.start(run.loggers, folder)
        if planned.repeated:
            console.say(
                f"{planned.repeated} of {planned.options.trials} choices repeat an earlier one, "
                "which is not trained again"
            )
        failed = [each for each in workshop.trials if each.state == State.FAILED]
        if failed and len(failed) == len(workshop.trials):
            raise RunnerError(f"every trial failed; the last: {failed[-1].reason}")
        if workshop.why_set_aside and (left := workshop.left):
            raise RunnerError(f"{text.counted(left, 'trial')} left: {workshop.why_set_aside}")
        said = text.counted(len(workshop.trials), "trial")
        told.tell("done", "; ".join([said, *results["findings"][:1]]), **results)
    return results


class Workshop:
    """The share of this process in a study's trials.

    Args:
        call: The mode's arguments.
        planned: The study's plan.
        there: Its trials so far.
        place: The executor of its trials.

    Attributes:
        trials: All trials, by number.
        why_set_aside: Why this machine starts no more trials, or empty while it still does.
        data_set: The parameter that names the data set, or empty if there is only one.
        untested: Why a trial could not be tested, by the name of its directory.
        unmeasured: Why a trial's model could not be exported, likewise.
    """

    def __init__(
        self, call: Call, planned: plan.Plan, there: list[Trial], place: places.Place
    ) -> None:
        self.trials = there
        self.why_set_aside = ""
        self.untested: dict[str, str] = {}
        self.unmeasured: dict[str, str] = {}
        self.data_set = planned.options.across
        self._call = call
        self._plan = planned
        planned.begin(there)
        self._folder = call.model_dir
        self._jobs: list[worker.Job] = []
        self._place = place
        self._room = place.room(planned.options.jobs, planned.size)
        self._threads = 0 if call.config.run.intra_op_threads else self._room.threads
        self._failures = 0  # consecutive
        self._is_planned = False  # whether all trials wanted now exist
        self._is_begun_elsewhere = False
        self._is_tested_elsewhere = False
        self._looked = 0.0
        self._silence = claim.Silence()
        self._board = progress.Board(planned.size)

    def run(self) -> None:
        """Works until all trials are done, or a signal arrives."""
        self._extend()
        if any(self._is_open(each) for each in self.trials):
            console.say(f"{self._room}")
        try:
            while not self._call.stop.requested and self._step():
                running = {job.one.number: job.goal or job.kind for job in self._jobs}
                self._board.show(self.trials, running)
                time.sleep(_POLL_SECONDS)
        finally:
            for job in self._jobs:
                job.stop()
            for job in list(self._jobs):
                self._end(job)
            console.end()

    def _step(self) -> bool:
        """Collects ended trials and starts new ones. Returns False if no work is left.

        Raises:
            LostError: the study's directory was moved or deleted.
        """
        files.check(self._folder)
        for job in self._jobs:
            job.end_if_stuck()
        for job in [each for each in self._jobs if each.has_ended]:
            self._end(job)
            self._looked = 0.0
        if time.monotonic() - self._looked > _LOOK_SECONDS:
            self._looked = time.monotonic()
            self._room = self._place.room(self._plan.options.jobs, self._plan.size)
            if not self._is_full:
                self._look()
                self._fill()
        others = self._is_begun_elsewhere or self._is_tested_elsewhere or not self._is_planned
        others = others or self._is_any_active
        return bool(self._jobs) or (others and not self._is_set_aside)

    @property
    def left(self) -> int:
        """The number of trials still to be started or resumed."""
        return sum(map(self._is_open, self.trials))

    @property
    def _is_set_aside(self) -> bool:
        return self._failures >= self._plan.options.failures

    @property
    def _is_full(self) -> bool:
        return len(self._jobs) >= self._room.jobs

    def _look(self) -> None:
        """Rereads the trials that may have changed, and creates the trials that are now known."""
        final = {each.number: each for each in self.trials if self._is_final(each)}
        numbers = {path: _number(path) for path in layout.trials(self._folder)}
        self.trials = sorted(
            (
                final.get(number) or trial.read(path)
                for path, number in numbers.items()
                if (path / layout.TRIAL).exists()
            ),
            key=lambda each: each.number,
        )
        self._extend()

    def _extend(self) -> None:
        """Creates the directories of wanted trials that do not exist yet."""
        there = {each.key for each in self.trials}
        missing = [each for each in self._plan.wanted(self.trials) if _key(each) not in there]
        self._is_planned = not missing
        if not missing:
            return
        with worker.alone(self._folder / _LOCK) as first:
            if not first:  # another worker is doing it
                return
            self.trials = trial.all_of(self._folder)
            there = {each.key for each in self.trials}
            number = max((each.number for each in self.trials), default=-1) + 1
            for facts in missing:
                if (key := _key(facts)) not in there:
                    there.add(key)
                    facts = {"number": number, **facts, "objective": list(self._plan.objective)}
                    folder = creation.create(self._call, facts, self._plan.gin(facts))
                    self.trials.append(trial.read(folder))
                    number += 1
        self._is_planned = True

    def _fill(self) -> None:
        """Starts trials, promoted ones first."""
        self._is_begun_elsewhere = False
        mine = {job.one.number for job in self._jobs}
        waiting = [each for each in self.trials if each.number not in mine and self._is_open(each)]
        for one in sorted(waiting, key=lambda each: each.state != State.PAUSED):
            if self._is_full or self._is_set_aside or not self._place.has_memory(self._jobs):
                return
            if (step := self._target(one)) is not None and not self._start(one, step):
                self._is_begun_elsewhere = True  # its run has not locked its directory yet
        self._measure()
        rungs, running = self._plan.rungs, self._is_any_active
        if rungs and not self._jobs and not running and (left := rungs.left(self.trials)):
            self._start(left, rungs.after(left))
        elif not running and all(job.kind == "test" for job in self._jobs):
            self._test()

    def _measure(self) -> None:
        """Exports the models of finished trials whose files are measured."""
        mine = {job.one.folder.name for job in self._jobs} | self.unmeasured.keys()
        for one in filter(self._plan.lacks_measures, self.trials):
            if one.folder.name in mine or not self._plan.includes(one):
                continue
            self._replace(now := trial.read(one.folder))
            if not self._plan.lacks_measures(now):
                continue
            if self._is_full or not self._place.has_memory(self._jobs):
                return
            if not self._start(now, 0, kind="export"):
                self._is_begun_elsewhere = True

    def _test(self) -> None:
        """Tests the chosen configuration once all training is done."""
        self._is_tested_elsewhere = False
        no_data = self._call.config.run.test.data is None
        if not self._plan.is_tested or no_data or self.data_set:
            return
        if not self._is_planned or self._is_set_aside:
            return
        mine = {job.one.folder.name for job in self._jobs} | self.untested.keys()
        for one in testing.due(self.trials):
            self._replace(now := trial.read(one.folder))
            if now.tests or now.folder.name in mine:
                continue
            if self._is_full or not self._place.has_memory(self._jobs):
                return
            if not self._start(now, 0, kind="test"):
                self._is_tested_elsewhere = True

    def _target(self, one: Trial) -> int | None:
        """Returns the step that a trial trains to, 0 for its end, or None while it waits."""
        rungs = self._plan.rungs
        return rungs.target(one, self.trials) if rungs else 0

    def _start(self, one: Trial, step: int, *, kind: str = "train") -> bool:
        """Starts a trial up to a step, its test or its export.

        Returns False if another worker has it.
        """
        facts = {"parameters": one.parameters, "seed": one.seed, "fold": one.fold}
        divided = checks.divided(self._call, facts)
        formats = self._plan.goals.formats if kind == "export" else ()
        own = worker.arguments(
            facts, divided, threads=self._threads, pause_at=step, formats=formats
        )
        taken = {job.gpu for job in self._jobs}
        gpu = next((each for each in self._room.gpus if each not in taken), None)
        command = [*self._call.loaded_from(), *own]
        whole = one.parameters.get(_LENGTH, self._call.config.trainer.train_steps)
        goal = (step or whole) if kind == "train" else 0
        job = worker.Job(one, command, self._place, gpu=gpu, kind=kind, goal=goal)
        if job.is_held:
            self._jobs.append(job)
        return job.is_held

    def _end(self, job: worker.Job) -> None:
        self._jobs.remove(job)
        code = job.end()
        if code == warm.NOT_WARM:
            if self._place.forks:
                console.say(f"starting each trial in a new process, which is slower: {job.why_not}")
            self._place.forks = False
            if not job.is_stuck:
                self._threads = 0  # cannot be set once TensorFlow has been used
            return
        now = trial.read(job.one.folder)
        self._replace(now)
        if job.kind == "export":
            if self._plan.lacks_measures(now) and not self._call.stop.requested:
                self.unmeasured[now.folder.name] = job.reason()
            return
        if job.kind == "test":
            if now.tests:
                console.say(f"{now.folder.name}: tested")
            elif not self._call.stop.requested:
                self.untested[now.folder.name] = job.reason()
            return
        if code == places.LOST:
            console.say(f"{now.folder.name}: its node was lost; another node will continue it")
            return
        self._board.ended(now)
        failed = now.state == State.FAILED or (code < 0 and not self._call.stop.requested)
        self._failures = self._failures + 1 if failed else 0
        if self._is_set_aside and not self.why_set_aside:
            self.why_set_aside = (
                f"{socket.gethostname()} starts no more trials, because {self._failures} failed in "
                f"a row (StudyConfig.failures). The last error: {now.reason}"
            )
            console.say(self.why_set_aside)

    def _replace(self, now: Trial) -> None:
        self.trials = [now if each.number == now.number else each for each in self.trials]

    @property
    def _is_any_active(self) -> bool:
        return any(each.state in ACTIVE and self._plan.includes(each) for each in self.trials)

    def _is_open(self, one: Trial) -> bool:
        if not self._plan.includes(one):
            return False
        if one.state in ACTIVE:
            return self._silence.has_lasted(one.folder / layout.CLAIM)
        return not self._is_final(one)

    def _is_final(self, one: Trial) -> bool:
        return self._plan.is_final(one)


def _key(facts: dict[str, Any]) -> str:
    return trial.key(facts["parameters"], facts["seed"], facts["fold"], facts.get("lineage"))


def _number(path: Path) -> int:
    return int(path.name.partition("-")[0])


def _results(folder: Path, workshop: Workshop) -> dict[str, Any]:
    """Writes the files of the study's results, and returns the output of the command."""
    counts: dict[str, int] = {}
    for each in workshop.trials:
        counts[each.state] = counts.get(each.state, 0) + 1
        if each.state in (State.FAILED, State.REJECTED, State.DIVERGED):
            console.say(f"{each.folder.name} {each.state}: {each.reason}", style="red")
    for name, reason in workshop.unmeasured.items():
        console.say(f"{name} could not be exported and measured: {reason}", style="red")
    for name, reason in workshop.untested.items():
        console.say(f"{name} could not be tested: {reason}", style="red")
    said = publish.publish(folder, workshop.trials, workshop.data_set)
    if workshop.untested:
        said["not_tested"] = workshop.untested
    return {"status": "done", "trials": counts, **said, "model_dir": str(folder)}
