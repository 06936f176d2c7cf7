"""Runs Model Garden's experiments and training programs with its trainer and with this runner.

python -m scripts.model_garden experiments --folder=/tmp/garden
python -m scripts.model_garden programs --folder=/tmp/programs \
    --write=docs/developers/model_garden.md
"""

import json
import os
from pathlib import Path

from scripts import processes

END = "<!-- until here -->"


def main() -> None:
    """Runs the subcommand and writes its table."""
    parser = processes.parser("model_garden", __doc__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="SUBCOMMAND")
    for name, summary in {
        "experiments": "run every registered experiment (an hour)",
        "programs": "run the training programs of official.vision and official.nlp",
    }.items():
        command = commands.add_parser(name, help=summary, allow_abbrev=False)
        command.add_argument("--folder", type=Path, required=True, help="for the data and the runs")
        command.add_argument("--write", type=Path, help="the page with the table to replace")
    commands.choices["experiments"].add_argument(
        "--only", default="*", help="a pattern of names, such as bert/*"
    )
    flags = parser.parse_args()
    processes.use_this_checkout()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # silences TensorFlow's startup messages
    flags.folder.mkdir(parents=True, exist_ok=True)
    folder = flags.folder.absolute()
    lines = _programs(folder) if flags.command == "programs" else _experiments(folder, flags.only)
    if flags.write:
        mark = f"<!-- scripts.model_garden {flags.command} writes what follows -->"
        write_between(flags.write, mark, lines)


def _experiments(folder: Path, pattern: str) -> list[str]:
    from scripts.model_garden import experiments

    _check_that_forks_work()
    return experiments.experiments(folder, pattern)


def _programs(folder: Path) -> list[str]:
    from scripts.model_garden import programs

    _check_that_forks_work()
    results = programs.run_programs(folder)
    (folder / "programs.json").write_text(json.dumps(results))
    lines = programs.tables(results)
    print("\n".join(lines))
    return lines


def _check_that_forks_work() -> None:
    from tensorflow.python.eager import context

    if context.context()._initialized:
        raise SystemExit("TensorFlow has started in this process, so its forks would hang")


def write_between(path: Path, mark: str, lines: list[str]) -> None:
    """Replaces the lines between a mark and the next mark, or the end, of a file."""
    head, _, tail = path.read_text().partition(f"{mark}\n")
    _, end, rest = tail.partition(END)
    text = "\n".join([f"{head}{mark}", "", *lines, ""])
    path.write_text(text + (f"\n{end}{rest}" if end else ""))


if __name__ == "__main__":
    main()
