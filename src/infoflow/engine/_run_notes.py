"""The folder `work/.engine/NONCE` of a run: by it a worker knows that it sees the study's files."""

import secrets
import shutil
from pathlib import Path

from infoflow.foundation import writable

from ._child import engine_folder

LOCKS = "locks"


class RunNotes:
    """What stages of one run of the engine have told at their end; gone when the engine closes."""

    def __init__(self, folder: Path | str) -> None:
        self.folder = str(Path(folder).absolute())
        self.nonce = secrets.token_hex(8)
        self._runs = 0

    def open(self) -> None:
        """Make the folder; what killed engines left here goes. (Who runs an engine in a folder has it to himself.)

        Raises:
            UserError: Nothing can be made there.
        """
        home = engine_folder(self.folder)
        with writable(home):
            (home / LOCKS).mkdir(parents=True, exist_ok=True)
            for left in home.iterdir():
                if left.is_dir() and left.name != LOCKS:
                    shutil.rmtree(left, ignore_errors=True)
            (home / self.nonce).mkdir()

    def new_run(self) -> str:
        """The folder, below `work/.engine`, of one more graph."""
        self._runs += 1
        name = f"{self.nonce}/{self._runs}"
        (engine_folder(self.folder) / name).mkdir()
        return name

    def close(self) -> None:
        shutil.rmtree(engine_folder(self.folder) / self.nonce, ignore_errors=True)
