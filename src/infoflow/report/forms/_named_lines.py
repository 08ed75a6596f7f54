"""Lines over any x, with their names above the picture."""

from collections.abc import Sequence
from typing import Any

from ._chart import finished
from ._lines import lines, looks_of
from ._marks import Layer
from ._names import names_above

Name = tuple[str, str, str]
"""A mark, its name, and its colour."""


def named_lines(
    rows: Any,
    at: dict[str, Any],
    found: Sequence[Any],
    height: int,
    *,
    field: str = "series",
    mark: str = "●",
    beneath: Sequence[Layer] = (),
    above: Sequence[Layer] = (),
    names: Sequence[Name] = (),
    **how: Any,
) -> dict[str, Any]:
    """Draw the lines of `rows` at `at`, with their names above the picture.

    Args:
        rows: As in `lines`.
        at: The encodings `x` and `y`.
        found: The lines: each with key, label, color, dash and shape.
        height: Height of the picture.
        field: The column with their keys.
        mark: Mark before each name.
        beneath: Layers drawn first.
        above: Layers drawn last.
        names: Names of the other layers.
        how: As in `lines`.
    """
    drawn = lines(rows, at, looks_of(found, field), **how)
    told = [*((mark, one.label, one.color) for one in found), *names]
    return finished([*beneath, *drawn, *above, names_above(told)], height)
