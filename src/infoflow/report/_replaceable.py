"""Which HTML files infoflow may replace: those that it wrote."""

from pathlib import Path

from infoflow.foundation import UserError

_MARK = b'<meta name="generator" content="infoflow '
_HEAD = 4096  # bytes: the mark stands among the first elements of every page


def check_replaceable(path: Path) -> None:
    """Nothing but an earlier page of infoflow may be replaced.

    Raises:
        UserError: Another's file lies there, or no file could.
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
