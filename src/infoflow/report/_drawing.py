"""Charts as files and static pictures, drawn by Vega-Lite in a separate process."""

import atexit
import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
from jaxtyping import Bool, Float

from infoflow.foundation import UserError

from ._figure import Panel, ReportFigure
from ._theme import FONT, coloured

# Vega-Lite's engine runs in a separate process, because it crashes under a memory limit and results must survive that.
_lock = threading.Lock()
_begun: dict[str, Future[bytes]] = {}  # by request


def svg_of(spec: dict[str, Any]) -> str:
    """A chart as SVG."""
    return _call("vegalite_to_svg", spec).decode()


@contextmanager
def drawing_ahead() -> Iterator[Callable[[Panel, int], None]]:
    """Yield a function that starts drawing a panel of a given width, for a later call of `static_svg`.

    The engine draws while this process makes the next figures. The first request is for `javascript`.
    """

    def begin(name: str, *arguments: Any) -> None:
        if (request := _request(name, *arguments)) not in _begun:
            _begun[request] = pool.submit(_answer, request)

    pool = ThreadPoolExecutor(1)
    try:
        begin("javascript_bundle")
        yield lambda panel, width: begin("vegalite_to_svg", _fitted(panel.spec, width))
    finally:
        pool.shutdown(cancel_futures=True)
        _begun.clear()


def png_of(svg: str, scale: float) -> bytes:
    """An SVG as PNG."""
    return _call("svg_to_png", svg, scale=scale)


def pdf_of(svg: str) -> bytes:
    """An SVG as PDF with embedded fonts."""
    return _call("svg_to_pdf", svg)


def javascript() -> str:
    """Vega, Vega-Lite and Vega-Embed as one script."""
    return _call("javascript_bundle").decode()


def _call(name: str, *arguments: Any, **options: Any) -> bytes:
    request = _request(name, *arguments, **options)
    begun = _begun.pop(request, None)
    return _answer(request) if begun is None else begun.result()


def _request(name: str, *arguments: Any, **options: Any) -> str:
    return json.dumps({"name": name, "arguments": arguments, "options": options}) + "\n"


def _answer(request: str) -> bytes:
    with _lock:
        process = _process(os.getpid())
        try:
            process.stdin.write(request.encode())
            process.stdin.flush()
            head = json.loads(process.stdout.readline())
            content = process.stdout.read(head.get("bytes", 0))
        except (OSError, ValueError):  # the process ended: a closed pipe, or an incomplete answer
            raise _ended(process) from None
        if len(content) < head.get("bytes", 0):
            raise _ended(process)
    if "error" in head:
        raise RuntimeError(f"The drawing engine refused a chart: {head['error']}")
    return content


@cache
def _process(owner: int) -> Any:
    """The engine of this process; an engine inherited by a fork belongs to the parent."""
    command = [sys.executable, str(Path(__file__).with_name("_drawer.py"))]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    atexit.register(_stop, process, owner)
    return process


def _stop(process: Any, owner: int) -> None:
    if os.getpid() != owner:
        return
    with suppress(OSError):
        process.stdin.close()
    with suppress(subprocess.TimeoutExpired):
        process.wait(timeout=5)
    process.stdout.close()


def _ended(process: Any) -> UserError:
    _process.cache_clear()
    _stop(process, os.getpid())
    code = process.poll()
    how = f"exit code {code}"
    if code is not None and code < 0:
        with suppress(ValueError):
            how = signal.Signals(-code).name
    return UserError(
        f"The charts could not be drawn: the drawing engine ended ({how}). It uses about 0.2 GB of memory, reserves "
        "70 GB of address space, and so needs a shell without a limit on it (ulimit -v).\n"
        "All tables are written. Raise the limit (ulimit -v unlimited), then draw: infoflow report RUN_FOLDER"
    )


PIXELS_PER_INCH = 96
_SVG = "{http://www.w3.org/2000/svg}"
_NEEDLESS = ("class", "role", "pointer-events", "font-family", "stroke-miterlimit")  # and all "aria-…"
_INHERITED = ("fill", "stroke", "stroke-width", "stroke-dasharray", "font-size", "font-weight", "text-anchor")
_MARKS = tuple(f"{_SVG}{name}" for name in ("path", "line", "text"))
_GAP = 14  # pixels between panels
_LETTER = 7.5  # pixels per letter of a title, on average

ElementTree.register_namespace("", _SVG.strip("{}"))
ElementTree.register_namespace("xlink", "http://www.w3.org/1999/xlink")
_TOLERANCE = 0.15  # maximum distance in pixels between the simplified and the original line
_FEWEST = 12  # minimum number of segments worth simplifying
_PLACES = 6  # samples per curve
_SPLIT = re.compile(r"([A-Za-z])")
_NUMBERS = {"M": 2, "L": 2, "C": 6, "Z": 0}


def static_svg(panel: Panel, width: int, prefix: str) -> str:
    """The panel as an SVG of `width` pixels; colours stay CSS variables, so it follows the page's theme.

    The viewBox keeps the proportions. The SVG takes a third of the bytes of the converter's picture. Its ids start with
    `prefix`, since many pictures share one page.
    """
    root = _drawn(panel.spec, width, prefix)
    for element in root.iter():
        _lighten(element)
    for element in list(root.iter()):
        _drop_unseen(element)
        _group_alike(element)
    del root.attrib["width"], root.attrib["height"]
    root.attrib |= {"preserveAspectRatio": "xMinYMin meet", "aria-hidden": "true", "font-family": FONT}
    return ElementTree.tostring(root, encoding="unicode")


def _drawn(spec: dict[str, Any], width: int, prefix: str) -> ElementTree.Element:
    """The converter's picture, with the chart's own width if `width` is 0.

    The converter numbers gradients and clips across a whole process; here they count from 0.
    """
    root = ElementTree.fromstring(svg_of(_fitted(spec, width)))
    names = [element.attrib["id"] for element in root.iter() if "id" in element.attrib]
    own = {name: f"{prefix}-{index}" for index, name in enumerate(dict.fromkeys(names))}
    for element in root.iter():
        for key, value in element.attrib.items():
            if key == "id":
                element.set(key, own[value])
            elif value.startswith("url(#"):
                element.set(key, f"url(#{own.get(value[5:-1], value[5:-1])})")
    return root


def _fitted(spec: dict[str, Any], width: int) -> dict[str, Any]:
    return {**spec, "width": width, "autosize": {"type": "fit-x", "contains": "padding"}} if width else spec


def _lighten(element: ElementTree.Element) -> None:
    """Remove everything a static picture does not need, and round coordinates from 15 digits to one decimal."""
    for key, value in list(element.attrib.items()):
        if key in _NEEDLESS or key.startswith("aria-") or (key, value) == ("opacity", "1"):
            del element.attrib[key]
        elif key == "d":
            element.set(key, simplified(_NUMBER.sub(lambda number: _rounded(number[0]), value)))
        elif key == "transform":
            element.set(key, _NUMBER.sub(lambda number: _rounded(number[0]), value))
        else:
            element.set(key, _LONG.sub(lambda number: _rounded(number[0], 2), value))


_NUMBER, _LONG = re.compile(r"-?\d+\.\d+"), re.compile(r"-?\d+\.\d{4,}")


def _rounded(number: str | float, places: int = 1) -> str:
    return f"{float(number):.{places}f}".rstrip("0").rstrip(".")


def _drop_unseen(parent: ElementTree.Element) -> None:
    """Remove invisible marks.

    These are paths that are neither filled nor stroked, unless something is clipped to them, and marks that appear only
    on hover or at another checkpoint.
    """
    if parent.tag != f"{_SVG}clipPath":
        for child in list(parent):
            bare = child.tag == f"{_SVG}path" and (not child.get("d") or set(child.attrib) == {"d"})
            if bare or (child.tag in _MARKS and child.get("opacity") == "0"):
                parent.remove(child)


def _group_alike(parent: ElementTree.Element) -> None:
    """Group consecutive marks that look alike, and state their style only once."""
    runs = [list(run) for _, run in groupby(list(parent), key=_look)]
    for run in runs:
        if (look := _look(run[0])) and len(run) > 1:
            group = ElementTree.Element(f"{_SVG}g", dict(look))
            parent.insert(list(parent).index(run[0]), group)
            for mark in run:
                parent.remove(mark)
                group.append(mark)
                for key, _ in look:
                    del mark.attrib[key]


def _look(element: ElementTree.Element) -> tuple[tuple[str, str], ...]:
    """The inheritable attributes that the mark itself sets; () for other elements."""
    if element.tag not in _MARKS or len(element):
        return ()
    return tuple((key, element.attrib[key]) for key in _INHERITED if key in element.attrib)


def paper_svg(figure: ReportFigure, width_inches: float, columns: int | None = None) -> str:
    """All panels of a figure as one SVG in light colours, exactly `width_inches` wide.

    `columns` panels stand side by side, or fewer if the figure has fewer; by default as many as fit.
    """
    columns = _columns(len(figure.panels), width_inches) if columns is None else min(columns, len(figure.panels))
    width = width_inches * PIXELS_PER_INCH
    cell = (width - _GAP * (columns - 1)) / columns
    pictures = [_paper_panel(panel, cell) for panel in figure.panels]
    parts, top = [], 0.0
    for start in range(0, len(pictures), columns):
        row = pictures[start : start + columns]
        for column, (svg, _) in enumerate(row):
            parts.append(f'<g transform="translate({column * (cell + _GAP):.2f},{top:.2f})">{svg}</g>')
        top += max(height for _, height in row) + _GAP
    height = max(top - _GAP, 1.0)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width_inches}in" height="{height / PIXELS_PER_INCH:.3f}in" '
        f'viewBox="0 0 {width:.2f} {height:.2f}" font-family="{FONT}">{"".join(parts)}</svg>'
    )


def _columns(panels: int, width_inches: float) -> int:
    """Panels per row: one in a column of 3.3 inches, two or three on a page of 6.8 inches."""
    if width_inches < 4.5:
        return 1
    return 3 if panels >= 3 and panels != 4 else min(panels, 2)


def _paper_panel(panel: Panel, width: float) -> tuple[str, float]:
    """A panel's SVG for print, and its height in pixels; titles wider than the panel are wrapped."""
    lines = textwrap.wrap(panel.title, int(width / _LETTER))
    title = {"title": {"text": lines, "offset": 12}} if lines else {}
    picture = _drawn(json.loads(coloured(json.dumps({**panel.spec, **title}))), round(width), "panel")
    return ElementTree.tostring(picture, encoding="unicode"), float(picture.attrib["height"])


def simplified(path: str) -> str:
    """The `d` of an SVG path as lines between the fewest points that keep its shape.

    Returns the path itself if that is shorter, or if it contains arcs. Curves are sampled at `_PLACES` points, which
    are thinned by the Ramer–Douglas–Peucker rule.
    """
    segments = list(_segments(path))
    if len(segments) < _FEWEST or any(command not in _NUMBERS for command, _ in segments):
        return path
    parts, points = [], []
    for command, numbers in segments:
        if command in "MZ" and points:
            parts.append(_line(points))
            points = []
        if command == "Z":
            parts.append("Z")
        elif command == "C":
            points += _curve(points[-1], numbers)
        else:
            points.append(numbers)
    short = "".join([*parts, *([_line(points)] if points else [])])
    return short if len(short) < len(path) else path


def _segments(path: str) -> Iterator[tuple[str, list[float]]]:
    """Yield each command with its numbers; extra numbers mean that the command is repeated."""
    words = _SPLIT.split(path.strip())
    for command, text in zip(words[1::2], words[2::2], strict=True):
        numbers = [float(number) for number in re.findall(r"-?\d*\.?\d+(?:e-?\d+)?", text)]
        size = _NUMBERS.get(command, 0)
        if not size or len(numbers) % size:
            yield (command if command == "Z" and not numbers else "?"), numbers
            continue
        for start in range(0, len(numbers), size):
            yield ("L" if command == "M" and start else command), numbers[start : start + size]


def _curve(start: list[float], numbers: list[float]) -> list[list[float]]:
    """Points along a cubic curve: its end point is included, its start is not."""
    control = np.array([start, numbers[:2], numbers[2:4], numbers[4:]])
    t = np.linspace(0, 1, _PLACES + 1)[1:, None]
    weights = np.hstack([(1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t**2 * (1 - t), t**3])
    return (weights @ control).tolist()


def _line(points: list[list[float]]) -> str:
    kept = np.array(points)[_kept(np.array(points))]
    return "M" + "L".join(f"{_rounded(x)},{_rounded(y)}" for x, y in kept.tolist())


def _kept(points: Float[np.ndarray, "point 2"]) -> Bool[np.ndarray, " point"]:
    """Mask of the points that a line needs so that all other points lie within the tolerance."""
    keep = np.zeros(len(points), dtype=bool)
    keep[[0, -1]] = True
    spans = [(0, len(points) - 1)]
    while spans:
        first, last = spans.pop()
        if last - first < 2:
            continue
        away = _off_segment(points[first + 1 : last], points[first], points[last])
        farthest = int(away.argmax())
        if away[farthest] > _TOLERANCE:
            middle = first + 1 + farthest
            keep[middle] = True
            spans += [(first, middle), (middle, last)]
    return keep


def _off_segment(
    points: Float[np.ndarray, "_ 2"], start: Float[np.ndarray, "2"], end: Float[np.ndarray, "2"]
) -> Float[np.ndarray, " _"]:
    """Distances of the points between `start` and `end` from the segment that joins those two."""
    along = end - start
    length = float(along @ along)
    share = np.clip((points - start) @ along / length, 0, 1) if length else np.zeros(len(points))
    return np.linalg.norm(points - (start + share[:, None] * along), axis=1)
