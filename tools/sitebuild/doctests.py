"""Markdown extension: lines from `>>>` to the next empty line become a fenced block.

Unfenced they are read as quotations and links.
"""

import re
from typing import final

from markdown import Markdown
from markdown.extensions import Extension
from markdown.preprocessors import Preprocessor

_FENCE = re.compile(r"^\s*(`{3,}|~{3,})")


def fenced(lines: list[str]) -> list[str]:
    """The lines with every doctest that stands outside of a fence in one of its own, indented as it is."""
    done: list[str] = []
    fence, indent = "", None  # the fence that is open; the indent of the doctest that is open
    for line in lines:
        if indent is not None and not line.strip():
            done.append(f"{indent}```")
            indent = None
        if indent is None and (mark := _FENCE.match(line)):
            fence = "" if fence and mark[1].startswith(fence) else fence or mark[1]
        elif indent is None and not fence and line.lstrip().startswith(">>>"):
            indent = line[: len(line) - len(line.lstrip())]
            done += [""] * bool(done and done[-1].strip()) + [f"{indent}```pycon"]
        done.append(line)
    return [*done, f"{indent}```"] if indent is not None else done


@final
class _Doctests(Preprocessor):
    def run(self, lines: list[str]) -> list[str]:
        return fenced(lines)


@final
class DoctestExtension(Extension):
    def extendMarkdown(self, md: Markdown) -> None:
        md.preprocessors.register(_Doctests(md), "doctests", 28)  # after whitespace is normal, before fences


def makeExtension(**options: object) -> DoctestExtension:
    return DoctestExtension(**options)
