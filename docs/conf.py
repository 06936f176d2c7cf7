"""How Sphinx builds the manual: sphinx-build -W -b html docs docs/_build/html."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import generate  # noqa: E402  it stands beside this file

project = "runner"
html_title = "runner"
extensions = ["myst_parser"]
myst_enable_extensions = ["deflist"]
myst_heading_anchors = 3
exclude_patterns = ["_build", "_generated"]
html_theme = "furo"
html_show_sphinx = False
html_show_copyright = False

generate.write(HERE / "_generated")
