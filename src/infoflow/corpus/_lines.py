"""Lines of a text file, plain or gzip, with errors that give the position."""

import gzip
import json
import stat
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import IO, Any

from infoflow.foundation import UserError, as_written, json_fault

from ._encodings import advice
from ._formats import kind_by_bytes
from ._printable import printable, shortened

LONGEST_LINE = 1 << 20
"""Maximum bytes of a line, and characters of a sentence: a file without line ends is not a corpus."""

LONGEST_BLOCK = 100_000
"""Maximum lines of a sentence in files with one word per line."""

_BEGIN = 1 << 16  # bytes read at a time
_SAMPLE = 4000  # bytes used to detect the encoding

_MAGIC = 32  # bytes used to detect a file of another program
_GZIP_MAGIC = b"\x1f\x8b"
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_KINDS: tuple[tuple[Callable[[int], bool], str], ...] = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


def read_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield (line number from 1, line without its end).

    `\\n` and `\\r\\n` end a line, never U+2028 and similar; in a file that starts without them `\\r` does, as on old
    Macintoshes.

    Raises:
        UserError: The file is missing, unreadable, damaged, binary, or not UTF-8; or a line exceeds `LONGEST_LINE`.
    """
    with open_bytes(path) as file:
        begin = file.read(_BEGIN)
        end = b"\r" if b"\r" in begin[:-1] and b"\n" not in begin else b"\n"
        for number, line in enumerate(_split(file.read, begin, end), start=1):
            yield number, _decode(line, path, number)


def _split(read: Callable[[int], bytes], rest: bytes, end: bytes) -> Iterator[bytes]:
    """Lines without their ends; only the beginning of a line that is too long."""
    while True:
        *lines, rest = rest.split(end)
        yield from lines
        if len(rest) > LONGEST_LINE + 2:
            yield rest
            return
        if not (block := read(_BEGIN)):
            break
        rest += block
    if rest:
        yield rest


def read_objects(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (line number from 1, JSON object of that line); empty lines are skipped.

    Raises:
        UserError: As in `read_lines`; a line is not JSON, or not an object.
    """
    for number, line in read_lines(path):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise UserError(f"{path}, line {number}: {json_fault(error)}\nCorrect the line.") from None
        if not isinstance(value, dict):
            raise UserError(f"{path}, line {number}: each line must hold an object. Got {as_written(value)}.")
        yield number, value


@contextmanager
def open_bytes(path: Path) -> Iterator[IO[bytes]]:
    """Open for reading bytes; gzip is recognised by content, whatever the extension.

    Raises:
        UserError: The file is missing, unreadable, another program's, or damaged (even if that appears later, inside
            the block).
    """
    check_readable(path)
    with path.open("rb") as raw:
        try:
            zipped = raw.read(2) == _GZIP_MAGIC
            raw.seek(0)
            with gzip.open(raw) if zipped else nullcontext(raw) as file:
                _check_kind(path, file.read(_MAGIC))
                file.seek(0)
                yield file
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise UserError(
                f"{printable(str(path))} is a damaged gzip file: {error}.\nDownload or compress it again."
            ) from error
        except OSError as error:
            raise UserError(f"{printable(str(path))} cannot be read: {error.strerror}.\nCheck the disk.") from error


def _check_kind(path: Path, begin: bytes) -> None:
    if kind := kind_by_bytes(begin):
        raise UserError(f"{printable(str(path))} is {kind}, not text.\nSave its text as UTF-8, one sentence per line.")


def check_readable(path: Path) -> None:
    """Raise a UserError unless `path` is a regular file that can be opened; never blocks, as a pipe would."""
    shown = printable(str(path))
    try:
        mode = path.stat().st_mode
        if kind := next((kind for is_kind, kind in _KINDS if is_kind(mode)), None):
            advice = "Name a file in it." if stat.S_ISDIR(mode) else "Write its output to a file first."
            raise UserError(f"Expected a corpus file, but {shown} is {kind}.\n{advice}")
        path.open("rb").close()
    except FileNotFoundError as error:
        raise UserError(f"No corpus file {shown}.\nCheck the path (now in {Path.cwd()}).") from error
    except OSError as error:
        raise UserError(
            f"{shortened(shown)} cannot be read: {error.strerror}.\nCheck the path and its permissions."
        ) from error
    except ValueError as error:  # a zero byte, or half a surrogate pair
        raise UserError(f"{shortened(shown)} is not a valid file name: {error}.\nCheck the path.") from error


def unchanged(rows: Iterable[Any], paths: Sequence[Path], states: Sequence[object]) -> Iterator[Any]:
    """The rows, and a UserError at their end if a file changed since before it was read."""
    yield from rows
    for path, state in zip(paths, states, strict=True):
        if file_state(path) != state:
            raise UserError(f"{path} changed while it was read.\nTry again when it is no longer being written.")


def check_length(path: Path, first: int, lines: int) -> None:
    """Raise a UserError if a sentence with one word per line, begun on line `first`, never ends."""
    if lines > LONGEST_BLOCK:
        raise UserError(
            f"{path}, line {first}: a sentence may have {LONGEST_BLOCK:,} lines at most, and this one has more.\n"
            "A blank line ends a sentence: add one after each."
        )


def file_state(path: Path) -> tuple[int, ...]:
    """A state that changes when the file is written."""
    found = path.stat()
    return found.st_ino, found.st_size, found.st_mtime_ns


def _decode(line: bytes, path: Path, number: int) -> str:
    if number == 1:
        line = line.removeprefix(_BYTE_ORDER_MARK)
    if b"\x00" in line or (number == 1 and line.startswith((b"\xff\xfe", b"\xfe\xff"))):
        raise UserError(
            f"{path}, line {number}: holds a zero byte, so it is not UTF-8 text.\n{advice(_sample(path, line))}"
        )
    line = line.removesuffix(b"\r")
    if len(line) > LONGEST_LINE:
        raise UserError(
            f"{path}, line {number}: a line may have {LONGEST_LINE:,} bytes at most, and this one is longer.\n"
            "Write one sentence per line."
        )
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(
            f"{path}, line {number}: not UTF-8 (byte 0x{line[error.start]:02x} at position {error.start}).\n"
            f"{advice(line)}"
        ) from error


def _sample(path: Path, line: bytes) -> bytes:
    """The beginning of a file: UTF-16 cannot be recognised from a line cut at its zero bytes."""
    with open_bytes(path) as file:
        return file.read(_SAMPLE) or line
