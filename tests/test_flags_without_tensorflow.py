"""Mistakes in flags are answered before TensorFlow is loaded."""

import json
import subprocess
import sys

DIGITS = ["--gin_file=digits.gin", "--model_dir=run"]
CASES = [  # flags, and a word of the answer
    (["--mode=study", *DIGITS], "--vary"),
    (["--mode=study", *DIGITS, "--seeds=abc"], "--seeds=abc"),
    (["--mode=study", *DIGITS, "--vary=rate"], "--vary=rate"),
    (["--mode=study", *DIGITS, "--seeds=2", "--trials=x"], "--trials=x"),
    (["--mode=train", *DIGITS, "--task_index=x"], "--task_index=x"),
    (["--mode=train", "--gin_file=digit.gin", "--model_dir=run"], "digits.gin"),
    (["--mode=train", *DIGITS, "--gin.TrainerConfig.train_steps"], "train_steps"),
    (["--mode=train", *DIGITS[:1], "--model_dir=s4://b/run"], "s3://"),
    (["--mode=train", *DIGITS, "--profile_steps=1:2", "--dry_run"], "--profile_steps"),
    (["--mode=predict", *DIGITS, "--output=a.txt"], ".parquet"),
    (["--mode=find_rate", *DIGITS[:1], "--output=a.txt"], ".png"),
    (["--mode=find_batch", *DIGITS[:1], "--output=no/a.json"], "no/a.json"),
    (["--mode=train", *DIGITS, "--epochs=3"], "EpochsConfig"),
]
CODE = """
import json, sys
from runner import main

for flags, word in json.loads(sys.argv[1]):
    assert main.main(flags) == 2, flags
    print(flush=True, end="\\n", file=sys.stderr)
    assert "tensorflow" not in sys.modules, flags
"""


def test_a_mistake_in_flags_does_not_wait_for_tensorflow():
    done = subprocess.run(
        [sys.executable, "-c", CODE, json.dumps(CASES)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    answers = done.stderr.strip("\n").split("\n\n")
    assert len(answers) == len(CASES)
    for answer, (_, word) in zip(answers, CASES, strict=True):
        assert word in answer
