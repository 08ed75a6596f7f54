"""The axes of charts that stand side by side: of a figure's panels, and of one figure under several architectures."""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, NamedTuple


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
