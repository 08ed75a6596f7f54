"""How other machines find a study: `engine.json`, certificates, and why a study cannot be reached."""

import json
import os
import platform
import re
import socket
import ssl
import stat
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

from infoflow import foundation
from infoflow.foundation import processor

_NAME = "infoflow-study"
_EARLIER = timedelta(days=1)  # the clock of another machine may be behind, and the certificate must be valid there too
_LATER = timedelta(days=366)


def self_signed() -> tuple[str, str]:
    """A new certificate and its private key, both in PEM format."""
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.hazmat.primitives.hashes import SHA256
        from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
    except ImportError:
        raise foundation.missing_extra("--cluster listen", "cryptography", "cluster") from None
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, _NAME)])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(_NAME)]), critical=False)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _EARLIER)
        .not_valid_after(now + _LATER)
        .sign(key, SHA256())
    )
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return certificate.public_bytes(Encoding.PEM).decode(), private.decode()


_NOT_YET_VALID, _EXPIRED = 9, 10  # OpenSSL's codes


class Unreachable(Exception):
    """A worker cannot join its study; the message says why."""


def unreachable_because(error: BaseException, address: str) -> str:
    """Explain what prevents this machine from reaching the study at `address`; `error` comes from the connection."""
    chain = list(_chain(error))
    for one in chain:
        if isinstance(one, ssl.SSLCertVerificationError):
            return _certificate_fault(one)
    for kind, text in _KINDS:
        if any(isinstance(one, kind) for one in chain):
            return text.format(address=address)
    return f"{chain[-1] or type(chain[-1]).__name__} ({address})"


_KINDS: tuple[tuple[type[BaseException], str], ...] = (
    (ssl.SSLError, "{address} does not use the study's encryption: another program may be listening there"),
    (socket.gaierror, "the host name in {address} cannot be resolved (DNS)"),
    (
        ConnectionRefusedError,
        "nothing listens at {address}: the study was killed, or a firewall rejects the connection",
    ),
    (ConnectionError, "the connection to {address} was reset"),
    (TimeoutError, "{address} does not answer: a firewall may drop the connection"),
)


def _certificate_fault(error: ssl.SSLCertVerificationError) -> str:
    if error.verify_code in (_NOT_YET_VALID, _EXPIRED):
        what = "not valid yet" if error.verify_code == _NOT_YET_VALID else "no longer valid"
        return f"by this machine's clock the study's certificate is {what}: correct the clock"
    return "another study uses that address"


def _chain(error: BaseException) -> Iterator[BaseException]:
    """An error and its causes, the first cause last."""
    seen: set[int] = set()
    one: BaseException | None = error
    while one is not None and id(one) not in seen:
        seen.add(id(one))
        yield one
        real = getattr(one, "real_error", None)  # tornado's
        one = real or one.__cause__ or one.__context__


FILE = "engine.json"
_LIBRARIES = (
    *("numpy", "scipy", "scikit-learn", "pandas", "transformers", "tokenizers", "sentencepiece"),
    *("peft", "sacrebleu", "snowballstemmer", "bm25s", "faiss-cpu", "openTSNE"),
)
"""Libraries besides torch that affect numbers, and extras: stages would fail on a machine that lacks one."""
_ADDRESS = re.compile(r"tls://(\[[0-9a-fA-F:.%]{2,60}\]|[^\s/:\[\]\x00-\x1f]{1,253}):([1-9]\d{0,4})", re.ASCII)
_NONCE = re.compile(r"[0-9a-z]{1,64}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Versions:
    """Versions that must agree on all machines for equal numbers, and others for information."""

    infoflow: str
    code: str  # digest of infoflow's source code
    python: str
    torch: str
    processor: str
    libraries: Mapping[str, str] = field(default_factory=dict)  # versions of the other libraries that affect numbers

    @classmethod
    def here(cls) -> "Versions":
        return cls(
            infoflow=foundation.version("infoflow"),
            code=_code_digest(),
            python=".".join(platform.python_version_tuple()[:2]),
            torch=foundation.version("torch"),
            processor=processor(),
            libraries={name: foundation.version(name) for name in _LIBRARIES},
        )

    def refusal(self, here: "Versions") -> str:
        """Why a machine with versions `here` cannot work for this one, or ""."""
        first = {name: (getattr(self, name), getattr(here, name)) for name in ("infoflow", "code", "python", "torch")}
        libraries = {name: (self.libraries.get(name), here.libraries.get(name)) for name in here.libraries}
        differing = [
            f"a different {'infoflow code' if name == 'code' else f'version of {name}'} from the study: {worker}, "
            f"not {study}"
            for name, (study, worker) in (first | libraries).items()
            if study not in (worker, "absent", None)
        ]
        if not differing:
            return ""
        return (
            f"{platform.node()} has {'; '.join(differing)}. Results could differ: install the same "
            "versions on all machines."
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Invitation:
    """The content of `engine.json`. Anyone who can read it can run code as the user, so only the user may read it."""

    address: str
    folder: str  # the run folder, under the path common to all machines
    certificate: str
    key: str
    nonce: str
    versions: Versions

    def write(self, folder: Path | str) -> None:
        """Write it to the run folder atomically, readable only by its owner."""
        path = Path(folder) / FILE
        temporary = path.with_name(f".{FILE}.{os.getpid()}.partial")
        with foundation.writable(path):
            temporary.unlink(missing_ok=True)
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                json.dump(asdict(self), file)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)

    def remove(self, folder: Path | str) -> None:
        with suppress(OSError, foundation.UserError):
            if read_invitation(folder) == self:
                (Path(folder) / FILE).unlink()


def read_invitation(folder: Path | str) -> Invitation | None:
    path = Path(folder) / FILE
    try:
        found = path.stat()
        if os.name != "nt" and found.st_mode & 0o077:
            raise foundation.UserError(
                f"{path} must be readable only by you, since it gives access to the study. Its mode is "
                f"{found.st_mode & 0o777:03o}. Start the study again on a file system that preserves file modes."
            )
        if hasattr(os, "getuid") and found.st_uid not in (0, os.getuid()):
            raise foundation.UserError(f"{path} was written by another user. A worker only joins its own user's study.")
        return _invitation(foundation.read_object(path))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise foundation.UserError(
            f"{FILE} in {foundation.as_written(str(folder))} cannot be read: {error.strerror}. "
            "Name a study's run folder."
        ) from None
    except ValueError as error:
        raise foundation.UserError(
            f"{path} is not an invitation to a study: {error}. Start the study again with --cluster listen."
        ) from None


def _invitation(fields: dict[str, Any]) -> Invitation:
    """The invitation with these fields; a ValueError if one is missing or invalid."""
    try:
        invitation = Invitation(**{**fields, "versions": Versions(**fields["versions"])})
    except (TypeError, KeyError):
        raise ValueError("it has the wrong entries") from None
    texts = {**fields, **fields["versions"]}
    libraries = texts.pop("libraries", {})
    del texts["versions"]
    if not isinstance(libraries, dict):
        raise ValueError("libraries must be an object")
    for name, value in {**texts, **libraries}.items():
        if not isinstance(value, str) or "\0" in value:
            raise ValueError(f"{name} must be text")
    address = _ADDRESS.fullmatch(invitation.address)
    if not address or int(address[2]) > 65535:
        raise ValueError(f"address must be tls://HOST:PORT. Got {foundation.as_written(invitation.address)}")
    if not _NONCE.fullmatch(invitation.nonce):
        raise ValueError(f"nonce must consist of letters and digits. Got {foundation.as_written(invitation.nonce)}")
    if not Path(invitation.folder).is_absolute():
        raise ValueError(f"folder must be an absolute path. Got {foundation.as_written(invitation.folder)}")
    return invitation


def require_own(folder: Path) -> None:
    """Refuse a run folder that others may change, since its plan can name Python files that a worker runs."""
    if not hasattr(os, "getuid"):  # Windows
        return
    for entry in [folder, *folder.glob("*"), *folder.glob("work/*"), *folder.glob("work/.engine/*")]:
        try:
            found = entry.lstat()
        except FileNotFoundError:  # replaced at this moment
            continue
        if found.st_uid not in (0, os.getuid()):
            why = "belongs to another user"
        elif found.st_mode & stat.S_IWOTH and not stat.S_ISLNK(found.st_mode):
            why = "is writable by everybody"
        else:
            continue
        raise foundation.UserError(
            f"A worker runs the folder's contents as you, so only you may be able to change them. {entry} {why}. Use a "
            "folder of your own, or remove the permission: chmod -R o-w FOLDER"
        )


@cache
def _code_digest() -> str:
    root = Path(__file__).parents[1]
    return foundation.digest(
        {path.relative_to(root).as_posix(): foundation.file_digest(path) for path in sorted(root.rglob("*.py"))}
    )
