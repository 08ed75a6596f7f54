"""Raised by training on a request to stop: after the running update, with its state saved."""

from pathlib import Path


class TrainingInterrupted(KeyboardInterrupt):
    """Training was asked to stop; its state is saved, and the same call continues it."""

    def __init__(self, update: int, folder: Path) -> None:
        super().__init__(f"Stopped after update {update}. Run the same command again to continue from {folder}.")
        self.update = update
        self.folder = folder
