"""How other machines find a study: the file `engine.json` in its folder, with what must be the same on all of them."""

import json
import os
import platform
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

from infoflow.foundation import UserError, as_written, digest, file_digest, processor, version, writable

FILE = "engine.json"


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


@cache
def _code_digest() -> str:
    """Of all source files of this package."""
    root = Path(__file__).parents[1]
    return digest({path.relative_to(root).as_posix(): file_digest(path) for path in sorted(root.rglob("*.py"))})
