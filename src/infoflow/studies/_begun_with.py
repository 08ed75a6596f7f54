"""Whether a training may record loss changes: only one that began with the recording has no gap."""

from pathlib import Path

from infoflow.flow import is_first, wait_for_all
from infoflow.foundation import atomic_write

_NOTE = "recording.key"  # in a training's folder: the recording that began with it


def is_begun_with(folder: Path, key: str, recorded: bool) -> bool:
    """Whether the training in `folder` is to record `key`: it begins now, or began with it.

    Args:
        folder: Of the training; made, with a note, where there is none.
        key: What the recording depends on.
        recorded: Whether nothing of it is missing.
    """
    note = folder / _NOTE
    if recorded:
        if is_first():
            note.unlink(missing_ok=True)  # from here on a recording would have a gap
        return False
    if is_first() and not folder.exists():
        folder.mkdir(parents=True)
        with atomic_write(note) as temporary:
            temporary.write_text(key, encoding="utf-8")
    wait_for_all()
    return note.exists() and note.read_text(encoding="utf-8") == key
