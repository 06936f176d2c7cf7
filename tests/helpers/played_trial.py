"""A trial's process that trains nothing: it claims its folder, counts steps, saves every tenth.

With PLAYED_UNTIL, the name of a file in the study's folder, it does not end before that is there.

It writes what the scheduling of a study goes by, with the code of real runs, and notes each start
and each end in `played.jsonl` of the study's folder.

    python played_trial.py --mode=train_and_eval ... --model_dir=FOLDER
"""

import json
import os
import sys
import time
from pathlib import Path

from runner.core import files, layout, signals
from runner.run_directory import claim, status

STEPS = 40
SAVED = "saved.txt"
PLAYED = "played.jsonl"


def main():
    folder = Path(sys.argv[-1].removeprefix("--model_dir="))
    seconds = float(os.environ.get("PLAYED_SECONDS", "0.2")) / STEPS
    until = folder.parents[1] / os.environ.get("PLAYED_UNTIL", "")
    signals.end_with_parent()
    with signals.served() as stop, claim.claimed(folder, note=print):
        step = int((folder / SAVED).read_text()) if (folder / SAVED).exists() else 0
        with status.StatusFile(folder) as said, stop.deferred():
            note(folder, "start", step)
            while step < STEPS and not stop.requested:
                time.sleep(seconds)
                if step == STEPS - 1 and not until.exists():
                    continue
                step += 1
                said.beat(step)
                if step % 10 == 0 or stop.requested:
                    files.write_text(folder / SAVED, str(step))
            if step < STEPS:
                note(folder, "stop", step)
                said.write("preempted", step, "stopped by SIGTERM")
                return 143
            row = {"kind": "evaluation", "step": step, "metrics": {"accuracy": 0.5}}
            row |= {"seconds": 0.0, "time": time.time(), "checkpoint": f"ckpt-{step}"}
            files.append_json_line(folder / layout.HISTORY, row)
            note(folder, "end", step)
            said.write("done", step)
    return 0


def note(folder, what, step):
    """One line in one write, so that lines of several processes do not mix."""
    row = {"trial": folder.name, "what": what, "step": step, "pid": os.getpid()}
    row["node"] = os.environ.get("PLAYED_NODE", "")
    line = json.dumps(row) + "\n"
    descriptor = os.open(folder.parents[1] / PLAYED, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    os.write(descriptor, line.encode())
    os.close(descriptor)


if __name__ == "__main__":
    sys.exit(main())
