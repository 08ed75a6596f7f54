"""Paths of still pictures: fewer points, the same line to within a seventh of a pixel."""

import re
from itertools import pairwise

import numpy as np

from infoflow.report._path_data import simplified


def points_of(path: str) -> np.ndarray:
    return np.array(re.findall(r"(-?[\d.]+),(-?[\d.]+)", path), dtype=float)


def farthest(points: np.ndarray, line: np.ndarray) -> float:
    """By brute force: of each point, the nearest of 200 places on every piece of the line."""
    places = np.concatenate([np.linspace(a, b, 200) for a, b in pairwise(line)])
    return float(np.linalg.norm(points[:, None] - places[None], axis=2).min(axis=1).max())


def test_a_dense_curve_keeps_its_course_with_fewer_points() -> None:
    x = np.linspace(0, 300, 301)
    points = np.stack([x, 50 + 30 * np.sin(x / 40)], axis=1).round(1)
    path = "M" + "L".join(f"{a},{b}" for a, b in points)
    few = simplified(path)
    assert len(few) < len(path) / 4
    assert farthest(points, points_of(few)) < 0.25  # the tolerance, and rounding of places on the line
    np.testing.assert_allclose(points_of(few)[[0, -1]], points[[0, -1]])


def test_straight_curves_are_lines_and_an_area_stays_closed() -> None:
    top = [f"C{x + 1},20,{x + 2},20,{x + 3},20" for x in range(0, 60, 3)]
    assert simplified("M0,20" + "".join(top) + "L60,80L0,80Z") == "M0,20L60,20L60,80L0,80Z"


def test_what_bends_between_its_points_or_is_short_stays() -> None:
    bent = "M0,0" + "".join(f"C{x},40,{x + 10},-40,{x + 10},0" for x in range(0, 200, 10))
    assert simplified(bent) == bent
    assert simplified("M0,0L1,0L2,0") == "M0,0L1,0L2,0"
    arcs = "M0,0" + "A5,5,0,1,1,10,0" * 20
    assert simplified(arcs) == arcs


def test_subpaths_stay_apart() -> None:
    first, second = "L".join(f"{x},0" for x in range(20)), "L".join(f"{x},9" for x in range(20))
    assert simplified(f"M{first}M{second}") == "M0,0L19,0M0,9L19,9"


def test_a_line_that_turns_back_on_itself_keeps_its_turn() -> None:
    there, back = [f"{x},0" for x in range(20)], [f"{x},0" for x in range(18, 9, -1)]
    assert simplified("M" + "L".join(there + back)) == "M0,0L19,0L10,0"
