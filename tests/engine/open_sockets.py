"""What a process has open to the network."""

import psutil


def sockets(process: int | None = None) -> set[tuple]:
    """Addresses of the network that a process listens at or speaks through."""
    found = psutil.Process(process).net_connections(kind="inet")
    return {(connection.laddr, connection.raddr, connection.status) for connection in found}
