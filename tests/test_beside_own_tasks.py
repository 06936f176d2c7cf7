"""The runner, installed, in a repository that has a `tasks` of its own."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest
from wording import says

ROOT = Path(__file__).parents[1]
ENVIRONMENT = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}

# As in an experiment, and as in a stored config.gin.
GIN = """
from tasks import image_classification
from tasks import mine
import tasks.images.image_data
include 'digits.gin'
"""
MINE = "from tasks.images import image_data\n\nOWN = image_data.ImageData\n"

# By name, the files of a repository, and what goes wrong in it.
REPOSITORIES = {
    "regular": {"tasks/__init__.py": "", "tasks/mine.py": MINE},
    "namespace": {"tasks/mine.py": MINE},
    "own_images": {
        "tasks/__init__.py": "from tasks import image_classification\n",
        "tasks/images.py": "from . import colours\nfrom tasks.images import image_data\n",
        "tasks/colours.py": "",
        "tasks/mine.py": MINE + "from tasks import images\nassert images.colours\n",
    },
    "own_image_package": {
        "tasks/mine.py": MINE + "from tasks.images import colours\n",
        "tasks/images/__init__.py": "",
        "tasks/images/colours.py": "",
    },
    "own_image_folder": {
        "tasks/mine.py": MINE + "from tasks.images import colours\n",
        "tasks/images/colours.py": "",
    },
    "one_file": {"tasks.py": "import sys\nsys.modules['tasks.mine'] = sys.modules['tasks']\n"},
    "same_module": {"tasks/image_classification.py": "", "tasks/mine.py": ""},
    "same_module_below": {"tasks/images/image_data.py": "", "tasks/mine.py": ""},
}
HIDING = {
    "same_module": "tasks/image_classification.py",
    "same_module_below": "tasks/images/image_data.py",
}

FLAGS = ["--mode=train", "--gin_file=mine.gin", "--model_dir=run", "--print_config"]

# One process loads TensorFlow and forks for each repository: prints what each of them imports.
IN_EACH = """
import json, os, pathlib, sys
import runner, runner.config
from runner.errors import ConfigError

def imported(repository, inside):
    os.chdir(repository if inside else repository.parent)
    try:
        task = runner.load("mine.gin" if inside else repository / "mine.gin").task
        from tasks import mine
        return [sys.modules[type(task).__module__].__file__, mine.__file__]
    except ConfigError as error:
        return [str(error)]

for name, inside in json.loads(sys.argv[1]):
    if not os.fork():
        print(json.dumps([name, inside, imported(pathlib.Path(name).absolute(), inside)]))
        sys.stdout.flush()
        os._exit(0)
    os.wait()
"""


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """A copy of the project, since building leaves files in the folder it builds from."""
    folder = tmp_path_factory.mktemp("source")
    for name in ("runner", "tasks", "experiments"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    return folder


def pip(python, *arguments):
    flags = ["--quiet", "--no-deps", "--no-build-isolation", "--disable-pip-version-check"]
    command = [sys.executable, "-m", "pip", f"--python={python}", *arguments, *flags]
    subprocess.run(command, check=True, env=ENVIRONMENT)


def environment(folder):
    """A virtual environment that has the libraries of this one, but not its runner."""
    venv.create(folder, symlinks=True)
    site = folder / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"
    (site / "libraries.pth").write_text(sysconfig.get_path("purelib"))  # without its .pth files
    return folder / "bin" / "python"


@pytest.fixture(scope="module")
def wheel(source, tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    pip(environment(folder / "venv"), "wheel", str(source), f"--wheel-dir={folder}")
    return next(folder.glob("*.whl"))


def installed(folder, *what):
    """The Python of an environment with the runner."""
    made = environment(folder)
    # Another runner that the libraries may have beside them does not count, and stays as it is.
    pip(made, "install", "--ignore-installed", *what)
    return made


@pytest.fixture(scope="module")
def from_wheel(wheel, tmp_path_factory):
    return installed(tmp_path_factory.mktemp("wheel"), wheel)


@pytest.fixture(scope="module", params=["wheel", "editable"])
def python(request, source, tmp_path_factory):
    if request.param == "wheel":
        return request.getfixturevalue("from_wheel")
    return installed(tmp_path_factory.mktemp("editable"), "-e", source)


def test_the_wheel_holds_what_runs_and_nothing_else(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    ours = [name for name in names if ".dist-info/" not in name]
    wanted = {
        str(path.relative_to(ROOT))
        for path in [*ROOT.glob("runner/**/*.*"), *ROOT.glob("tasks/**/*.*")]
        if path.is_file() and "__pycache__" not in path.parts
    }
    gin = {str(path.relative_to(ROOT)) for path in ROOT.glob("experiments/*.gin")}
    assert set(ours) == wanted | gin


@pytest.fixture
def repositories(tmp_path):
    for name, files in REPOSITORIES.items():
        for file, content in {**files, "mine.gin": GIN}.items():
            path = tmp_path / name / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
    return tmp_path


def output(command, folder):
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, env=ENVIRONMENT)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_both_are_imported_from_inside_and_from_outside(python, repositories):
    cases = [[name, inside] for name in REPOSITORIES for inside in (True, False)]
    printed = output([python, "-c", IN_EACH, json.dumps(cases)], repositories)
    seen = [json.loads(line) for line in printed.splitlines()]
    assert [[name, inside] for name, inside, _ in seen] == cases
    for name, inside, imported in seen:
        own = repositories / name / HIDING.get(name, "tasks")
        if name in HIDING:
            (message,) = imported
            says(message, f"{own} runner's")
        else:
            ours, mine = imported
            assert not Path(ours).is_relative_to(repositories), (name, inside)
            assert Path(mine).is_relative_to(own) or Path(mine) == own.with_suffix(".py")


def test_both_are_imported_by_a_script(python, repositories):
    for name in ("regular", "namespace"):
        folder = repositories / name
        (folder / "tasks" / "mine.py").write_text("")
        (folder / "own.py").write_text(
            "import tasks, runner\nfrom tasks import mine\nfrom tasks.images import cifar_files\n"
        )
        output([python, "own.py"], folder)


def test_the_commands_find_ours_and_the_users(from_wheel, repositories):
    folder = repositories / "regular"
    shown = output([from_wheel.with_name("runner"), *FLAGS], folder)
    assert "label_smoothing: 0.1" in shown
    usage = output([from_wheel.with_name("runner-prepare-cifar"), "--help"], folder)
    assert usage.startswith("usage: runner-prepare-cifar")
