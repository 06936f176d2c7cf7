"""Tab completes flags, modes, experiments, sections, fields and values."""

import fcntl
import os
import pty
import re
import select
import shutil
import struct
import subprocess
import sys
import termios
import time

import pytest
from wording import says

from runner import main

IN_BASH = f"""
runner() {{ '{sys.executable}' -m runner "$@"; }}
eval "$(runner --completion=bash)"
bind 'set bell-style none'; bind 'set enable-bracketed-paste off'; PS1='> '; echo rea''dy
"""


def completed(capsys, line):
    with pytest.raises(SystemExit) as end:
        main.main(["--complete", line])
    assert end.value.code == 0
    return capsys.readouterr().out.split()


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("runner --mod", ["--mode=", "--model_dir="]),
        ("runner --mode=train_", ["--mode=train_and_eval", "--mode=train_and_post_eval"]),
        ("runner --dry", ["--dry_run"]),
        ("runner --to=", ["--to=csv", "--to=mlflow", "--to=wandb"]),
        (
            "runner --print_config=",
            ["--print_config=all", "--print_config=changed", "--print_config=reads"],
        ),
        ("runner --gin_file=digits_", ["--gin_file=digits_cnn.gin"]),
        ("runner --gin_file=min", ["--gin_file=mine.gin", "--gin_file=mine/"]),
        ("runner --gin_file=mine/", ["--gin_file=mine/too.gin"]),
        ("runner --gin.EarlySt", ["--gin.EarlyStoppingConfig."]),
        ("runner --gin.RunConfig.se", ["--gin.RunConfig.seed="]),
        ("runner --gin.RunConfig.deter", ["--gin.RunConfig.deterministic="]),
        (
            "runner --gin.RunConfig.deterministic=",
            ["--gin.RunConfig.deterministic=False", "--gin.RunConfig.deterministic=True"],
        ),
        ("runner --gin.OptimizerConfig.type=lam", ["--gin.OptimizerConfig.type=lamb"]),
        ("runner --gin_params=RunConfig.see", ["--gin_params=RunConfig.seed="]),
        ("runner --gin_file=digits.gin --gin.val", ["--gin.validation/"]),
        ("runner --gin_file=digits.gin --gin.train/ImageD", ["--gin.train/ImageData."]),
        ("runner --gin_file=mine.gin --gin.Mine", ["--gin.MineConfig."]),
        ("runner --gin_file=mine.gin --gin.MineConfig.own", ["--gin.MineConfig.own_field="]),
        (
            "runner --gin_file=mine.gin --params_override=task.own",
            ["--params_override=task.own_field="],
        ),
        ("runner --gin_file=no.gin --gin.RunConfig.se", ["--gin.RunConfig.seed="]),
        ("runner --params_override=trainer.train_st", ["--params_override=trainer.train_steps="]),
        ("runner --params_override=tra", ["--params_override=trainer."]),
        (
            "runner --params_override=run.seed=1,run.plat",
            ["--params_override=run.seed=1,run.plateau."],
        ),
        ("runner --help=EarlyS", ["--help=EarlyStoppingConfig"]),
        ("runner --help=digits_c", ["--help=digits_cnn.gin"]),
        ("runner --help=RunConfig.see", ["--help=RunConfig.seed"]),
        ("runner --config_file=mine/", ["--config_file=mine/too.gin"]),
        ("runner --mode=compare mi", ["mine/"]),
        ("runner --mode=ensemble --runs=mine/t", ["--runs=mine/too.gin"]),
        ("runner --nothing_of_the_kind", []),
        ("runner --gin.Nothing.x", []),
        ("runner --gin_file=nowhere/", []),
    ],
)
def test_the_word_under_the_cursor_is_completed(capsys, tmp_path, line, found):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "too.gin").write_text("")
    (tmp_path / "mine.gin").write_text("import mine_task\nExperiment.task = @MineConfig()\n")
    fields = "(cfg.TaskConfig):\n    own_field: int = 1\n"
    (tmp_path / "mine_task.py").write_text(
        f"import dataclasses\n@dataclasses.dataclass\nclass MineConfig{fields}"
    )
    assert completed(capsys, line) == found


def test_all_flags_are_offered(capsys):
    found = completed(capsys, "runner ")
    assert {"--mode=", "--gin.", "--help", "--dry_run"} <= set(found)


class Terminal:
    """A shell on a terminal of its own."""

    def __init__(self, command):
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 300, 0, 0))
        self._process = subprocess.Popen(
            command, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
            env={**os.environ, "TERM": "dumb", "INPUTRC": "/dev/null"},
        )  # fmt: skip
        os.close(theirs)

    def type(self, text, *, until):
        """Types; returns what is shown up to the first match."""
        os.write(self._ours, text.encode())
        shown, end = "", time.monotonic() + 300
        while not re.search(until, shown):
            assert time.monotonic() < end, shown
            if select.select([self._ours], [], [], 1)[0]:
                shown += os.read(self._ours, 4096).decode()
        return shown

    def close(self):
        self._process.kill()
        self._process.wait()
        os.close(self._ours)


def test_names_that_a_shell_would_act_on_are_not_offered(capsys, tmp_path):
    names = [
        "good",
        "lr=0.1,seed=0",
        "a;harm",
        "$(harm)",
        "`harm`",
        "a b",
        "a\nb",
        "*",
        "a'b",
        "a\\b",
    ]
    for name in names:
        (tmp_path / name).mkdir()
    offered = completed(capsys, "runner --model_dir=")
    assert offered == ["--model_dir=good/", "--model_dir=lr=0.1,seed=0/"]


def test_tab_completes_in_bash(tmp_path):
    (tmp_path / "rc").write_text(IN_BASH)
    bash = Terminal(["bash", "--noprofile", "--rcfile", str(tmp_path / "rc"), "-i"])
    try:
        bash.type("", until="ready")
        bash.type("echo; runner --mode=verif\t", until="--mode=verify_resume ")
        bash.type("--gin.OptimizerConf\t", until=r"OptimizerConfig\.")
        bash.type("ty\t", until="type=")
        bash.type("lam\t", until="lamb ")
        bash.type("--params_override=run.seed=1,run.plat\t", until=r"plateau\.")
        bash.type("fac\t", until="factor=")
    finally:
        bash.close()


@pytest.mark.skipif(not shutil.which("zsh"), reason="zsh is not installed")
def test_tab_completes_in_zsh(tmp_path):
    (tmp_path / ".zshrc").write_text(IN_BASH.replace("=bash", "=zsh").split("bind")[0])
    zsh = Terminal(["env", f"ZDOTDIR={tmp_path}", "zsh", "-i"])
    try:
        zsh.type("echo rea''dy\n", until="\nready")
        zsh.type("runner --mode=verif\t", until="y_resume")
        zsh.type("--gin.OptimizerConf\t", until=r"ig\.")
        zsh.type("ty\t", until="pe=")
    finally:
        zsh.close()


def test_an_unknown_shell_is_refused(capsys):
    assert main.main(["--completion=bas"]) == 2
    says(capsys.readouterr().err, "--completion=bas shell bash")
