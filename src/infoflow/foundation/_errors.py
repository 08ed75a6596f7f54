"""Errors that a user can fix, and faults of disk, memory, system and model hub in plain words."""

import difflib
import errno
import importlib.metadata
import os
import re
import sys
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from threading import Lock
from typing import Any, ClassVar

_LONGEST_WORD = 300  # characters of a path or a value
_LONGEST_NAME = 80  # characters that are compared with known names
_HIDDEN = ("Cc", "Cf", "Cs", "Zl", "Zp")
_JOINERS = "\u200c\u200d"  # part of the spelling of several scripts


class UserError(Exception):
    """A mistake of the user: the command line prints it without a traceback and exits with code 2.

    The message states the problem, the constraint, the actual value, and the remedy. The value may be hostile, so the
    message is neither endless nor able to control the terminal.
    """

    def __init__(self, message: str = "") -> None:
        super().__init__(showable(message))


def missing_extra(feature: str, package: str, extra: str) -> UserError:
    return UserError(f"{feature} needs {package}. Install it: {install_command(requirements(extra))}")


def requirements(extra: str = "") -> list[str]:
    """Packages that infoflow or one of its extras requires, such as `gguf>=0.17`; empty if it is not installed."""
    try:
        stated = importlib.metadata.requires("infoflow") or []
    except importlib.metadata.PackageNotFoundError:
        return []
    parts = [one.partition(";") for one in stated]
    wanted = f"extra == '{extra}'" if extra else ""
    return [name.strip() for name, _, marker in parts if marker.replace('"', "'").strip() == wanted]


def install_command(packages: Sequence[str]) -> str:
    """The command that adds packages to this environment, with or without pip in it."""
    python = (sys.executable or "python").removeprefix(f"{Path.cwd()}{os.sep}")
    start = f"{python} -m pip install" if find_spec("pip") else f"uv pip install --python {python}"
    return " ".join([start, *(f'"{one}"' if re.search(r"[<>=]", one) else one for one in packages)])


def did_you_mean(name: object, known: Iterable[str], before: str = "") -> str:
    """A question for a message, with the known name nearest to `name` after `before`; "" if none is near.

    >>> did_you_mean("causal-ml", ["causal-lm", "masked-lm"])
    ' Did you mean causal-lm?'
    """
    near = difflib.get_close_matches(str(name)[:_LONGEST_NAME], known, n=1)
    return f" Did you mean {before}{near[0]}?" if near else ""


def showable(message: str) -> str:
    """The message without hidden characters, with overlong words shortened to their beginning and end."""
    return re.sub(rf"\S{{{_LONGEST_WORD},}}", _shortened, visible(message))


def visible(text: str) -> str:
    """Replace characters that would control a terminal by spaces.

    These are control characters except line breaks, and marks that change the writing direction.
    """
    return text if text.isascii() and text.isprintable() else "".join(" " if _is_hidden(c) else c for c in text)


def _is_hidden(char: str) -> bool:
    return char != "\n" and char not in _JOINERS and unicodedata.category(char) in _HIDDEN


def _shortened(word: re.Match[str]) -> str:
    return f"{word[0][:100]}…{word[0][-60:]} ({len(word[0]):,} characters)"


_ROOM = "Free some space, or choose another --out; finished work is kept, and the same command continues."
_PLACE = "Choose a readable and writable folder on a local disk."
_MEMORY = (
    "Close other programs, or lower analysis.tokens_per_batch or training.micro_tokens with --set; in a study also "
    "--processes."
)
_LIMIT = "Raise that limit (ulimit -a shows it), or use fewer --threads and --processes."
_ERRNO = {
    errno.ENOSPC: ("The disk is full", _ROOM),
    errno.EDQUOT: ("The disk quota is used up", _ROOM),
    errno.EFBIG: ("A file became larger than this system allows (ulimit -f)", _ROOM),
    errno.EROFS: ("The file system is read-only", "Choose another --out."),
    errno.EACCES: ("No permission", _PLACE),
    errno.EPERM: ("No permission", _PLACE),
    errno.EIO: ("The disk or the network drive failed to read or write", _PLACE),
    errno.ESTALE: ("The network drive lost a file", _PLACE),
    errno.ENOTSUP: ("The file system does not support this operation", _PLACE),
    errno.ENAMETOOLONG: ("A name is too long for this file system (255 bytes, as a rule)", "Choose a shorter name."),
    errno.ELOOP: ("Links lead in a circle", "Name the file or folder itself."),
    errno.ENOTDIR: ("Part of the path is a file, not a folder", "Choose another path."),
    errno.EISDIR: ("There is a folder where a file is needed", "Choose another path."),
    errno.EEXIST: ("There is a file where a folder is needed", "Choose another path."),
    errno.ENOTEMPTY: ("A folder that must be replaced is in use", "Choose another --out."),
    errno.ENOENT: ("A file or folder is missing, or was removed while in use", "Run the same command again."),
    errno.ENOMEM: ("The machine's memory is full", _MEMORY),
    errno.EAGAIN: ("The system cannot start another process or thread (ulimit -u)", _LIMIT),
    errno.EMFILE: ("Too many files are open (ulimit -n)", _LIMIT),
    errno.ENFILE: ("Too many files are open on this machine", _LIMIT),
}
_FULL_MEMORY = f"The machine's memory is full.\n{_MEMORY}"
# safetensors, Arrow, torch and Python's threads raise their own types, which carry only the text.
_TEXTS = {
    "No space left on device": f"The disk is full.\n{_ROOM}",
    "Disk quota exceeded": f"The disk quota is used up.\n{_ROOM}",
    "File too large": f"{_ERRNO[errno.EFBIG][0]}.\n{_ROOM}",
    "CUDA out of memory": "The GPU's memory is full.\nUse --device cpu, or lower analysis.tokens_per_batch with --set.",
    "can't allocate memory": _FULL_MEMORY,
    "Cannot allocate memory": _FULL_MEMORY,
    "std::bad_alloc": _FULL_MEMORY,
    "can't start new thread": f"The system cannot start another thread (ulimit -u, or memory).\n{_LIMIT}",
    "Resource temporarily unavailable": f"{_ERRNO[errno.EAGAIN][0]}.\n{_LIMIT}",
    "Too many open files": f"{_ERRNO[errno.EMFILE][0]}.\n{_LIMIT}",
}
_DISK = ("requested and", "unexpected pos", "PytorchStreamWriter failed")
"""How NumPy and torch report that a file accepted too few bytes, without the system's reason."""


def full_disk(error: BaseException) -> int | None:
    """The system's number of a full disk or an exhausted quota, whichever library reports it; otherwise None."""
    for code in (errno.ENOSPC, errno.EDQUOT):
        if getattr(error, "errno", None) == code or os.strerror(code) in str(error):
            return code
    return None


def plain_fault(error: BaseException) -> str | None:
    """The fault and its remedy, in two lines; None if neither the error's type nor its text concerns the machine."""
    if isinstance(error, OSError) and error.errno in _ERRNO:
        what, advice = _ERRNO[error.errno]
        where = f": {os.fsdecode(error.filename)}" if isinstance(error.filename, str | bytes | os.PathLike) else ""
        return f"{what}{where}.\n{advice}"
    if isinstance(error, MemoryError):
        return _FULL_MEMORY
    text = str(error)
    if isinstance(error, OSError | RuntimeError) and any(sign in text for sign in _DISK):
        return f"A file could not be written completely: the disk may be full.\n{_ROOM}"
    return next((message for sign, message in _TEXTS.items() if sign in text), None)


_SECONDS_TO_CONNECT, _SECONDS_TO_ANSWER = 10, 30
_TRIES = 2


@contextmanager
def patient_hub() -> Iterator[None]:
    """Inside the block, use only the cache once two successive requests to the hub have had no answer.

    Otherwise the hub's clients would try each request six times, for up to 100 seconds each. `HF_HUB_DOWNLOAD_TIMEOUT`
    may allow a longer wait. Threads that are in the block at the same time share one client factory, since setting a
    new one would close the clients of the others.
    """
    _Inside.enter()
    try:
        yield
    finally:
        _Inside.leave()


class _Inside:
    """The number of threads inside `patient_hub`, and the client factory that was replaced."""

    _lock: ClassVar[Lock] = Lock()
    _count: ClassVar[int] = 0
    _factory: ClassVar[Any] = None

    @classmethod
    def enter(cls) -> None:
        from huggingface_hub import set_client_factory
        from huggingface_hub.utils import _http

        with cls._lock:
            cls._count += 1
            if cls._count > 1:
                return
            # The factory that a user has set, which no public function returns.
            factory = cls._factory = getattr(_http, "_GLOBAL_CLIENT_FACTORY", _http.default_client_factory)
            requests = _Requests()
            set_client_factory(lambda: requests.watched(factory()))

    @classmethod
    def leave(cls) -> None:
        from huggingface_hub import set_client_factory

        with cls._lock:
            cls._count -= 1
            if cls._count == 0:
                set_client_factory(cls._factory)


class _Requests:
    """Counts successive requests without an answer; thread-safe."""

    def __init__(self) -> None:
        self._unanswered = 0

    def watched(self, client: Any) -> Any:
        """Wrap the client's `send`, through which all of its requests go, to count unanswered ones."""
        client.send = self._watched(client.send)
        return client

    def _watched(self, send: Callable[..., Any]) -> Callable[..., Any]:
        def bounded(request: Any, **options: Any) -> Any:
            from huggingface_hub.errors import OfflineModeIsEnabled

            if self._unanswered >= _TRIES:
                raise OfflineModeIsEnabled(f"{request.url.host} does not answer")
            request.extensions["timeout"] = _bounded(request.extensions.get("timeout") or {})
            try:
                answer = send(request, **options)
            except Exception:
                self._unanswered += 1
                raise
            self._unanswered = 0
            return answer

        return bounded


def _bounded(seconds: dict[str, float | None]) -> dict[str, float]:
    from huggingface_hub import constants

    limits = dict.fromkeys(("read", "write", "pool"), _SECONDS_TO_ANSWER) | {"connect": _SECONDS_TO_CONNECT}
    allowed = {name: max(limit, constants.HF_HUB_DOWNLOAD_TIMEOUT) for name, limit in limits.items()}
    return {name: min(seconds.get(name) or limit, limit) for name, limit in allowed.items()}
