"""Renders pages as single files that include style and script and need no network.

All values on a page are escaped. No TensorFlow.
"""

import functools
import json
import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2
import markupsafe

from runner.core import installation
from runner.inspection import timeline
from runner.run_directory import goodput
from runner.storage import display_names

_TEMPLATES = Path(__file__).with_name("templates")

# The colour of each part of a run's time.
_COLORS = {
    "training": "var(--c2)",
    "input_wait": "var(--c4)",
    "evaluation": "var(--c0)",
    "checkpoint": "var(--c5)",
    "start": "var(--c7)",
    "compile": "var(--c3)",
    "again": "var(--c6)",
    "rollback": "var(--c1)",
}


def render(template: str, data: Mapping[str, Any], *, refresh: int = 0, **values: Any) -> str:
    """Returns a page.

    Args:
        template: The name of a file in templates/.
        data: The data that the script draws. NaN and infinities are not allowed in it.
        refresh: Seconds after which a browser reloads it, or 0 for never.
        values: The variables of the template.
    """
    values["problems"] = [display_names.in_text(line) for line in values.get("problems", ())]
    made: str = (
        _environment()
        .get_template(template)
        .render(
            css=_text("page.css"),
            script=_text("page.js"),
            data=_embedded(data),
            refresh=refresh,
            written=timeline.stamp(time.time()),
            version=installation.version(),
            **values,
        )
    )
    return made.encode(errors="backslashreplace").decode()  # lone surrogates cannot be written


def time_rows(ledger: goodput.Ledger) -> dict[str, Any]:
    """Returns the time breakdown for the template."""
    rows = [
        {
            "name": name,
            "time": shown,
            "share": share,
            "width": share.removesuffix("%"),
            "color": _COLORS.get(key, "var(--faint)"),
        }
        for key, (name, shown, share) in zip(
            goodput.shown_names(ledger), goodput.shown_parts(ledger), strict=True
        )
    ]
    return {"sentence": goodput.sentence(ledger), "rows": rows}


@functools.cache
def _environment() -> jinja2.Environment:
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
    )
    made.filters["breakable"] = breakable
    return made


def breakable(value: Any) -> markupsafe.Markup:
    """Allows line breaks after `.`, `/`, `_` or `=` in a name, but not in a number."""
    escaped = str(markupsafe.escape(value))
    return markupsafe.Markup(re.sub(r"(?<=\w)([./_=]+)(?=[a-zA-Z@%])", r"\1<wbr>", escaped))


def _text(name: str) -> markupsafe.Markup:
    return markupsafe.Markup((_TEMPLATES / name).read_text(encoding="utf-8"))


def _embedded(data: Mapping[str, Any]) -> markupsafe.Markup:
    """Returns JSON that cannot end its script element."""
    said = json.dumps(data, separators=(",", ":"), allow_nan=False)
    for letter in "<>&":
        said = said.replace(letter, f"\\u{ord(letter):04x}")
    return markupsafe.Markup(said)


def flat(value: Any, path: str = "") -> Sequence[tuple[str, str]]:
    """Returns the values of nested mappings, by path."""
    if isinstance(value, Mapping) and value:
        return [row for name, each in value.items() for row in flat(each, f"{path}.{name}")]
    if isinstance(value, list) and any(isinstance(each, Mapping) for each in value):
        return [row for n, each in enumerate(value) for row in flat(each, f"{path}[{n}]")]
    said = json.dumps(value, default=str) if isinstance(value, dict | list | bool) else str(value)
    return [(path.removeprefix("."), "null" if value is None else said)]
