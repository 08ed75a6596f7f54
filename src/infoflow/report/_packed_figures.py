"""Compression of figures on large pages: deflated, and unpacked by the page's script on opening.

A report of many models repeats itself: head tables, lines of text, pictures. Its largest figures shrink to a tenth.
Their headings stay, so that the contents and addresses find them; without scripts, a note takes their place.
"""

import re

from ._binary import packed_text

_FIGURE = re.compile(r"(<figure[^>]*>\s*<h3.*?</h3>)(.*?)(</figure>)", re.DOTALL)
_MOST = 4_000_000  # pages up to this number of characters stay as they are
_SMALLEST = 50_000  # characters of a figure worth packing
_NOTE = "This figure of many models is packed: it needs JavaScript."


def pack_figures(page: str, most: int = _MOST, smallest: int = _SMALLEST) -> str:
    """Pack the largest figures until the page has at most `most` characters; figures below `smallest` stay."""
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
