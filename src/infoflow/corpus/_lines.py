"""Lines of text files, plain or gzip, and their tab-separated fields; errors give the position."""

import gzip
import json
import re
import stat
import unicodedata
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from itertools import islice
from pathlib import Path
from typing import IO, Any

from infoflow.foundation import UserError, as_written, json_fault, writes_no_spaces

from ._formats import advice, kind_by_bytes

_HIDDEN = frozenset(("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"))
_JOINERS = "\u200c\u200d"  # part of the spelling of several scripts


def printable(text: str) -> str:
    """The text without control characters, ESC of escape sequences, direction marks and line breaks.

    A corpus is untrusted: an escape sequence could rewrite the terminal, and a direction mark could reorder the line.
    """
    spaced = "".join(" " if char.isspace() else char for char in text)
    return "".join(char for char in spaced if char in _JOINERS or unicodedata.category(char) not in _HIDDEN)


def unused_signs(text: str) -> tuple[str, str]:
    """Two private-use characters that the text does not contain."""
    first, last, *_ = (chr(code) for code in range(0xE000, 0xF8FF) if chr(code) not in text)
    return first, last


def shortened(text: str) -> str:
    """The text; a long one is cut to its beginning and end, for messages."""
    return text if len(text) <= 200 else f"{text[:100]}…{text[-50:]} ({len(text):,} characters)"


LONGEST_LINE = 1 << 20
"""Maximum bytes of a line, and characters of a sentence, because a file without line ends is not a corpus."""

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

    `\\n` and `\\r\\n` end a line, never U+2028 and similar; in a file that starts without them, `\\r` ends a line, as
    on old Macintoshes. A file that is damaged, binary or not UTF-8 is refused, as is a line beyond `LONGEST_LINE`.
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
    """Yield (line number from 1, JSON object of that line); empty lines are skipped."""
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
    """Open for reading bytes; gzip is recognised by its content, not by the extension."""
    check_readable(path)
    with path.open("rb") as raw:
        try:
            zipped = raw.read(2) == _GZIP_MAGIC
            raw.seek(0)
            with gzip.open(raw) if zipped else nullcontext(raw) as file:
                if kind := kind_by_bytes(file.read(_MAGIC)):
                    raise UserError(
                        f"{printable(str(path))} is {kind}, not text.\nSave its text as UTF-8, one sentence per line."
                    )
                file.seek(0)
                yield file
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise UserError(
                f"{printable(str(path))} is a damaged gzip file: {error}.\nDownload or compress it again."
            ) from error
        except OSError as error:
            raise UserError(f"{printable(str(path))} cannot be read: {error.strerror}.\nCheck the disk.") from error


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
        raise UserError(f"No corpus file {shown}.\nCheck the path (current folder: {Path.cwd()}).") from error
    except OSError as error:
        raise UserError(
            f"{shortened(shown)} cannot be read: {error.strerror}.\nCheck the path and its permissions."
        ) from error
    except ValueError as error:  # a zero byte, or half a surrogate pair
        raise UserError(f"{shortened(shown)} is not a valid file name: {error}.\nCheck the path.") from error


def unchanged(rows: Iterable[Any], paths: Sequence[Path], states: Sequence[object]) -> Iterator[Any]:
    """Yield the rows, then raise a UserError if a file has changed since before it was read."""
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
    """A value that changes when the file is written."""
    found = path.stat()
    return found.st_ino, found.st_size, found.st_mtime_ns


def _decode(line: bytes, path: Path, number: int) -> str:
    if number == 1:
        line = line.removeprefix(_BYTE_ORDER_MARK)
    zero = b"\x00"
    if zero in line or (number == 1 and line.startswith((b"\xff\xfe", b"\xfe\xff"))):
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
            f"{advice(sample if zero in (sample := _sample(path, line)) else line)}"
        ) from error


def _sample(path: Path, line: bytes) -> bytes:
    """The beginning of a file: UTF-16 cannot be recognised from a line cut at its zero bytes."""
    with open_bytes(path) as file:
        return file.read(_SAMPLE) or line


# Tab-separated lines: quotation marks, headers, and columns without sentences.


_SNIFFED = 1000  # lines used to detect quoted cells
_ROWS_BELOW = 5  # rows below a header in an unknown language
_QUOTED = re.compile(r'"(?:[^"]|"")*"')
_NAMES_LISTED = (
    "id idx index nr no number pairid pair_id sentid sent_id uid text texts sentence sentences sentence1 "
    "sentence2 sentence_1 sentence_2 sent1 sent2 sentence_a sentence_b sentence_good sentence_bad label labels "
    "class category score scores similarity rating source src target tgt translation translations reference "
    "references hypothesis premise gold_label question question1 question2 answer context passage title body "
    "content document doc doc_id lang language file filename date author url genre split part domain topic "
    "summary entailment relatedness sentiment stars review utterance speaker word tag pos original quelle quelltext "
    "ausgangstext ziel zieltext satz sätze übersetzung phrase phrases traduction frase frases oración traducción"
)
_NAMES = frozenset(_NAMES_LISTED.split())
_LANGUAGES_LISTED = (
    "arabic chinese czech danish dutch english finnish french german greek hebrew hindi hungarian indonesian "
    "italian japanese korean norwegian persian polish portuguese romanian russian spanish swahili swedish thai "
    "turkish ukrainian urdu vietnamese deutsch français francais español espanol italiano português русский 中文 "
    "日本語 en fr de es it pt nl sv da no fi pl cs sk hu ro bg el ru uk tr ar he fa hi ur bn th vi id ms zh ja ko sw "
    "ca eu gl eng fra fre deu ger spa ita por nld swe dan nob fin pol ces slk hun ron bul ell rus ukr tur ara heb "
    "fas hin urd ben tha vie ind zho cmn jpn kor swa cat eus glg lat"
)
_LANGUAGES = frozenset(_LANGUAGES_LISTED.split())
CHUNK_TAG = re.compile(r"O|[BIESLU][-_]\w[\w.-]*")
NUMBER = re.compile(r"[-+]?\d[\d.,:/%-]*")
ENDS = tuple(".!?…。！？؟।\"”»')")


def read_cells(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Line numbers and cells, empty for a blank line; quotation marks of spreadsheets and pandas are removed."""
    quoted = is_quoted(path)
    for number, line in read_lines(path):
        yield number, cells_of(line, quoted) if line.strip() else []


def is_quoted(path: Path) -> bool:
    """Whether cells are quoted where necessary, with doubled quotes inside.

    All quotation marks in the first lines must be consistent with this, and one must show it (`""`, or a quoted first
    line).
    """
    lines = [line for _, line in islice(read_lines(path), _SNIFFED)]
    cells = [cell for line in lines for cell in line.split("\t") if '"' in cell]
    first = lines[0].split("\t") if lines else []
    shows = any('""' in cell[1:-1] for cell in cells) or (len(first) > 1 and all(map(_QUOTED.fullmatch, first)))
    return shows and all(map(_QUOTED.fullmatch, cells))


def cells_of(line: str, quoted: bool = False) -> list[str]:
    """The cells of a line."""
    cells = line.split("\t")
    if not quoted:
        return cells
    return [cell[1:-1].replace('""', '"') if _QUOTED.fullmatch(cell) else cell for cell in cells]


def is_header(rows: Sequence[Sequence[str]]) -> bool:
    """Whether the first row names columns.

    Either every cell is a usual name or a language, or cells have at most three words without sentence ends, with a
    usual name among them or numbers below one of them. In other languages: single words above columns of sentences.
    """
    first = [cell.strip().strip('"').lower() for cell in rows[0]]
    known = [_names_a_column(cell) for cell in first]
    if not any(first) or any(first == [cell.strip().lower() for cell in row] for row in rows[1:]):
        return False
    if all(known):
        return len(first) > 1 or first[0] in _NAMES
    names = all(cell and len(cell.split()) <= 3 and not cell.endswith(ENDS) for cell in first)
    if not names or any(map(NUMBER.fullmatch, first)):
        return False
    numbers = any(all(NUMBER.fullmatch(cell.strip()) for cell in column) for column in zip(*rows[1:], strict=False))
    usual = any(cell in _NAMES for cell in first) and not _like_the_rest(first, rows[1:])
    return numbers or usual or _above_sentences(first, rows[1:])


def _names_a_column(cell: str) -> bool:
    """Whether a cell is a usual column name, a language, or both together: `English sentence`."""
    words = re.split(r"[\s_-]+", cell)
    if cell in _NAMES or cell in _LANGUAGES or re.fullmatch(r"[a-z]{2}[-_][a-z]{2}", cell):
        return True
    return all(word in _NAMES or word in _LANGUAGES for word in words) and not _NAMES.isdisjoint(words)


def _like_the_rest(first: Sequence[str], rows: Sequence[Sequence[str]]) -> bool:
    """Whether the cells of the first row are about as long as those below: `answer` above single words."""
    below = [cell for row in rows for cell in row]
    return bool(below) and max(map(len, below)) <= 2 * max(map(len, first))


def _above_sentences(first: Sequence[str], rows: Sequence[Sequence[str]]) -> bool:
    """Whether the first row has single words that do not occur below it, and one of the columns holds sentences."""
    if len(first) < 2 or len(rows) < _ROWS_BELOW or any(len(cell.split()) != 1 for cell in first):
        return False
    columns = [[cell.strip() for cell in column] for column in zip(*rows, strict=False)][: len(first)]
    hold = [all(cell.endswith(ENDS) or _length(cell) >= 3 for cell in column) for column in columns]
    return any(hold) and all(
        sentences or name not in map(str.lower, column)
        for name, sentences, column in zip(first, hold, columns, strict=False)
    )


def odd_column(rows: Sequence[Sequence[str]]) -> str | None:
    """The problem with rows whose first two cells should be a sentence and its translation, or None."""
    if not rows:
        return None
    width = min(map(len, rows))
    columns = [[row[at].strip() for row in rows] for at in range(width)]
    kinds = [column_kind(column) for column in columns]
    for index, kind in enumerate(kinds):
        if kind and (index < 2 or (kind in ("numbers", "labels") and width > 2)):
            return f"has {kind} in column {index + 1}"
    words = [sum(map(_length, column)) / len(column) for column in columns[:2]]
    for index in range(2):
        single = all(len(cell.split()) == 1 and not cell.endswith(ENDS) for cell in columns[index])
        # A few different words may be translations.
        single &= len(rows) >= 10 or index == 0 or len(set(columns[index])) < len(rows)
        if single and words[index] == 1 and words[1 - index] >= 3:
            return f"has single words in column {index + 1}, next to longer texts"
    return None


def column_kind(cells: Sequence[str]) -> str | None:
    filled = [cell for cell in cells if cell]
    if len(filled) < len(cells) / 2:
        return "few cells"
    if sum(bool(NUMBER.fullmatch(cell)) for cell in filled) > 0.9 * len(filled):
        return "numbers"
    distinct = set(filled)
    short = all(len(cell.split()) <= 3 and not cell.endswith(ENDS) for cell in filled)
    if short and (distinct <= _LANGUAGES or (len(filled) >= 10 and len(distinct) <= max(1, 0.15 * len(filled)))):
        return "labels"
    return None


def _length(cell: str) -> float:
    """Length in words, or an estimate for a script without spaces."""
    return max(len(cell.split()), len(cell) / 4 if writes_no_spaces(cell) else 1)
