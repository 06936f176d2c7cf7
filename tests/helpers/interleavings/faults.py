"""Faults that the project once had, or that weaken its code, to be put back in tests."""

import dataclasses
import functools
import inspect
import textwrap
import types
from unittest import mock


@dataclasses.dataclass(frozen=True)
class Fault:
    """A fault.

    Attributes:
        name: What is wrong.
        commit: The commit that corrected it, or empty if the code never had it.
        model: The model that finds it.
        place: The function, as `module:qualified.name`.
        old: A part of the function's source text.
        new: The text in its place.
        how: Changes to the model's bounds.
    """

    name: str
    commit: str
    model: str
    place: str
    old: str
    new: str
    how: dict = dataclasses.field(default_factory=dict)

    def put_back(self):
        """A context in which the function has the fault."""
        module, _, name = self.place.partition(":")
        *owners, last = name.split(".")
        owner = functools.reduce(getattr, owners, __import__(module, fromlist=["_"]))
        return mock.patch.object(owner, last, self._changed(owner, last))

    def _changed(self, owner, name):
        function = getattr(owner, name)
        text = textwrap.dedent(inspect.getsource(function))
        if self.old not in text:
            raise ValueError(f"{self.place} has changed: {self.old!r} is not in it")
        space = types.ModuleType("faulty").__dict__
        space.update(inspect.unwrap(function).__globals__)
        faulty = f"from __future__ import annotations\n{text.replace(self.old, self.new)}"
        exec(compile(faulty, f"<{self.place}>", "exec"), space)
        return space[name]


FAULTS = (
    Fault(
        "writes do not check the lock",
        "1af3981",
        "lock, suspended",
        "runner.core.files:check",
        "ask()",
        "pass",
    ),
    Fault(
        "an evaluator's age is measured by two clocks",
        "15d4955",
        "evaluator",
        "runner.evaluation.handover:Handover.live",
        "now - self._alive.get(path, now)",
        "3600 + self._clock() - now",
    ),
    Fault(
        "a lock in a bucket that is removed at once is an error",
        "6b0895c",
        "lease",
        "runner.storage.bucket:Bucket.create",
        "return self.read(name) == content",
        "return self._fs.cat_file(self._path(name)) == content",
    ),
    Fault(
        "a moved directory is created again",
        "d0c32af",
        "moved",
        "runner.core.files:make_folder",
        "check(folder)\n",
        "return folder.mkdir(parents=True, exist_ok=True)\n",
    ),
    Fault(
        "a killed evaluator's link is preferred to its queue",
        "",
        "evaluator",
        "runner.evaluation.checkpoint_queue:CheckpointQueue._due",
        "[*checkpoint_files.there(self._folder), *handover.queued(self._folder)]",
        "[*handover.queued(self._folder), *checkpoint_files.there(self._folder)]",
    ),
    Fault(
        "a new lock is used before others have seen it",
        "",
        "lock of hosts",
        "runner.run_directory.claim:_Start._took_over",
        "self.sleep(_SETTLE_SECONDS)",
        "pass",
    ),
    Fault(
        "a lock is replaced although it has changed",
        "",
        "lock",
        "runner.run_directory.claim:_Start._took_over",
        "if claim_file.look(self.path) != seen:",
        "if False:",
    ),
    Fault(
        "the lock file is written in its place",
        "",
        "lock",
        "runner.run_directory.claim_file:publish",
        "os.link(offer, path)",
        "offer.replace(path)",
    ),
    Fault(
        "a checkpoint is removed before it is handed off",
        "",
        "evaluator",
        "runner.checkpoints.checkpoint_manager:Checkpoints._remove",
        "self._before_removal(path)\n",
        "checkpoint_files.remove(path); self._before_removal(path)\n",
    ),
    Fault(
        "the state of a bucket is named before its files are there",
        "",
        "mirror",
        "runner.storage.copying:Copier.copy",
        "self._withdraw(paths)\n",
        "new = {path: Entry(state.files[path][0], None, 0) for path in paths}\n"
        "    self._publish({**self.held.files, **new}, state.texts, whole=last)\n",
    ),
    Fault(
        "removed files go before the new state is named",
        "",
        "mirror",
        "runner.storage.copying:Copier.copy",
        "self._withdraw(paths)\n",
        "self._remove(sorted(gone))\n",
    ),
    Fault(
        "a worker takes a study for ended while another begins a trial",
        "ef572a4",
        "study",
        "runner.studies.study:Workshop._fill",
        "self._is_begun_elsewhere = True",
        "pass",
    ),
    Fault(
        "a stale view of a trial starts it again",
        "8388418",
        "study",
        "runner.studies.worker:Job._hold",
        "return _progress(now) == _progress(self.one)",
        "return True",
        {"stalls": 1},
    ),
    Fault(
        "two workers plan at the same time",
        "",
        "study",
        "runner.studies.study:Workshop._extend",
        "if not first:",
        "if False:",
    ),
    Fault(
        "a killed member that will continue counts as lost",
        "dc25855",
        "population",
        "runner.studies.population:Population._decided",
        "if self.is_final(members[member])]",
        "]",
    ),
    Fault(
        "a checkpoint that a lost process completes late is used",
        "3d69355",
        "takeover",
        "runner.checkpoints.recovery:newest_good",
        'or (lost(path) if is_newer else "")',
        "",
    ),
    Fault(
        "a directory is copied while a listed checkpoint is removed",
        "",
        "mirror",
        "runner.storage.snapshot:take",
        "time.sleep(_PAUSE_SECONDS)",
        "pass",
    ),
    Fault(
        "a row is appended to a line that a kill has cut off",
        "",
        "takeover",
        "runner.core.files:append_json_lines",
        "_drop_cut_off_line(file)",
        "pass",
    ),
)
