"""Lines of a text file, plain or gzip, with errors that say where."""

import gzip
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from infoflow.foundation import UserError

_GZIP_MAGIC = b"\x1f\x8b"
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def read_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield (line number from 1, line without its end); only `\\n` and `\\r\\n` end a line, never U+2028 and the like.

    Raises:
        UserError: The file is missing, unreadable, damaged, binary, or not UTF-8.
    """
    with _open(path) as file:
        number = 0
        try:
            for number, line in enumerate(file, start=1):
                yield number, _decode(line, path, number)
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise UserError(
                f"{path} is a damaged gzip file: {error} (after line {number}).\nDownload or compress it again."
            ) from error


@contextmanager
def _open(path: Path) -> Iterator[IO[bytes]]:
    """Open for reading bytes; gzip is recognised by content, so a wrong extension does no harm."""
    check_readable(path)
    with path.open("rb") as raw:
        zipped = raw.read(2) == _GZIP_MAGIC
        raw.seek(0)
        if zipped:
            with gzip.open(raw) as file:
                yield file
        else:
            yield raw


def check_readable(path: Path) -> None:
    """Raise a UserError unless `path` is a file that can be opened."""
    if path.is_dir():
        raise UserError(f"A corpus file was expected, but {path} is a folder.\nName a file in it.")
    try:
        path.open("rb").close()
    except FileNotFoundError as error:
        raise UserError(f"No corpus file {path}.\nCheck the path (now in {Path.cwd()}).") from error
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}.\nCheck its permissions.") from error


def _decode(line: bytes, path: Path, number: int) -> str:
    if number == 1:
        line = line.removeprefix(_BYTE_ORDER_MARK)
    if b"\x00" in line:
        raise UserError(
            f"{path}, line {number}: holds a zero byte, so it is not UTF-8 text.\n"
            "Give a text file (plain or .gz); convert UTF-16 with: iconv -f UTF-16 -t UTF-8"
        )
    try:
        return line.removesuffix(b"\n").removesuffix(b"\r").decode("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(
            f"{path}, line {number}: not UTF-8 (byte 0x{line[error.start]:02x} at position {error.start}).\n"
            "Convert the file, for example: iconv -f LATIN1 -t UTF-8"
        ) from error
