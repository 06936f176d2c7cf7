"""Modes with a URL as their folder: what they leave there is what a local folder would have."""

import json
import uuid
from pathlib import Path

import buckets
import pytest
import toy
from wording import saying, says

import runner
from runner import main
from runner.command import typed, url_folders
from runner.core import layout, signals
from runner.errors import ConfigError, LostError
from runner.run_directory.verification import comparison
from runner.storage import bucket, lease, places


@pytest.fixture(autouse=True)
def machine(tmp_path, monkeypatch):
    def go(name):
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / name))

    go("one")
    return go


@pytest.fixture
def url():
    return f"memory://{uuid.uuid4().hex}/run"


@pytest.fixture
def left(url):
    """What is in the bucket."""

    def read(folder):
        with places.read(url) as copy:
            copy.rename(folder)
            copy.mkdir()
        return folder

    return read


def differs(one, other):
    return [part for part in comparison.compare(one, other) if part.differences]


def test_a_run_that_goes_on_on_another_machine_ends_with_the_same_bits(
    url, left, machine, tmp_path
):
    runner.run(toy.experiment(), tmp_path / "once", "train_and_eval")
    first = runner.run(toy.experiment({"run": {"pause_at": 20}}), url, "train_and_eval")
    assert (first["step"], first["model_dir"]) == (20, url)
    machine("two")
    ended = runner.run(toy.experiment(), url, "train_and_eval")
    assert (ended["status"], ended["step"]) == ("done", 40)
    found = left(tmp_path / "found")
    assert not differs(tmp_path / "once", found)
    assert json.loads((found / "status.json").read_text())["state"] == "done"
    starts = json.loads((found / "run.json").read_text())["starts"]
    assert [each["state"] for each in starts] == ["stopped", "done"]


def test_other_modes_read_it_and_leave_their_parts_there(url, left, tmp_path, capsys):
    runner.run(toy.experiment(), url, "train")
    evaluated = runner.run(toy.experiment(), url, "eval")
    assert evaluated["step"] == 40
    followed = runner.run(toy.experiment(), url, "continuous_eval")
    assert followed["training"] == "done"
    other = runner.run(toy.experiment(), tmp_path / "other", "eval", checkpoint=f"{url}/ckpt-40")
    assert other["metrics"] == evaluated["metrics"]
    predicted = runner.run(toy.experiment(), url, "predict")
    assert predicted["output"] == f"{url}/predictions/step-40-validation.jsonl"
    runner.run(toy.experiment({"trainer": {"train_steps": 60}}), url, "train")  # keeps the others'
    found = left(tmp_path / "found")
    for name in ("once", "continuous"):
        assert (found / f"eval-{name}" / "history.jsonl").exists()
    assert main.main(["--mode=status", f"--model_dir={url}"]) == 0
    assert main.main(["--mode=runs", f"--model_dir={url.removesuffix('/run')}"]) == 0
    for path, content in buckets.contents(found).items():
        assert b"read-" not in content, path  # the name of a copy that is gone
    capsys.readouterr()
    assert main.main(["--mode=compare", url, str(found)]) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out.splitlines()[-1])["runs"] == [url, str(found)]
    assert "read-" not in printed.err
    (found / "params.yaml").write_text("{}")
    assert main.main(["--mode=compare", url, str(found)]) == 5
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["runs"] == [url, str(found)]
    page = tmp_path / "page.html"
    assert main.main(["--mode=report", f"--model_dir={url}", f"--output={page}"]) == 0
    assert page.exists()


def test_no_path_of_a_local_copy_is_printed_or_stored(url, left, tmp_path, capsys):
    copies = str(tmp_path / "one")
    runner.run(toy.experiment(), url, "train_and_eval")
    runner.run(toy.experiment(), url, "predict")
    runner.run(toy.experiment(), tmp_path / "other", "eval", checkpoint=f"{url}/ckpt-40")
    main.main(["--mode=replay", f"--model_dir={url}", "--steps=39:40"])
    parent = url.removesuffix("/run")
    assert main.main(["--mode=runs", f"--model_dir={parent}", f"--output={tmp_path}/runs.csv"]) == 0
    page = f"--output={tmp_path}/page.html"
    assert main.main(["--mode=report", f"--model_dir={url}", page]) == 0
    bucket.Bucket(url).write("run.json", b"{")
    assert main.main(["--mode=status", f"--model_dir={url}"]) == 0
    assert (
        main.main(["--mode=report", f"--model_dir={url}", f"--output={tmp_path}/damaged.html"]) == 0
    )
    printed = capsys.readouterr()
    lines = [*printed.out.splitlines(), *printed.err.splitlines()]
    assert not [line for line in lines if copies in line and not line.startswith("working in ")]
    left(tmp_path / "left")
    for path, content in buckets.contents(tmp_path).items():
        if not path.startswith("one/"):
            assert copies.encode() not in content, path


def test_a_trainer_that_was_taken_over_writes_nothing_more(url, left, tmp_path, monkeypatch):
    monkeypatch.setattr(lease, "_FRESH_SECONDS", 0)
    before = {}

    def take_over(logs):
        there = bucket.Bucket(url)
        copied = there.read("mirror.json") is not None
        if copied and not before and there.create("claims/00000002.json", b'{"host": "other"}'):
            before.update(there.objects())

    overrides = {"trainer": {"train_steps": 4000, "checkpoint_interval": 10}}
    with pytest.raises(LostError, match=saying("lost memory://")):
        runner.run(toy.experiment(overrides), url, "train", train_actions=[take_over])
    assert {name: size for name, (size, _) in bucket.Bucket(url).objects().items()} == {
        name: size for name, (size, _) in before.items()
    }


def test_a_mirror_beside_a_local_run(url, left, tmp_path):
    config = toy.experiment({"run": {"mirror": url}})
    runner.run(config, tmp_path / "run", "train_and_eval")
    assert not differs(tmp_path / "run", left(tmp_path / "found"))


@pytest.mark.parametrize(
    ("mode", "more", "said"),
    [
        ("verify_resume", {}, "verify_resume needs local"),
        ("train", {"run": {"mirror": "s3://a/b"}}, "RunConfig.mirror local"),
    ],
)
def test_a_mode_that_needs_a_local_folder_says_so(mode, more, said, url):
    with pytest.raises(ConfigError, match=saying(said)):
        runner.run(toy.experiment(more), url, mode)


def together(*given):
    """The folder of workers that a supervisor will start."""
    parsed = typed.parse(["--mode=train", "--gin_file=digits.gin", "--workers=2", *given])
    return url_folders.together(parsed.mode, parsed.model_dir, parsed.options, signals.Stop())


def test_workers_of_one_machine_get_a_local_folder_that_is_copied(url, left, tmp_path):
    with together(f"--model_dir={url}") as folder:
        folder = Path(folder)
        (folder / layout.PARAMS).write_text("run: {mirror_timeout: 30}\n")
        (folder / layout.WORKERS).mkdir()
        (folder / layout.WORKERS / "1.log").write_text("hello\n")
        with pytest.raises(ConfigError, match=saying(f"local model_dir {url}")):
            runner.run(toy.experiment({"run": {"mirror": "memory://other/run"}}), folder, "train")
    assert (left(tmp_path / "found") / layout.WORKERS / "1.log").read_text() == "hello\n"


def test_workers_of_several_machines_need_a_shared_folder(url):
    hosts = ["--worker_hosts=a:1,b:1", "--task_index=0"]
    refused = pytest.raises(ConfigError, match=saying("need shared RunConfig.mirror"))
    with refused, together(f"--model_dir={url}", *hosts):
        pass


def test_a_url_as_output_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=saying("output= s3://b/x.npz local file")):
        runner.run(toy.experiment(), tmp_path, "predict", output="s3://b/x.npz")


def test_a_secret_in_a_url_is_never_printed(capsys):
    url = "s3://AKIA123:hunter2@bucket/run"
    flags = ["--mode=train", "--gin_file=digits.gin"]
    for flag in (f"--model_dir={url}", f"--gin.RunConfig.mirror='{url}'"):
        local = [] if "model_dir" in flag else ["--model_dir=run"]
        assert main.main([*flags, flag, *local]) == 2
        printed = capsys.readouterr()
        says(printed.err, "credentials URL")
        assert "hunter2" not in printed.out + printed.err
