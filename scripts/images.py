"""Creates the images of the README and the manual from real runs: a terminal, and report pages.

    python scripts/images.py

The script needs the extra `docs` and Chromium. It writes the images to docs/images/.
"""

import io
import os
import pty
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pyte
from rich.console import Console
from rich.text import Text

IMAGES = Path(__file__).parents[1] / "docs" / "images"
COLUMNS, LINES = 104, 26
TRAIN = "runner --mode=train_and_eval --gin_file=digits.gin --model_dir=runs/digits"
TUTORIALS = {
    "keras_model": "runs/mine/report.html",
    "csv_and_images": "runs/shapes/report.html",
    "own_task": "runs/line/report.html",
    "first_sweep": "studies/rate/plots/accuracy-box.png",
}
"""Tutorials, each with the result that its image shows."""
SHOWN_AT = 60  # per cent of the run
BROWSER = ("chromium", "chromium-browser", "google-chrome")


def main() -> None:
    """Writes all images."""
    IMAGES.mkdir(exist_ok=True)
    os.environ["PYTHONPATH"] = str(IMAGES.parents[1])
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        terminal(TRAIN, IMAGES / "terminal.svg")
        subprocess.run([*command("runner --mode=report --model_dir=runs/digits")], check=True)
        (page,) = Path("runs/digits").glob("*.html")
        screenshot(page, IMAGES / "report.png")
    for name, result in TUTORIALS.items():
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            follow(IMAGES.parent / "tutorials" / f"{name}.md")
            image = IMAGES / f"{name}.png"
            screenshot(Path(result), image) if result.endswith("html") else shutil.copy(
                result, image
            )


def follow(tutorial: Path) -> None:
    """Writes a tutorial's example files to the working directory, and runs its commands."""
    text = tutorial.read_text(encoding="utf-8")
    for name, file in re.findall(r"<!-- example: (\S+) -->\n```\w*\n(.*?)```", text, re.DOTALL):
        Path(name).write_text(file, encoding="utf-8")
    for block in re.findall(r"(?<!-->\n)```console\n(.*?)```", text, re.DOTALL):
        for line in re.findall(r"^\$ (.*)$", re.sub(r" \\\n +", " ", block), re.MULTILINE):
            program, *arguments = shlex.split(line)
            module = ["-m", program] if program == "runner" else []
            subprocess.run([sys.executable, *module, *arguments], check=True)


def terminal(text: str, image: Path) -> None:
    """Runs a command in a terminal, and draws the terminal in the middle of the run."""
    screen = pyte.Screen(COLUMNS, LINES)
    stream = pyte.ByteStream(screen)
    shown = ""
    child, master = pty.fork()
    if not child:
        os.environ.update(TERM="xterm-256color", COLUMNS=str(COLUMNS), LINES=str(LINES))
        os.execvp(sys.executable, command(text))
    while part := read(master):
        stream.feed(part)
        lines = [line.rstrip() for line in screen.display]
        done = re.search(r"(\d+)%", "\n".join(lines))
        if done and int(done[1]) >= SHOWN_AT and not shown:
            shown = "\n".join(lines).strip()
    os.waitpid(child, 0)
    console = Console(record=True, width=COLUMNS, file=io.StringIO())
    console.print(Text(f"$ {text}\n{shown}"))
    drawn = re.sub(r"@font-face \{.*?\}\s*", "", console.export_svg(title=""), flags=re.DOTALL)
    image.write_text(drawn, encoding="utf-8")  # without fonts from the network


def command(text: str) -> list[str]:
    """Returns the command, run by this Python."""
    return [sys.executable, "-m", *text.split()]


def read(master: int) -> bytes:
    """Returns the terminal's next output, or nothing at the end."""
    try:
        return os.read(master, 1 << 16)
    except OSError:  # on Linux, the other end is closed
        return b""


def screenshot(page: Path, image: Path) -> None:
    """Draws the top of a page in a browser that is 1,200 pixels wide."""
    browser = next(path for name in BROWSER if (path := shutil.which(name)))
    options = ["--headless=new", "--no-sandbox", "--hide-scrollbars", "--window-size=1200,900"]
    target = f"--screenshot={image}"
    subprocess.run([browser, *options, target, page.absolute().as_uri()], check=True)


if __name__ == "__main__":
    main()
