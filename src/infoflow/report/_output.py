"""Check early, before hours of work, that a command may write its run folder."""

from collections.abc import Iterable
from typing import Any

from infoflow.foundation import UserError, check_writable
from infoflow.results import RunFolder

from ._replaceable import check_replaceable
from .notebook._plot import known_tables

_FOLDERS = ("tables", "models", "work")


def check_output(run: RunFolder, kind: str, *, tables: Iterable[str] = ()) -> dict[str, Any]:
    """The current contents of run.json; rejects a folder in which a run of this kind could not be completed.

    Args:
        run: The folder, which may not exist yet.
        kind: The command's name in run.json.
        tables: Names of tables written by the user's measures.

    Raises:
        UserError: The path is a file, is not writable, holds a run of another kind, or has a foreign file in the way.
    """
    check_writable(run.path)
    before = run.read()
    if before and before.get("kind") != kind:
        raise UserError(f"{run.path} holds a run of another kind ({before.get('kind')}). Choose another --out.")
    check_replaceable(run.report)
    for name in _FOLDERS:
        if (path := run.path / name).exists() and not path.is_dir():
            raise UserError(f"{path} must be a folder. It is a file. Move it, or choose another --out.")
    run.tables.check_replaceable([*known_tables(), *tables])
    return before
