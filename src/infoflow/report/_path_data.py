"""Simplified paths of static pictures: invisible differences cost a fraction of the bytes."""

import re
from collections.abc import Iterator

import numpy as np
from jaxtyping import Bool, Float

_TOLERANCE = 0.15  # maximum distance in pixels between the simplified and the original line
_FEWEST = 12  # minimum number of segments worth simplifying
_PLACES = 6  # samples per curve
_SPLIT = re.compile(r"([A-Za-z])")
_NUMBERS = {"M": 2, "L": 2, "C": 6, "Z": 0}


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
    """Commands with their numbers; extra numbers repeat the command."""
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
    """Points along a cubic curve, ending with its last."""
    control = np.array([start, numbers[:2], numbers[2:4], numbers[4:]])
    t = np.linspace(0, 1, _PLACES + 1)[1:, None]
    weights = np.hstack([(1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t**2 * (1 - t), t**3])
    return (weights @ control).tolist()


def _line(points: list[list[float]]) -> str:
    kept = np.array(points)[_kept(np.array(points))]
    return "M" + "L".join(f"{_short(x)},{_short(y)}" for x, y in kept.tolist())


def _short(number: float) -> str:
    return f"{number:.1f}".rstrip("0").rstrip(".")


def _kept(points: Float[np.ndarray, "point 2"]) -> Bool[np.ndarray, " point"]:
    """Which points a line needs to pass all others within the tolerance."""
    keep = np.zeros(len(points), dtype=bool)
    keep[[0, -1]] = True
    spans = [(0, len(points) - 1)]
    while spans:
        first, last = spans.pop()
        if last - first < 2:
            continue
        away = _beside(points[first + 1 : last], points[first], points[last])
        farthest = int(away.argmax())
        if away[farthest] > _TOLERANCE:
            middle = first + 1 + farthest
            keep[middle] = True
            spans += [(first, middle), (middle, last)]
    return keep


def _beside(
    points: Float[np.ndarray, "_ 2"], start: Float[np.ndarray, "2"], end: Float[np.ndarray, "2"]
) -> Float[np.ndarray, " _"]:
    """Distances of points from the segment between two others."""
    along = end - start
    length = float(along @ along)
    share = np.clip((points - start) @ along / length, 0, 1) if length else np.zeros(len(points))
    return np.linalg.norm(points - (start + share[:, None] * along), axis=1)
