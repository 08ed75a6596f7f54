"""The program `infoflow`: one thin command per question. No other part of the package prints."""

from importlib import import_module
from typing import TYPE_CHECKING

from ._options import with_settings as with_settings
from ._tables import estimate, show_table

if TYPE_CHECKING:
    from ._app import app as app
    from ._app import main as main
    from ._app import run as run


def __getattr__(name: str) -> object:
    """Import the program on first use, because it imports the commands of subjects, which import this package."""
    if name not in ("app", "main", "run"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("._app", __name__), name)
