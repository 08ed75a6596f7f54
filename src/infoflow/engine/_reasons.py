"""Explains why a study cannot be reached."""

import socket
import ssl
from collections.abc import Iterator

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
