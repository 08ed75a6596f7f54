"""The one error that a user can fix."""

import re
import unicodedata

_LONGEST_WORD = 300  # characters of a path or a value
_HIDDEN = ("Cc", "Cf", "Cs", "Zl", "Zp")
_JOINERS = "\u200c\u200d"  # part of the spelling of several scripts


class UserError(Exception):
    """A mistake of the user: the command line prints it without a traceback and exits with code 2.

    The message says what is wrong, the constraint, what was given, and what to do. What was given may be hostile: the
    message is neither endless nor an order to the terminal.
    """

    def __init__(self, message: str = "") -> None:
        super().__init__(showable(message))


def missing_extra(feature: str, package: str, extra: str) -> UserError:
    """The error for an optional dependency that is not installed."""
    return UserError(f'{feature} needs {package}. Install it: pip install "infoflow[{extra}]"')


def showable(message: str) -> str:
    """The message without control characters but line breaks, and with the beginning and end of endless words."""
    plain = "".join(" " if _is_hidden(char) else char for char in message)
    return re.sub(rf"\S{{{_LONGEST_WORD},}}", _shortened, plain)


def _is_hidden(char: str) -> bool:
    return char != "\n" and char not in _JOINERS and unicodedata.category(char) in _HIDDEN


def _shortened(word: re.Match[str]) -> str:
    return f"{word[0][:100]}…{word[0][-60:]} ({len(word[0]):,} characters)"
