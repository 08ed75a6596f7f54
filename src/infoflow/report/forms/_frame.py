"""The axes of charts that stand side by side: of a figure's panels, and of one figure under several architectures."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, NamedTuple

_FREE = 5.0  # times the smallest span: on the scale of the largest it would be a flat line


def free_scales(spans: Iterable[float]) -> bool:
    """Whether panels span so different ranges that each needs a scale of its own.

    >>> free_scales([0.5, 0.2]), free_scales([0.5, 0.02])
    (False, True)
    """
    known = [span for span in spans if span == span]
    return len(known) > 1 and max(known) > _FREE * min(known)


def scale_note(spans: Iterable[float], shared: str, each: str = "panel") -> str:
    """What a caption says: `shared`, or how different the panels (or models) are that have scales of their own."""
    known = [span for span in spans if span == span]
    if not free_scales(known):
        return shared
    ratio = max(known) / min(known) if min(known) > 0 else math.inf
    times = f"{ratio:,.0f} times" if ratio < 1000 else "far more than"
    return f"Each {each} has a scale of its own: the largest spans {times} the smallest."


class Frame(NamedTuple):
    """From which layer to which a picture goes, and from which value to which."""

    first: int
    last: int
    low: float
    high: float

    @classmethod
    def around(cls, frames: Iterable["Frame"]) -> "Frame":
        """The smallest one that holds all of them."""
        firsts, lasts, lows, highs = zip(*frames, strict=True)
        return cls(min(firsts), max(lasts), min(lows), max(highs))


class AbstractForm(ABC):
    """A chart whose axes can be chosen from outside."""

    @property
    @abstractmethod
    def frame(self) -> Frame:
        """Its axes: those of its own data, or those that were chosen."""

    @property
    @abstractmethod
    def compared(self) -> bool:
        """Whether the other panels of its figure have its axes."""

    @property
    @abstractmethod
    def spec(self) -> dict[str, Any]:
        """The Vega-Lite specification, as wide as its container."""

    @abstractmethod
    def within(self, frame: Frame) -> "AbstractForm":
        """The same chart with these axes."""
