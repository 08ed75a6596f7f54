"""The folder `work/.engine/NONCE` of a run, by which a worker recognises that it sees the study's files."""

import secrets
import shutil
from pathlib import Path

from infoflow.foundation import writable

from ._child import engine_folder

LOCKS = "locks"


class RunNotes:
    """Final messages of the stages in one run of the engine; removed when the engine closes."""

    def __init__(self, folder: Path | str) -> None:
        self.folder = str(Path(folder).absolute())
        self.nonce = secrets.token_hex(8)
        self._runs = 0

    def open(self) -> None:
        """Create the folder and remove leftovers of killed engines; only one engine works in a run folder at a time.

        Raises:
            UserError: The folder cannot be created.
        """
        home = engine_folder(self.folder)
        with writable(home):
            (home / LOCKS).mkdir(parents=True, exist_ok=True)
            for left in home.iterdir():
                if left.is_dir() and left.name != LOCKS:
                    shutil.rmtree(left, ignore_errors=True)
            (home / self.nonce).mkdir()

    def new_run(self) -> str:
        """Create a folder, below `work/.engine`, for one more graph, and return its name."""
        self._runs += 1
        name = f"{self.nonce}/{self._runs}"
        (engine_folder(self.folder) / name).mkdir()
        return name

    def close(self) -> None:
        shutil.rmtree(engine_folder(self.folder) / self.nonce, ignore_errors=True)
