"""Markdown extension: `$...$`, `\\(...\\)` and `$$...$$` become MathML: no script, no font, no network."""

import re
from typing import final

from latex2mathml.converter import convert
from markdown import Markdown
from markdown.extensions import Extension
from markdown.preprocessors import Preprocessor

# Code first, so that a dollar inside it is never looked at. A formula does not begin or end with a space.
_PIECES = re.compile(
    r"(?P<code>(?P<ticks>`+)(?:(?!`).|`(?!(?P=ticks)))*?(?P=ticks)(?!`))"
    r"|(?<![\\$\w])\$\$(?P<block>(?:[^$]|\\\$)+?)\$\$"
    r"|(?<![\\$\w])\$(?P<inline>(?![\s$])(?:\\\$|(?!\n\s*\n)[^$`])+?(?<![\s\\]))\$(?![\d$])"
    r"|\\\((?P<parenthesis>[^$`\n]+?)\\\)",
    flags=re.DOTALL,
)
# What the converter does not know, as what it knows: names of operators, and floors that would grow.
_KNOWN = (
    (r"\\arg(?![A-Za-z])", r"\\operatorname{arg}"),
    (r"\\[Bb]igg?[lr]?\s*\\([lr](?:floor|ceil))", r"\\\1"),
)


class FormulaError(ValueError):
    """A formula that cannot be shown; it fails the build."""


def mathml(latex: str, display: bool = False) -> str:
    """The formula as a `<math>` element, with its source as the text that is read out where MathML is not.

    Raises:
        FormulaError: The converter fails, or leaves a command or a broken group in its output.
    """
    known = latex.strip()
    for pattern, replacement in _KNOWN:
        known = re.sub(pattern, replacement, known)
    try:
        element = convert(known, display="block" if display else "inline")
    except Exception as error:
        raise FormulaError(f"This formula cannot be converted to MathML: {latex.strip()} ({error!r})") from error
    if left := re.search(r"\\[A-Za-z]+", element):
        raise FormulaError(f"This formula has a command that is not known, {left.group()}: {latex.strip()}")
    if "\n\n" in element or latex.count("{") - latex.count(r"\{") != latex.count("}") - latex.count(r"\}"):
        raise FormulaError(f"This formula has braces that do not match: {latex.strip()}")
    return element


@final
class _Formulas(Preprocessor):
    """Runs after fenced code was taken out, and before tables are split at `|`."""

    def run(self, lines: list[str]) -> list[str]:
        return _PIECES.sub(self._replaced, "\n".join(lines)).split("\n")

    def _replaced(self, match: re.Match[str]) -> str:
        if match["code"] is not None:
            return match["code"]
        latex = match["block"] or match["inline"] or match["parenthesis"]
        return self.md.htmlStash.store(mathml(latex, display=match["block"] is not None))


@final
class FormulaExtension(Extension):
    def extendMarkdown(self, md: Markdown) -> None:
        md.preprocessors.register(_Formulas(md), "formulas", 22)


def makeExtension(**options: object) -> FormulaExtension:
    return FormulaExtension(**options)
