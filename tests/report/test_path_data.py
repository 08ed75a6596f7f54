"""Paths of still pictures: fewer points, the same line to within a seventh of a pixel."""

import re
from itertools import pairwise

import numpy as np
from report.drawn import simplified


def points_of(path: str) -> np.ndarray:
    return np.array(re.findall(r"(-?[\d.]+),(-?[\d.]+)", path), dtype=float)


def farthest(points: np.ndarray, line: np.ndarray) -> float:
    """Of the point that lies farthest from every piece of the line."""
    start, along = line[:-1], np.diff(line, axis=0)
    away = points[:, None] - start
    share = np.clip((away * along).sum(axis=2) / (along**2).sum(axis=1), 0, 1)
    return float(np.linalg.norm(away - share[..., None] * along, axis=2).min(axis=1).max())


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


def test_a_bent_curve_is_followed() -> None:
    points = np.array([(1.3 * x, 50 + 40 * np.sin(x / 20)) for x in range(200)])
    slopes = np.gradient(points[:, 1], points[:, 0])
    handles = [
        (a, np.add(a, [0.43, 0.43 * up]), np.subtract(b, [0.43, 0.43 * down]), b)
        for (a, b), (up, down) in zip(pairwise(points), pairwise(slopes), strict=True)
    ]
    path = "M0,50" + "".join("C" + ",".join(f"{x:.1f},{y:.1f}" for x, y in curve[1:]) for curve in handles)
    few = simplified(path)
    assert len(few) < len(path) / 5
    t = np.linspace(0, 1, 10)[:, None]
    powers = (1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t**2 * (1 - t), t**3
    drawn = np.concatenate([sum(w * p for w, p in zip(powers, curve, strict=True)) for curve in handles])
    assert farthest(drawn, points_of(few)) < 0.35  # the tolerance, and rounding of the path to tenths


def test_what_is_short_already_stays() -> None:
    bent = "M0,0" + "".join(f"C{x},400,{x + 100},-400,{x + 100},0" for x in range(0, 2000, 100))
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
