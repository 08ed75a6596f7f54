"""Line names above the picture, for charts with lines in every corner."""

import pandas as pd

from ._chart import NAME
from ._marks import Layer, channel, draw

_LINE = 14  # pixels between names
_LETTER, _ROOM = 7, 300  # pixels per bold letter, and of a narrow picture
_PLACE = {"x": "across", "y": "at"}
_TITLE = 24  # above the picture, for the axis title


def names_above(found: list[tuple[str, str, str]], room: float = _ROOM) -> Layer:
    """Place (mark, name, colour) entries, in two columns if they fit into this many pixels."""
    texts = [f"{mark} {name}" for mark, name, _ in found]
    half = -(-len(texts) // 2)
    first, second = (max((_LETTER * len(text) for text in part), default=0) for part in (texts[:half], texts[half:]))
    rows = half if first + second < room else len(texts)
    table = pd.DataFrame(
        {
            "text": texts,
            "color": [color for _, _, color in found],
            "across": [(first + 12) * (index // rows) for index in range(len(texts))],
            "at": [_LINE * (index % rows - rows) - _TITLE for index in range(len(texts))],
        }
    )
    in_pixels = {name: channel(name, f"{field}:Q", scale=None, axis=None) for name, field in _PLACE.items()}
    color = channel("color", "color:N", scale=None)
    return draw("text", table, NAME, in_pixels, align="left", baseline="top", text="text:N", color=color)
