"""The manual's task of a user's own, as the files it is made of: `line.py` and `line.gin`."""

import re
from pathlib import Path

PAGE = (Path(__file__).parents[2] / "docs" / "getting_started.md").read_text()
FILES = dict(re.findall(r"<!-- example: (\S+) -->\n```\w*\n(.*?)```", PAGE, re.DOTALL))
