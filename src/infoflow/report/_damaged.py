"""Parts of the page whose data in a damaged table or run.json are unusable: they are omitted, and the page says so."""

from collections.abc import Callable
from typing import TypeVar

from infoflow.foundation import current_display

_Told = TypeVar("_Told")
DAMAGE = (KeyError, ValueError, TypeError, IndexError, AttributeError, ArithmeticError, StopIteration)


def unless_damaged(tell: Callable[[], _Told], otherwise: _Told, name: str, left_out: list[str]) -> _Told:
    """The result of `tell`; if the data do not allow it, `otherwise`, a warning, and a line in `left_out`."""
    try:
        return tell()
    except DAMAGE as error:
        message = (
            f"The report leaves out {name}: a table or run.json lacks data that it needs ({kind_of(error)}). "
            "Repeat the run that wrote them."
        )
        current_display().warn(message)
        left_out.append(message)
        return otherwise


def kind_of(error: Exception) -> str:
    """What was missing or wrong, if the error describes it."""
    if isinstance(error, KeyError) and error.args:
        return f"no {error.args[0]}"
    return "unexpected values" if isinstance(error, TypeError | AttributeError) else str(error)[:120]
