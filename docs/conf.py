"""How Sphinx builds the manual: sphinx-build -W -b html docs docs/_build/html."""

import sys
import tomllib
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import generate  # noqa: E402  it stands beside this file

metadata = tomllib.loads((HERE.parent / "pyproject.toml").read_text())["project"]

project = "runner"
release = version = metadata["version"]
html_title = f"runner {release}"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_llms_txt"]
myst_enable_extensions = ["deflist"]
myst_heading_anchors = 3
exclude_patterns = ["_build", "_generated"]
html_theme = "furo"
html_static_path = ["static"]
html_css_files = ["manual.css"]
html_js_files = ["manual.js"]
html_show_sphinx = False
html_show_copyright = False
autodoc_typehints = "none"
llms_txt_summary = metadata["description"]

if repository := metadata.get("urls", {}).get("Repository"):
    html_theme_options = {
        "source_repository": repository,
        "source_branch": "main",
        "source_directory": "docs/",
    }

generate.write(HERE / "_generated")
