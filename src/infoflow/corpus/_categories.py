"""CCG categories: the left and right part of a supertag."""

from typing import NamedTuple


class CategoryParts(NamedTuple):
    """A word's arguments on either side: outermost first, separated by spaces; empty for none."""

    left: str
    right: str


def split_category(category: str, keep_result: bool = False) -> CategoryParts:
    r"""Split a CCG category into the part that looks left (past) and the part that looks right (future).

    Arguments are removed from the outside in: those attached by `\` form the left part, those by `/` the right part.
    Unbracketed slashes associate to the left; an atomic category has empty parts. With `keep_result` the remaining
    result is put in front of both parts.

    Source: Voita, Sennrich and Titov (2019), section 5.3, as `spec` fixes it: the result is dropped by default.

    >>> split_category(r"(S\NP)/NP")
    CategoryParts(left='NP', right='NP')
    >>> split_category("NP/N")
    CategoryParts(left='', right='N')
    """
    sides: dict[str, list[str]] = {"\\": [], "/": []}
    rest = _unbracket(category)
    while (cut := _outermost_slash(rest)) is not None:
        sides[rest[cut]].append(_unbracket(rest[cut + 1 :]))
        rest = _unbracket(rest[:cut])
    result = [rest] if keep_result else []
    return CategoryParts(" ".join(result + sides["\\"]), " ".join(result + sides["/"]))


def _outermost_slash(category: str) -> int | None:
    """The last slash outside brackets: slashes associate to the left, so it attaches the outermost argument."""
    depth = 0
    for index in range(len(category) - 1, -1, -1):
        char = category[index]
        depth += (char == ")") - (char == "(")
        if depth == 0 and char in "\\/":
            return index
    return None


def _unbracket(category: str) -> str:
    """Remove one pair of brackets around the whole, if any."""
    if not (category.startswith("(") and category.endswith(")")):
        return category
    depth = 0
    for index, char in enumerate(category):
        depth += (char == "(") - (char == ")")
        if depth == 0:
            return category[1:-1] if index == len(category) - 1 else category
    return category
