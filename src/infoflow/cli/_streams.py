"""Standard output and error of the program: what cannot be shown is lost, and never ends the work."""

import codecs
import errno
import io
import os
import sys
import time

_PLAIN = str.maketrans({"–": "-", "−": "-", "—": "-", "×": "x", "…": "...", "→": "->", "“": '"', "”": '"', "’": "'"})
_GONE = [errno.EPIPE, errno.EBADF, errno.ECONNRESET, errno.EIO]  # the reader went away: nobody misses the rest
if os.name == "nt":
    _GONE.append(errno.EINVAL)  # what Windows says of a closed pipe


class PatientFile(io.RawIOBase):
    """A file descriptor that takes every write, also where its reader has gone away or its disk is full."""

    def __init__(self, descriptor: int) -> None:
        super().__init__()
        self._descriptor = descriptor
        self.failure: OSError | None = None
        """The first refusal that a user should hear of: a full disk, not a reader who had enough."""

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._descriptor

    def isatty(self) -> bool:
        return os.isatty(self._descriptor)

    def write(self, data, /) -> int:
        view = memoryview(data).cast("B")
        done = 0
        while done < len(view):
            try:
                done += os.write(self._descriptor, view[done:])
            except BlockingIOError:  # a pipe that another program made non-blocking is full
                time.sleep(0.01)
            except OSError as error:
                if error.errno not in _GONE:
                    self.failure = self.failure or error
                break
        return len(view)


class _Open(io.TextIOWrapper):
    """A stream that code of a user's own cannot take from the lines which come after it."""

    def close(self) -> None:
        self.flush()


def use_patient_streams() -> PatientFile:
    """Put patient streams in the place of `sys.stdout` and `sys.stderr`; the file under standard output."""
    _open_closed()
    codecs.register_error("infoflow-plain", _plainly)
    output = PatientFile(1)
    sys.stdout = _text(output, sys.stdout, line_buffering=os.isatty(1))
    sys.stderr = _text(PatientFile(2), sys.stderr, line_buffering=True)
    return output


def _open_closed() -> None:
    """A closed standard stream would lend its number to the next file that is opened, and our lines would go there."""
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number, which is this one


def _text(file: PatientFile, before: io.TextIOBase | None, line_buffering: bool) -> io.TextIOWrapper:
    encoding = getattr(before, "encoding", None) or "utf-8"
    return _Open(io.BufferedWriter(file), encoding=encoding, errors="infoflow-plain", line_buffering=line_buffering)


def _plainly(error: UnicodeError) -> tuple[str | bytes, int]:
    """What an encoding cannot show, in plain signs where there are some, else as its number."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text = error.object[error.start : error.end].translate(_PLAIN)
    return text.encode("ascii", "backslashreplace").decode("ascii"), error.end
