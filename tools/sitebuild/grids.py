"""Tables of words as pictures: a grid of cells, coloured by strength, with names of rows and columns."""

from collections.abc import Sequence
from html import escape

_ROW, _LETTER = 22, 7.9  # pixels
_STYLE = 'font-family="Liberation Sans, Arial, Helvetica, sans-serif" font-size="12" fill="#1b1f24"'


def grid(
    rows: Sequence[str],
    columns: Sequence[str],
    strengths: Sequence[Sequence[float]],
    texts: Sequence[Sequence[str]] = (),
    *,
    across: str,
    least: float = 30,
) -> str:
    """An SVG of the cells, the darker the larger their strength between 0 and 1; `across` names the columns."""
    left = _LETTER * max(len(name) for name in rows) + 10
    words = [*columns, *(text for row in texts for text in row)]
    width = max(least, _LETTER * max(len(word) for word in words) + 8)
    parts = [_text(0, 12, across, "start", bold=True)]
    parts += [_text(left + (at + 0.5) * width, 32, name, "middle") for at, name in enumerate(columns)]
    for down, (name, row) in enumerate(zip(rows, strengths, strict=True)):
        top = 40 + down * _ROW
        parts.append(_text(left - 8, top + 15, name, "end"))
        for at, strength in enumerate(row):
            place = f'x="{left + at * width + 1:.1f}" y="{top + 1}" width="{width - 2:.1f}" height="{_ROW - 2}"'
            parts.append(f'<rect {place} fill="#1a4b8f" fill-opacity="{0.05 + 0.75 * strength:.2f}"/>')
            if texts:
                look = ' fill="#fff"' if strength > 0.5 else ""
                parts.append(_text(left + (at + 0.5) * width, top + 15, texts[down][at], "middle", look))
    size = f"{max(left + len(columns) * width, _LETTER * len(across)) + 8:.0f} {48 + len(rows) * _ROW}"
    return f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size}" {_STYLE}>{"".join(parts)}</svg>\n'


def _text(x: float, y: float, text: str, anchor: str, look: str = "", bold: bool = False) -> str:
    weight = ' font-weight="bold"' if bold else ""
    return f'<text x="{x:.1f}" y="{y}" text-anchor="{anchor}"{weight}{look}>{escape(text)}</text>'
