"""The command `infoflow`: one thin command per question; the only part of the package that prints."""

from importlib import import_module
from typing import TYPE_CHECKING

from ._options import with_settings as with_settings
from ._tables import estimate, show_table

if TYPE_CHECKING:
    from ._app import app as app
    from ._app import main as main
    from ._app import run as run


def __getattr__(name: str) -> object:
    """Import the program when it is first used: the commands of subjects, which it imports, import this package."""
    if name not in ("app", "main", "run"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("._app", __name__), name)
