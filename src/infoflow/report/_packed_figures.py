"""Figures of pages that would be too large: deflated, and unpacked by the page's script when it opens.

A report of many models repeats itself: tables of heads, lines of text, pictures. Its largest figures shrink to a tenth.
Their headings stay, so that contents and addresses find them; without scripts a note stands in their place.
"""

import re

from ._binary import packed_text

_FIGURE = re.compile(r"(<figure[^>]*>\s*<h3.*?</h3>)(.*?)(</figure>)", re.DOTALL)
_MOST = 4_000_000  # characters of a page that is left as it is
_SMALLEST = 50_000  # characters of a figure that is worth it
_NOTE = "This figure of many models is packed: it needs JavaScript."


def pack_figures(page: str, most: int = _MOST, smallest: int = _SMALLEST) -> str:
    """The page, with its largest figures packed until it has `most` characters; those below `smallest` stay."""
    if len(page) <= most:
        return page
    figures = sorted(_FIGURE.finditer(page), key=lambda found: -len(found[2]))
    packed, length = {}, len(page)
    for figure in figures:
        if length <= most or len(figure[2]) < smallest:
            break
        packed[figure.start()] = small = _packed(figure[2])
        length += len(small) - len(figure[2])
    return _FIGURE.sub(lambda figure: f"{figure[1]}{packed.get(figure.start(), figure[2])}{figure[3]}", page)


def _packed(html: str) -> str:
    script = f'<script type="text/plain">{packed_text(html)}</script>'
    return f'<div class="packed-figure"><p class="small">{_NOTE}</p>{script}</div>'
