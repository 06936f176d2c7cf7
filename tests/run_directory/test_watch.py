"""What another process knows of a run. Time passes only where a test says so."""

import dataclasses
import json
import os

import pytest
from wording import each_says, says

from runner.errors import RunnerError
from runner.run_directory import claim, claim_file, status, watch


class Clock:
    now = 1000.0

    def __call__(self):
        return self.now


class Scene:
    """A watched folder; what is said of it."""

    def __init__(self, folder, timeout):
        self.folder = folder
        self.clock = Clock()
        self.said = []
        self.watch = watch.Watch(folder, timeout=timeout, note=self.said.append, clock=self.clock)
        self.beats = 0

    def write(self, state, step, reason=""):
        """By a trainer whose clock is wrong."""
        self.beats += 1
        wrong = lambda: float(self.beats)  # noqa: E731
        status.StatusFile(self.folder, clock=wrong).write(state, step, reason)

    def after(self, seconds):
        """What a look sees so much later, and what is said from there on."""
        self.clock.now += seconds
        self.said.clear()
        state = self.watch.look()
        self.watch.wait()
        return state


@pytest.fixture
def scene(tmp_path):
    return Scene(tmp_path / "run", timeout=600.0)


def elsewhere(folder):
    """A claim by a process of another machine."""
    folder.mkdir(exist_ok=True)
    holder = {"host": "other", "pid": 17, "boot": "b", "token": "t"}
    (folder / "claim.json").write_text(json.dumps(holder))


def test_a_folder_that_does_not_exist_is_waited_for_and_said_once_a_minute(scene):
    assert scene.after(0) == "waiting"
    each_says(scene.said, f"training started {scene.folder}")
    assert scene.after(59) == "waiting"
    assert scene.said == []
    scene.after(1)
    each_says(scene.said, f"1:00 started {scene.folder}")
    scene.after(1)
    assert scene.said == []
    scene.write("running", 0)
    assert scene.after(1) == "running"
    each_says(scene.said, "training step 0")


def test_of_a_run_that_goes_on_nothing_is_said(scene):
    for step in range(0, 500, 10):
        scene.write("running", step)
        assert scene.after(50) == "running"
        assert scene.said == []


@pytest.mark.parametrize(
    ("state", "reason", "said"),
    [
        ("done", "", "done 1,040"),
        ("stopped", "enough", "stopped 1,040 enough"),
        ("diverged", "loss nan", "diverged 1,040 loss nan"),
    ],
)
def test_a_run_that_has_ended_is_said_and_not_waited_for(scene, state, reason, said):
    scene.write(state, 1040, reason)
    assert scene.after(0) == state
    each_says(scene.said, said)
    assert scene.after(100_000) == state
    assert scene.said == []


@pytest.mark.parametrize("state", ["preempted", "failed"])
def test_a_run_that_may_be_started_again_is_waited_for_and_noticed(scene, state):
    scene.write("running", 20)
    scene.after(0)
    scene.write(state, 40, "why")
    assert scene.after(5) == state
    assert len(scene.said) == 1
    assert state in scene.said[0]
    says(scene.said[0], "step 40 why")
    scene.after(60)
    says(scene.said[0], "1:00 training")
    scene.write("running", 40)
    assert scene.after(100) == "running"
    each_says(scene.said, "training step 40")


def test_a_run_without_heartbeat_is_silent_by_this_process_clock_alone(scene):
    scene.write("running", 20)
    os.utime(scene.folder / "status.json", (0, 0))  # an old file, as another clock may make it
    elsewhere(scene.folder)
    assert scene.after(0) == "running"
    assert scene.after(60) == "running"
    assert scene.after(1) == "silent"
    (said,) = scene.said
    assert said.startswith(f"process {os.getpid()} on ")
    says(said, "last step 20")
    scene.write("running", 30)
    assert scene.after(1) == "running"
    each_says(scene.said, "training step 30")


def test_on_this_machine_a_killed_trainer_is_noticed_by_its_lock(scene):
    with claim.claimed(scene.folder, note=print):
        scene.write("running", 20)
        scene.after(0)
        assert scene.after(20) == "running"  # it holds its claim
        scene.write("running", 20)
        scene.after(0)
    gone = claim_file.write(scene.folder / "claim.json", claim_file.Holder.this())
    claim_file.close(gone)  # as a kill leaves it
    assert scene.after(9) == "running"  # signs of life have come
    assert scene.after(2) == "silent"
    says(scene.said[0], "exited recording")
    assert scene.after(1) == "silent"
    assert scene.said == []


def test_looking_does_not_keep_a_new_trainer_from_the_folder(scene):
    holder = dataclasses.replace(claim_file.Holder.this(), pid=1)
    scene.write("running", 20)
    claim_file.close(claim_file.write(scene.folder / "claim.json", holder))
    scene.after(0)
    assert scene.after(20) == "silent"
    with claim.claimed(scene.folder, note=print) as mine:
        mine.check()


@pytest.mark.parametrize("state", ["waiting", "preempted", "failed", "running"])
def test_it_gives_up_without_a_sign_of_life_and_says_what_was_last_seen(scene, state):
    if state != "waiting":
        scene.write(state, 40)
        elsewhere(scene.folder)
    scene.after(0)
    scene.after(600)
    with pytest.raises(RunnerError) as error:
        scene.after(1)
    assert error.value.exit_code == 1
    message = str(error.value)
    says(message, f"{scene.folder} 10:01 giving")
    assert message.endswith("(TrainerConfig.continuous_eval_timeout = 600)")
    says(message, "no training" if state == "waiting" else "step 40")


@pytest.mark.parametrize("life", ["status", "checkpoint"])
def test_a_changed_status_or_a_new_checkpoint_is_a_sign_of_life(scene, life):
    scene.write("preempted", 40)
    for number in range(5):
        assert scene.after(500) == "preempted"
        if life == "status":
            scene.write("preempted", 40)
        else:
            (scene.folder / "checkpoint").write_text("x" * number)
    scene.after(500)
    scene.after(600)
    with pytest.raises(RunnerError):
        scene.after(1)


def test_a_run_that_lives_is_not_given_up_however_short_the_timeout(tmp_path):
    scene = Scene(tmp_path, timeout=1.0)
    scene.write("running", 40)
    scene.after(0)
    assert scene.after(30) == "running"


def test_without_a_timeout_it_waits_for_ever(tmp_path):
    scene = Scene(tmp_path / "run", timeout=None)
    assert scene.after(0) == "waiting"
    assert scene.after(10**9) == "waiting"


def test_a_share_that_is_away_is_no_sign_of_life_and_no_end(scene):
    scene.write("running", 20)
    scene.after(0)
    scene.folder.rename(scene.folder.with_name("away"))
    scene.folder.symlink_to(scene.folder)  # a look fails, as it does on a share that is away
    assert scene.after(30) == "running"
    assert scene.after(31) == "silent"
    scene.folder.unlink()
    scene.folder.with_name("away").rename(scene.folder)
    scene.write("running", 30)
    assert scene.after(1) == "running"
