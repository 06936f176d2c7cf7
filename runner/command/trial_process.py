"""Runs a trial of `runner.study` in a separate process: `python -m runner.command.trial_process`.

Its arguments are the file with the pickled `studying.Trials`, the number of threads per op (0 for
TensorFlow's default), and the flags of the trial.
"""

import os
import sys
from pathlib import Path

from runner.core import signals


def main(arguments: list[str]) -> int:
    """Runs the trial and returns its exit code.

    Args:
        arguments: The file, the threads and the flags. The last flag is `--model_dir`.
    """
    import cloudpickle

    from runner.command import studying
    from runner.devices import strategy

    file, threads, *flags = arguments
    folder = Path(flags[-1].partition("=")[2])

    def train() -> dict[str, object]:
        strategy.set_threads(intra_op=int(threads), inter_op=0)  # before the model is built
        trials: studying.Trials = cloudpickle.loads(Path(file).read_bytes())
        return trials.run(flags)

    with signals.served():
        return studying.exit_code(train, folder)


if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    signals.end_with_parent()
    sys.exit(main(sys.argv[1:]))
