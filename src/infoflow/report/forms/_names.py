"""Names of lines above a picture in which any corner may hold a line."""

import altair as alt
import pandas as pd

from ._chart import NAME

_LINE = 14  # pixels between names
_LETTER, _ROOM = 7, 300  # pixels of a bold letter, and of a narrow picture
_TITLE = 24  # above the picture, for the title of the axis


def names_above(found: list[tuple[str, str, str]], room: float = _ROOM) -> alt.Chart:
    """(mark, name, colour), in two columns where they fit into so many pixels."""
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
    place = {"x": alt.X("across:Q", scale=None, axis=None), "y": alt.Y("at:Q", scale=None, axis=None)}  # in pixels
    mark = alt.Chart(table).mark_text(align="left", baseline="top", **NAME)
    return mark.encode(**place, text=alt.Text("text:N"), color=alt.Color("color:N", scale=None))
