import ast
from pathlib import Path

import runner
from runner.core import layout

FILES = {
    value for name, value in vars(layout).items() if name.isupper() and str(value).count(".") == 1
}


def test_a_file_in_a_runs_folder_is_named_in_one_place():
    folder = Path(runner.__file__).parent
    others = [path for path in folder.rglob("*.py") if path != Path(layout.__file__)]
    assert len(FILES) > 8
    for path in others:
        spelt = {
            node.value for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.Constant) and isinstance(node.value, str)
        }  # fmt: skip
        assert not spelt & FILES, path
