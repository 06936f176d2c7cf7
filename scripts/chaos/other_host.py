"""Runs the runner as if on another host, on a shared file system without locks.

    python -m scripts.chaos.other_host --mode=train --gin_file=digits.gin --model_dir=runs/x

Only the heartbeat in claim.json then shows whether another process is alive. This script waits for
it for a shorter time than the runner does.
"""

import errno
import fcntl
import functools
import os
import sys
from typing import NoReturn

from runner import main
from runner.core import heartbeat
from runner.run_directory import claim, claim_file

SECONDS = 0.5  # between heartbeats
PATIENCE = 3.0


def refuse(*_: object) -> NoReturn:
    """Fails as a file system without locks does."""
    raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))


fcntl.flock = refuse
claim_file._boot = functools.lru_cache(lambda: f"kernel {os.getpid()}")
heartbeat.beating = functools.partial(heartbeat.beating, seconds=SECONDS)
claim._WATCH_SECONDS = PATIENCE
claim._SETTLE_SECONDS = SECONDS
claim.claimed = functools.partial(claim.claimed, patience=PATIENCE)

if __name__ == "__main__":
    sys.argv[0] = "runner"
    main.console()
