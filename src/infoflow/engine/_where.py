"""Values of `--cluster`, and the folder by which a worker recognises the study's files."""

import os
import re
import secrets
import shutil
import socket
from pathlib import Path

from infoflow.foundation import UserError, as_written, current_display, read_object, writable

from ._child import engine_folder

# Values of `--cluster`: a port of this machine, a scheduler's address, or the file that a scheduler wrote.


def parse_listen(where: str) -> tuple[str, int]:
    """Host and port of `listen[:HOST[:PORT]]`; defaults: the address of this machine's name, and any port.

    Raises:
        UserError: The value is malformed, or this machine's name has no address.
    """
    parts = re.fullmatch(r"listen(?::(\[[0-9a-fA-F:.]+\]|[^:\[\]]+)(?::(\d{1,5}))?)?", where)
    if not parts or int(parts[2] or 0) > 65535:
        raise UserError(f"--cluster must be listen, listen:HOST or listen:HOST:PORT. Got {where}.")
    if parts[1]:
        host = parts[1].strip("[]")
        if host in ("0.0.0.0", "::", "*"):
            raise UserError("--cluster listen needs a specific address of this machine, not all of them: name one.")
        return host, int(parts[2] or 0)
    try:
        host = socket.gethostbyname(socket.gethostname())
    except OSError:
        raise UserError(
            f"The host name of this machine, {socket.gethostname()}, has no address. Name one: --cluster listen:HOST"
        ) from None
    if host.startswith("127."):
        current_display().note(
            f"{socket.gethostname()} resolves to {host}, which only this machine can reach. For other machines name an "
            "address: --cluster listen:HOST"
        )
    return host, 0


def require_free(host: str, port: int) -> None:
    """
    Raises:
        UserError: This machine has no such address, or another program listens there.
    """
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            if os.name == "posix":  # on Windows every port would look free
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        raise UserError(
            f"--cluster listen: cannot listen at {host}:{port} ({error.strerror or error}). Name an address of "
            "this machine: listen:HOST:PORT"
        ) from None


def address_in(file: str) -> str:
    try:
        address = read_object(Path(file))["address"]
        if isinstance(address, str):
            return address
        raise ValueError("address must be text")
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        raise UserError(
            f"--cluster must be listen, an address such as tls://HOST:8786, or a scheduler file. Got "
            f"{as_written(file)}, which is not a readable scheduler file."
        ) from None


def require_private(address: str, insecure: bool) -> None:
    """
    Raises:
    UserError: The address has no valid port, or the connection is not encrypted."""
    scheme, _, rest = address.partition("://")
    host, _, port = rest.rpartition(":")
    host = host.strip("[]")
    if scheme != "inproc" and not (port.isascii() and port.isdecimal() and len(port) <= 5 and int(port) <= 65535):
        raise UserError(
            f"--cluster must be listen, an address such as tls://HOST:8786, or a scheduler file. "
            f"Got {as_written(address)}, whose port is not a number in 0..65535."
        )
    if insecure or scheme in ("tls", "wss", "inproc") or host in ("127.0.0.1", "::1", "localhost"):
        return
    raise UserError(
        f"{address} is not encrypted: anyone who reaches that port can run code as you. Use tls://, or --insecure "
        "in a private network."
    )


# The folder `work/.engine/NONCE` of a run, by which a worker recognises that it sees the study's files.


LOCKS = "locks"


class RunNotes:
    """Final messages of the stages in one run of the engine; removed when the engine closes."""

    def __init__(self, folder: Path | str) -> None:
        self.folder = str(Path(folder).absolute())
        self.nonce = secrets.token_hex(8)
        self._runs = 0

    def open(self) -> None:
        """Create the folder and remove leftovers of killed engines; only one engine works in a run folder at a time.

        Raises:
            UserError: The folder cannot be created.
        """
        home = engine_folder(self.folder)
        with writable(home):
            (home / LOCKS).mkdir(parents=True, exist_ok=True)
            for left in home.iterdir():
                if left.is_dir() and left.name != LOCKS:
                    shutil.rmtree(left, ignore_errors=True)
            (home / self.nonce).mkdir()

    def new_run(self) -> str:
        """Create a folder, below `work/.engine`, for one more graph, and return its name."""
        self._runs += 1
        name = f"{self.nonce}/{self._runs}"
        (engine_folder(self.folder) / name).mkdir()
        return name

    def close(self) -> None:
        shutil.rmtree(engine_folder(self.folder) / self.nonce, ignore_errors=True)
