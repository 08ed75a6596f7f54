"""Which HTML files infoflow may replace: only its own."""

from pathlib import Path

from infoflow.foundation import UserError

_MARK = b'<meta name="generator" content="infoflow '
_HEAD = 4096  # bytes: the mark is among the first elements of every page


def check_replaceable(path: Path) -> None:
    """Check that an existing file is an earlier page of infoflow.

    Raises:
        UserError: There is a foreign file, or no file can be written there.
    """
    if path.is_dir():
        raise UserError(f"{path} must be the HTML file to write. It is a folder.")
    if not path.exists():
        return
    if not path.is_file():
        raise UserError(f"{path} must be the HTML file to write. It is a device or a pipe.")
    with path.open("rb") as file:
        head = file.read(_HEAD)
    if head.strip(b"\0") and _MARK not in head:
        raise UserError(f"{path} was not written by infoflow, and would be replaced. Move it, or choose another --out.")
