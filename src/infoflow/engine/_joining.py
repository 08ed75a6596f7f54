"""How other machines find a study and join it: the file `engine.json` in its folder, and `infoflow worker`."""

import json
import os
import platform
import re
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

from infoflow.foundation import (
    Threads,
    UserError,
    as_written,
    available_cores,
    current_display,
    digest,
    file_digest,
    processor,
    read_setting,
    version,
    writable,
)

from ._child import engine_folder

FILE = "engine.json"
_LOOK = 1.0
_LATE = 60.0
"""Seconds that a shared file system may take to show a new folder."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Versions:
    """What must be the same on all machines for the same numbers, and what is only told."""

    infoflow: str
    code: str
    """Digest of infoflow's source."""
    python: str
    torch: str
    processor: str

    @classmethod
    def here(cls) -> "Versions":
        return cls(
            infoflow=version("infoflow"),
            code=_code_digest(),
            python=".".join(platform.python_version_tuple()[:2]),
            torch=version("torch"),
            processor=processor(),
        )

    def refusal(self, here: "Versions") -> str:
        """Why a machine with versions `here` cannot work for this one, or nothing."""
        for name in ("infoflow", "code", "python", "torch"):
            study, worker = getattr(self, name), getattr(here, name)
            if study != worker:
                what = "code of infoflow" if name == "code" else f"version of {name}"
                return (
                    f"{platform.node()} has another {what} than the study: {worker}, not {study}. "
                    "Install the same on all machines."
                )
        return ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Invitation:
    """What `engine.json` holds. Who can read it can run code as the user: it is for the user's eyes alone."""

    address: str
    folder: str
    """The run folder, under the path that all machines must see it by."""
    certificate: str
    key: str
    nonce: str
    versions: Versions

    def write(self, folder: Path | str) -> None:
        """Put it into the run folder, whole, and readable by its owner alone.

        Raises:
            UserError: It cannot be written there.
        """
        path = Path(folder) / FILE
        temporary = path.with_name(f".{FILE}.{os.getpid()}.partial")
        with writable(path):
            temporary.unlink(missing_ok=True)
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                json.dump(asdict(self), file)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)

    def remove(self, folder: Path | str) -> None:
        """Take it away, unless another study has put its own there."""
        with suppress(OSError, UserError):
            if read_invitation(folder) == self:
                (Path(folder) / FILE).unlink()


def read_invitation(folder: Path | str) -> Invitation | None:
    """What lies in the run folder, if anything does.

    Raises:
        UserError: Others may read it, it is another user's, or it makes no sense.
    """
    path = Path(folder) / FILE
    try:
        with path.open(encoding="utf-8") as file:
            found = os.fstat(file.fileno())
            text = file.read(1_000_000)
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise UserError(
            f"{FILE} in {as_written(str(folder))} cannot be read: {reason}. Name a study's run folder."
        ) from None
    if os.name != "nt" and found.st_mode & 0o077:
        raise UserError(
            f"{path} must be readable by you alone: it opens the study to whoever reads it. Its mode is "
            f"{found.st_mode & 0o777:03o}. Start the study again on a file system that keeps modes."
        )
    if hasattr(os, "getuid") and found.st_uid not in (0, os.getuid()):
        raise UserError(f"{path} was written by another user. A worker only joins its own user's study.")
    try:
        fields = json.loads(text)
        return Invitation(**{**fields, "versions": Versions(**fields["versions"])})
    except (ValueError, TypeError, KeyError):
        raise UserError(f"{path} is no invitation of a study. Start the study again with --cluster listen.") from None


def seconds_of(patience: str) -> float:
    """`90s`, `10m`, `2h` in seconds.

    Raises:
        UserError: It is nothing of that kind.
    """
    found = re.fullmatch(r"(\d{1,6}(?:\.\d{1,3})?)(s|m|h)?", patience.strip())
    if not found:
        raise UserError(f"--patience must be a time such as 90s, 10m or 2h. Got {patience}.")
    return float(found[1]) * {"s": 1, "m": 60, "h": 3600}[found[2] or "s"]


def worker(
    run_folder: Path | str,
    jobs: int | None = None,
    threads: int = 1,
    gpus: Sequence[str] | None = None,
    patience: str = "10m",
) -> int:
    """Work for the study in `run_folder` until it ends; returns the exit code, 0.

    Waits for a study that listens there (`--cluster listen`), does its stages, and waits again when it ends. SIGTERM
    and Ctrl-C make it leave politely: what runs here is saved, and goes on elsewhere.

    Args:
        run_folder: The study's folder, which this machine must see under the same path.
        jobs: Stages at a time; default: one for each GPU, else cores / threads.
        threads: Threads of each stage, as the study's plan says, to count how many fit.
        gpus: Numbers or UUIDs of GPUs to use; default: those of `CUDA_VISIBLE_DEVICES`.
        patience: How long to wait for a study: `90s`, `10m`, `2h`.

    Raises:
        UserError: The study runs another version, its folder is not seen here, or `engine.json` is not private.
    """
    from ._worker import serve, visible_devices

    limit = seconds_of(patience)
    folder = Path(run_folder).absolute()
    if gpus is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(gpus)
    threads = read_setting(Threads, threads, "--threads")
    devices = visible_devices()
    jobs = read_setting(Threads, jobs, "--jobs") if jobs else len(devices) or max(1, available_cores() // threads)
    seen: set[str] = set()
    while (invitation := _awaited(folder, limit, seen)) is not None:
        seen.add(invitation.nonce)
        _check(invitation)
        if serve(invitation, jobs, devices) == "left":
            current_display().note("Left the study: what ran here is saved, and goes on elsewhere.")
            return 0
        current_display().note(f"The study has ended. Waiting for another, {patience} at most.")
    return 0


def _awaited(folder: Path, seconds: float, seen: set[str]) -> Invitation | None:
    """The invitation that is not in `seen`, once it is there; None: nothing came."""
    deadline = time.monotonic() + seconds
    told = False
    while True:
        invitation = read_invitation(folder)
        if invitation is not None and invitation.nonce not in seen:
            return invitation
        if time.monotonic() >= deadline:
            if not seen:
                raise UserError(
                    f"No study listens in {folder}. Start one with --cluster listen, on a machine that shares this "
                    "folder, or wait longer for it with --patience."
                )
            return None
        if not told and not seen:
            current_display().note(f"Waiting for a study in {folder} (infoflow study ... --cluster listen).")
            told = True
        time.sleep(min(_LOOK, max(deadline - time.monotonic(), 0.01)))


def _check(invitation: Invitation) -> None:
    here = Versions.here()
    if refusal := invitation.versions.refusal(here):
        raise UserError(refusal)
    if here.processor != invitation.versions.processor:
        current_display().note(
            f"This machine's processor is {here.processor}, the study's {invitation.versions.processor}: numbers may "
            "differ in their last digits."
        )
    deadline = time.monotonic() + _LATE
    while not (engine_folder(invitation.folder) / invitation.nonce).is_dir():
        if time.monotonic() > deadline:
            raise UserError(
                f"This machine does not see the study's folder {invitation.folder}: all machines must see it under "
                "the same path."
            )
        time.sleep(_LOOK)


@cache
def _code_digest() -> str:
    """Of all source files of this package."""
    root = Path(__file__).parents[1]
    return digest({path.relative_to(root).as_posix(): file_digest(path) for path in sorted(root.rglob("*.py"))})
