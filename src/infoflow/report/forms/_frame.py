"""Axes of charts shown side by side: the panels of one figure, or one figure for several architectures."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, NamedTuple

_FREE = 5.0  # times the smallest span: beyond it, the smallest would be a flat line on the largest scale


def free_scales(spans: Iterable[float]) -> bool:
    """Whether the spans of panels differ so much that each panel needs its own scale.

    >>> free_scales([0.5, 0.2]), free_scales([0.5, 0.02])
    (False, True)
    """
    known = [span for span in spans if span == span]
    return len(known) > 1 and max(known) > _FREE * min(known)


def scale_note(spans: Iterable[float], shared: str, each: str = "panel") -> str:
    """Caption text: `shared`, or how much the spans differ if each panel (or model) has its own scale."""
    known = [span for span in spans if span == span]
    if not free_scales(known):
        return shared
    ratio = max(known) / min(known) if min(known) > 0 else math.inf
    times = f"{ratio:,.0f} times" if ratio < 1000 else "far more than"
    return f"Each {each} has a scale of its own: the largest spans {times} the smallest."


class Frame(NamedTuple):
    """Ranges of a chart's axes: layers and values."""

    first: int
    last: int
    low: float
    high: float

    @classmethod
    def around(cls, frames: Iterable["Frame"]) -> "Frame":
        """The smallest frame that contains all of them."""
        firsts, lasts, lows, highs = zip(*frames, strict=True)
        return cls(min(firsts), max(lasts), min(lows), max(highs))


class AbstractForm(ABC):
    """A chart whose axes can be set from outside."""

    @property
    @abstractmethod
    def frame(self) -> Frame:
        """Axis ranges: those of its own data, or the chosen ones."""

    @property
    @abstractmethod
    def compared(self) -> bool:
        """Whether the other panels of its figure share its axes."""

    @property
    @abstractmethod
    def spec(self) -> dict[str, Any]:
        """The Vega-Lite specification, as wide as its container."""

    def within(self, frame: Frame) -> "AbstractForm":
        """The same chart with these axes, stored in its field `chosen`."""
        return replace(self, chosen=frame)  # type: ignore[type-var]
