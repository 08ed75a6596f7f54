"""The error class for mistakes that a user can fix."""

import difflib
import re
import unicodedata
from collections.abc import Iterable

_LONGEST_WORD = 300  # characters of a path or a value
_LONGEST_NAME = 80  # characters that are compared with known names
_HIDDEN = ("Cc", "Cf", "Cs", "Zl", "Zp")
_JOINERS = "\u200c\u200d"  # part of the spelling of several scripts


class UserError(Exception):
    """A mistake of the user: the command line prints it without a traceback and exits with code 2.

    The message states the problem, the constraint, the actual value, and the remedy. The value may be hostile, so the
    message is neither endless nor able to control the terminal.
    """

    def __init__(self, message: str = "") -> None:
        super().__init__(showable(message))


def missing_extra(feature: str, package: str, extra: str) -> UserError:
    """The error for an optional dependency that is not installed."""
    return UserError(f'{feature} needs {package}. Install it: pip install "infoflow[{extra}]"')


def did_you_mean(name: object, known: Iterable[str], before: str = "") -> str:
    """A question for a message: the known name nearest to `name`, after `before`; "" if none is near.

    >>> did_you_mean("causal-ml", ["causal-lm", "masked-lm"])
    ' Did you mean causal-lm?'
    """
    near = difflib.get_close_matches(str(name)[:_LONGEST_NAME], known, n=1)
    return f" Did you mean {before}{near[0]}?" if near else ""


def showable(message: str) -> str:
    """The message without hidden characters, with overlong words shortened to their beginning and end."""
    return re.sub(rf"\S{{{_LONGEST_WORD},}}", _shortened, visible(message))


def visible(text: str) -> str:
    """Replace characters that would control a terminal by spaces.

    These are control characters except line breaks, and marks that change the writing direction.
    """
    return text if text.isascii() and text.isprintable() else "".join(" " if _is_hidden(c) else c for c in text)


def _is_hidden(char: str) -> bool:
    return char != "\n" and char not in _JOINERS and unicodedata.category(char) in _HIDDEN


def _shortened(word: re.Match[str]) -> str:
    return f"{word[0][:100]}…{word[0][-60:]} ({len(word[0]):,} characters)"
