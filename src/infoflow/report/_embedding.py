"""Embed scripts, styles, numbers and figures in a page that loads nothing; check which pages infoflow may replace."""

import base64
import hashlib
import json
import math
import re
import zlib
from collections.abc import Callable
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from infoflow._subjects import parts
from infoflow.foundation import UserError

from ._theme import DARK, LIGHT, NUM_SLOTS, css_variables


def embedded(value: Any) -> Markup:
    """JSON that is safe inside a script element: no `<`, `>` or `&` remains, NaN becomes null."""
    text = json.dumps(leaves_changed(value, _finite), ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)


def leaves_changed(value: Any, change: Callable[[Any, str], Any], name: str = "") -> Any:
    """Apply `change` to every leaf of a JSON-like value and its name: `corpus.name`, or `tune[].train` in a list."""
    if isinstance(value, dict):
        return {key: leaves_changed(inner, change, f"{name}.{key}".removeprefix(".")) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [leaves_changed(inner, change, f"{name}[]") for inner in value]
    return change(value, name)


def _finite(value: Any, name: str) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def policy(scripts: list[str]) -> str:
    """A content security policy that forbids network access and all scripts except the page's own."""
    hashes = " ".join(
        f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'" for script in scripts
    )
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'"
    )


@cache
def _folders() -> list[Path]:
    """The folders `templates` of the report and the subjects."""
    return [Path(module.__path__[0], "templates") for module in (import_module("infoflow.report"), *parts(""))]


def environment() -> Environment:
    """All templates, with automatic escaping."""
    made = Environment(
        loader=FileSystemLoader(_folders()),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters["embedded"] = embedded
    return made


@cache
def asset(name: str) -> str:
    """A file from one of the folders `templates`; no two files have the same name."""
    return next(path for folder in _folders() if (path := folder / name).exists()).read_text(encoding="utf-8")


def style(*names: str, with_subjects: bool = False) -> str:
    """Style sheets with the light and dark colours filled in; a report also has each subject's `report.css`."""
    own = [path for folder in _folders() if with_subjects and (path := folder / "report.css").exists()]
    text = "\n".join([*map(asset, names), *(path.read_text(encoding="utf-8") for path in own)])
    slots = " ".join(f".s{slot} {{ --s: var(--series-{slot}); }}" for slot in range(NUM_SLOTS))
    return (
        text.replace("/*slots*/", slots)
        .replace("/*light*/", css_variables(LIGHT))
        .replace("/*dark*/", css_variables(DARK))
    )


def closed(script: str) -> str:
    """Escape a script so that no text in it closes its element early."""
    return script.replace("</script", "<\\/script").replace("<!--", "<\\!--")


_MISSING = 65535


def packed(array: np.ndarray) -> str:
    """The array's bytes in base64: little-endian, deflated."""
    data = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<")).tobytes()
    return base64.b64encode(zlib.compress(data, 9)).decode()


def packed_json(value: Any) -> str:
    """The value as deflated JSON in base64, a twelfth of a chart specification's size; NaN becomes null."""
    return packed_text(embedded(value))


def packed_text(text: str) -> str:
    """The text, deflated, in base64."""
    return base64.b64encode(zlib.compress(text.encode(), 9)).decode()


def in_steps(values: np.ndarray, low: float, high: float) -> str:
    """Quantise numbers between `low` and `high` to 65,534 steps of two bytes, in base64; NaN stays missing.

    A step is finer than any digit on the page, and the result takes a quarter of the space of decimals.

    >>> in_steps(np.array([0.0, 1.0, np.nan]), 0.0, 1.0)
    'AAD+////'
    """
    values = np.asarray(values, dtype=np.float64)
    known = np.isfinite(values)
    steps = np.full(len(values), _MISSING)
    width = (high - low) or 1.0
    steps[known] = np.clip(np.rint((values[known] - low) / width * (_MISSING - 1)), 0, _MISSING - 1)
    return base64.b64encode(steps.astype("<u2").tobytes()).decode()


# Compression of figures on large pages: deflated, and unpacked by the page's script on opening.
#
# A report on many models repeats head tables, lines of text and pictures: its largest figures shrink to a tenth.
# Their headings stay, so that the table of contents and links work; without scripts, a note takes the figures' place.

_FIGURE = re.compile(r"(<figure[^>]*>\s*<h3.*?</h3>)(.*?)(</figure>)", re.DOTALL)
_MOST = 4_000_000  # pages up to this number of characters stay as they are
_SMALLEST = 50_000  # minimum number of characters of a figure worth packing
_NOTE = "This figure shows many models, so it is stored compressed and needs JavaScript."


def pack_figures(page: str, most: int = _MOST, smallest: int = _SMALLEST) -> str:
    """Pack the largest figures until the page has at most `most` characters; figures below `smallest` stay."""
    if len(page) <= most:
        return page
    figures = sorted(_FIGURE.finditer(page), key=lambda found: -len(found[2]))
    packed, length = {}, len(page)
    for figure in figures:
        if length <= most or len(figure[2]) < smallest:
            break
        script = f'<script type="text/plain">{packed_text(figure[2])}</script>'
        small = f'<div class="packed-figure"><p class="small">{_NOTE}</p>{script}</div>'
        packed[figure.start()] = small
        length += len(small) - len(figure[2])
    return _FIGURE.sub(lambda figure: f"{figure[1]}{packed.get(figure.start(), figure[2])}{figure[3]}", page)


_MARK = b'<meta name="generator" content="infoflow '
_HEAD = 4096  # bytes: the mark is among the first elements of every page


def check_replaceable(path: Path) -> None:
    """Check that an existing file is an earlier page of infoflow."""
    if path.is_dir():
        raise UserError(f"{path} must be the HTML file to write. It is a folder.")
    if not path.exists():
        return
    if not path.is_file():
        raise UserError(f"{path} must be the HTML file to write. It is a device or a pipe.")
    with path.open("rb") as file:
        head = file.read(_HEAD)
    if head.strip(b"\0") and _MARK not in head:
        raise UserError(f"{path} was not written by infoflow, and would be replaced. Move it, or choose another --out.")
