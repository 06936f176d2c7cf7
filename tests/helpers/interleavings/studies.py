"""Two workers of one study, whose trials train nothing but write the files of real runs."""

import contextlib
import functools
import signal
import types

from interleavings import scheduler
from interleavings.scheduler import ViolationError, current
from runner.core import child, console, files, layout, signals
from runner.history import history, records
from runner.run_directory import claim, run, status
from runner.run_directory.state import State
from runner.studies import creation, places, plan, population, progress, space, study, trial

STEPS = (10, 20)
SAVED = "saved.txt"
MEMBERS = 3
METRIC = trial.Objective("accuracy", higher=True)


class Played(child.Child):
    """A simulated process. It ends with the worker that started it."""

    def __init__(self, work, name):
        parent = current().process
        self._world, self._stop = scheduler.world(), []
        self._codes = []
        self._process = self._world.process(
            name, lambda: self._codes.append(work(self._stop)), host=parent.host, parent=parent
        )

    pid = property(lambda self: self._process.pid)

    @property
    def code(self):
        if self._codes:
            return self._codes[0]
        return -signal.SIGKILL if self._process.is_dead else None

    def wait(self, seconds=None):
        self._world.wait(lambda: self.code is not None)
        return self.code

    def send(self, number):
        self._stop.append(number)

    def reason(self):
        return ""


class Place:
    """Starts the simulated processes of trials, one at a time."""

    forks = False

    def __init__(self, whole):
        self._whole = whole

    def room(self, jobs, trials):
        return places.Room(1, 0)

    def has_memory(self, jobs):
        return True

    def start(self, arguments, output, gpu):
        folder = output.parent
        [pause_at] = [int(each) for each in arguments if each.isdigit()]
        return Played(lambda stop: self._whole.train(folder, pause_at, stop), folder.name)


class TwoWorkers:
    """The processes.

    Properties:
        No trial exists twice, and none has two processes at the same time.
        No trial is started again after its end. No step is trained twice, except after a crash.
        No worker ends while there is work that it could do, and none with an error.
        The results are the same in every interleaving.
    """

    def __init__(self, world, planned, expected):
        self.world = world
        self.folder = world.root / "study"
        files.make_folder(self.folder / layout.TRIALS)
        self.planned, self.expected = planned, expected
        self.writing = {}
        self.trained = []
        for name in "ab":
            world.process(name, self.work, crashes=name == "a")
        for target, name, new in (
            (console, "say", lambda *_, **__: None),
            (console, "end", lambda: None),
            (study, "_POLL_SECONDS", 1.0),
            (progress, "Board", _Board),
            (study.worker, "arguments", _arguments),
            (creation.checks, "load", lambda *_: None),
            (creation.session.Configuration, "of", lambda _: _Configuration()),
        ):
            world.replace(target, name, new)
        for each in vars(run.Run).values():  # Python 3.11 has a lock that threads share
            if isinstance(each, functools.cached_property) and hasattr(each, "lock"):
                world.replace(each, "lock", contextlib.nullcontext())

    def work(self):
        config = types.SimpleNamespace(
            run=types.SimpleNamespace(
                study=None, intra_op_threads=1, test=types.SimpleNamespace(data=None)
            ),
            trainer=types.SimpleNamespace(train_steps=STEPS[-1]),
        )
        call = types.SimpleNamespace(
            model_dir=self.folder,
            config=config,
            stop=signals.Stop(),
            loaded_from=lambda: (),
        )
        planned = self.planned()
        study.Workshop(call, planned, trial.all_of(self.folder), Place(self)).run()
        if any(planned.rungs is None and each.state != State.DONE for each in self.trials()):
            raise ViolationError("a worker ended before the study")

    def trials(self):
        return trial.all_of(self.folder)

    def train(self, folder, pause_at, stop):
        """A trial's process. Returns its exit code."""
        if trial.read(folder).state == State.DONE:
            raise ViolationError("a trial is started again after its end")
        with claim.claimed(folder, note=[].append, clock=self.world.time, sleep=self.world.sleep):
            other = self.writing.get(folder.name)
            if other and not other.is_dead:
                raise ViolationError("a trial has two processes")
            self.writing[folder.name] = current().process
            code = self.steps(folder, pause_at or STEPS[-1], stop)
            self.writing[folder.name] = None
        return code

    def steps(self, folder, last, stop):
        rows = history.History(folder / layout.HISTORY)
        rate = trial.read(folder).parameters.get("A.x", 0.5)
        with status.StatusFile(folder, seconds=1e6) as state:
            path = folder / SAVED
            begun = int(path.read_text()) if path.exists() else 0
            scores = {row.step: row.metrics[METRIC.metric] for row in rows.evaluations}
            for step in STEPS:
                if not begun < step <= last:
                    continue
                self.world.sleep(1.0)
                if stop:
                    state.write(State.STOPPED, begun, stopped_by=status.SIGNAL)
                    return 128 + stop[0]
                self.trained.append((folder.name, step))
                if step not in scores:
                    scores[step] = scores.get(begun, 0.0) + 1 - abs(rate - 0.5)
                    row = {METRIC.metric: scores[step]}
                    rows.append(records.Evaluation(step, row, 0.0, 0.0, f"ckpt-{step}"))
                files.write_text(path, str(step))
                begun = step
            if begun < STEPS[-1]:
                state.write(State.STOPPED, begun, stopped_by=status.PAUSE)
            else:
                state.write(State.DONE, begun)
        return 0

    def check(self):
        found = self.trials()
        keys = [each.key for each in found]
        if len(keys) != len(set(keys)):
            raise ViolationError("a trial exists twice")
        is_crashed = any(each.is_dead for each in self.world.processes)
        if len(self.trained) != len(set(self.trained)) and not is_crashed:
            raise ViolationError("a step was trained twice")
        results = [(each.configuration, each.seed, each.step, each.last) for each in found]
        if results != self.expected:
            raise ViolationError("the results are not those of an undisturbed study")


class _Board:
    def __init__(self, size):
        pass

    def ended(self, one):
        pass

    def show(self, trials, running):
        pass


class _Configuration:
    def write(self, folder):
        pass


def _arguments(facts, divided=None, *, threads=0, pause_at=0, formats=()):
    return [str(pause_at)]


OPTIONS = types.SimpleNamespace(
    strategy="grid",
    trials=0,
    best=0,
    seeds_of_best=(),
    jobs=1,
    failures=3,
    tries=2,
    seed=0,
    lag=1,
    factor=3,
    resample=0.25,
    across="",
)


def _seeds():
    return plan.Plan(OPTIONS, (), range(MEMBERS), (None,), METRIC)


def _population():
    parameters = space.parse(["A.x=0.1,0.3,0.5"])
    planned = plan.Plan(OPTIONS, parameters, (0,), (None,), METRIC)
    planned.rungs = population.Population(parameters, STEPS, OPTIONS, planned.is_final)
    return planned


def _result(value, step, score, seed=0, lineage=None):
    parameters = {} if value is None else {"A.x": value}
    return trial.configuration(parameters, lineage), seed, step, {METRIC.metric: score}


OF_SEEDS = [_result(None, 20, 2.0, seed) for seed in range(MEMBERS)]
OF_POPULATION = [
    _result(0.1, 10, 0.6),  # the worst, replaced by a copy of the best with another value
    _result(0.3, 20, 1.6),
    _result(0.5, 20, 2.0),
    _result(0.3, 20, 1.8, lineage=(0, 0, 2, 10)),
]


def of_seeds(world):
    return TwoWorkers(world, _seeds, OF_SEEDS).check


def of_population(world):
    return TwoWorkers(world, _population, OF_POPULATION).check
