"""A TCP proxy between a worker and its study that can reset connections, or fall silent."""

import socket
import threading
from contextlib import suppress


class Proxy:
    """Passes on what comes to `port`.

    `break_off()` resets all connections; after `fall_silent()` nothing is passed on, and nothing closed.
    """

    def __init__(self, target: tuple[str, int]) -> None:
        self._target, self._listener = target, socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._mute = False
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, name="proxy", daemon=True).start()

    def __enter__(self) -> "Proxy":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Refuse what comes from now on."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.break_off()

    def break_off(self) -> None:
        while self._open:
            one = self._open.pop()
            with suppress(OSError):
                one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # RST, not FIN
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def fall_silent(self) -> None:
        self._mute = True

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                self._open.append(near)
                if self._mute:
                    continue
                far = socket.create_connection(self._target)
                self._open.append(far)
                for source, sink in ((near, far), (far, near)):
                    threading.Thread(target=self._pass_on, args=(source, sink), name="proxy", daemon=True).start()

    def _pass_on(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                if not self._mute:
                    sink.sendall(data)
        for one in (source, sink):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
