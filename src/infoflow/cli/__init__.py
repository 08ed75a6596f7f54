"""The command `infoflow`: one thin command per question; the only part of the package that prints."""

from ._app import app as app
from ._main import main as main
from ._main import run as run
from ._settings import with_settings as with_settings
