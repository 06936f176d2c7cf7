"""Lazy imports change when modules of other libraries are loaded, and nothing else."""

import json
import os
import re
import subprocess
import sys

import pytest

from runner.internals import lazy_imports

RARELY_USED = {
    "keras.src.layers",
    "matplotlib",
    "pandas.core",
    "requests.models",
    "scipy.ndimage",
    "scipy.stats",
    "sklearn",
    "tensorflow_datasets.core",
}
BEGIN = "from runner.internals import lazy_imports; lazy_imports.begin()"
LIBRARIES = "import tensorflow as tf; import official.core; import keras"

TRAIN_STEPS = "--gin.TrainerConfig.train_steps=2"

IMPORTED = """
import json, sys
imported = list(sys.modules)
"""
IN_THREADS = """
import threading
gate, found = threading.Barrier(8), []
def look():
    gate.wait()
    found.append(keras.wrappers.SKLearnClassifier)
threads = [threading.Thread(target=look) for _ in range(8)]
[each.start() for each in threads]
[each.join() for each in threads]
assert len(found) == 8 and len(set(found)) == 1, found
"""
USED = """
import importlib, inspect, pandas
assert {'DataFrame', 'read_csv'} <= set(dir(pandas))
def described(module):
    try:
        module.no_such_name
    except AttributeError as error:
        missing = str(error)
    names = sorted(set(vars(module)) - {'__builtins__', '__warningregistry__'})
    return names, missing, module.__file__, repr(module), type(module.__spec__.loader).__name__
from sklearn.base import BaseEstimator
assert issubclass(keras.wrappers.SKLearnClassifier, BaseEstimator)
assert tf.keras.visualization.plot_image_gallery is keras.visualization.plot_image_gallery
assert tf.compat.v1.compat.v1.Session is tf.compat.v1.Session
assert tf.keras.layers.Dense is keras.layers.Dense
assert isinstance(tf.optimizers.SGD(), keras.optimizers.Optimizer)
assert inspect.getsource(keras.visualization.plot_image_gallery).startswith('@')
print(json.dumps([imported, {name: described(importlib.import_module(name)) for name in LAZY}]))
"""
COUNTED = """
import importlib, importlib.machinery, json
ran, load = [], importlib.machinery.SourceFileLoader.exec_module
def counting(self, module):
    ran.append(module.__name__)
    load(self, module)
importlib.machinery.SourceFileLoader.exec_module = counting
"""
PARTS = """
for name in PARTS:
    module = importlib.import_module(name)
    assert module.__spec__.name == name and importlib.import_module(name) is module
print(json.dumps(sorted({name for name in ran if ran.count(name) > 1 and name[:3] != "cv2"})))
"""
CROSSING = """
import faulthandler, importlib, threading
faulthandler.dump_traceback_later(120, exit=True)
lazy_imports.LAZY |= {"package"}
import package
started = package.__spec__.started = threading.Event()
def part():
    started.wait()
    found.append(importlib.import_module("package.part").VALUE)
def use():
    found.append(package.VALUE)
found, threads = [], [threading.Thread(target=each) for each in (part, use)]
[each.start() for each in threads]
[each.join() for each in threads]
assert found in ([1, 2], [2, 1])
print("[]")
"""


def run(*program):
    names = f"LAZY = {sorted(lazy_imports.LAZY)!r}"
    command = [sys.executable, "-c", "\n".join([names, *program])]
    environment = {k: v for k, v in os.environ.items() if k != "TF_USE_LEGACY_KERAS"}
    process = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert not process.returncode, process.stderr[-3000:]
    return json.loads(process.stdout)


@pytest.fixture(scope="module")
def eager():
    """What a program sees that uses the libraries without the runner."""
    return run(LIBRARIES, IMPORTED, IN_THREADS, USED)


def test_modules_are_loaded_when_first_used_and_are_then_the_same(eager):
    imported, modules = run(BEGIN, LIBRARIES, IMPORTED, IN_THREADS, USED)
    assert set(eager[0]) >= RARELY_USED
    assert not RARELY_USED & set(imported)
    assert modules == eager[1]


def test_libraries_that_were_imported_before_stay_as_they_are(eager):
    assert run(LIBRARIES, BEGIN, IMPORTED, IN_THREADS, USED)[1] == eager[1]


@pytest.mark.parametrize("first", ["", LIBRARIES])
def test_a_part_of_a_lazy_package_is_loaded_once_although_the_package_imports_it_too(first):
    parts = ["keras.src.optimizers.optimizer", "pandas.core.frame", "tensorflow_datasets.core"]
    assert run(BEGIN, COUNTED, first, f"PARTS = {parts}", PARTS) == []


def test_a_package_and_its_part_are_imported_at_the_same_time_in_two_threads(tmp_path):
    """The package waits for the part, and the part for the package."""
    package = tmp_path / "package"
    package.mkdir()
    (package / "part.py").write_text("VALUE = 1")
    lines = ["import time", "__spec__.started.set()", "time.sleep(0.5)", "from package import part"]
    (package / "__init__.py").write_text("\n".join([*lines, "VALUE = 2"]))
    run(f"import sys; sys.path.insert(0, {str(tmp_path)!r})", BEGIN, CROSSING)


def test_a_command_that_trains_loads_none_of_them(tmp_path):
    flags = ["--mode=train", "--gin_file=digits.gin", "--model_dir", tmp_path, TRAIN_STEPS]
    process = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "runner", *flags],
        capture_output=True,
        text=True,
    )
    assert not process.returncode, process.stderr[-3000:]
    imported = set(re.findall(r"^import time: .* ([\w.]+)$", process.stderr, re.MULTILINE))
    assert "official.core.base_task" in imported
    assert not RARELY_USED & imported
