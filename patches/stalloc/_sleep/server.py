"""The end of the socket that a program has: a thread that takes orders from processes of the same user."""

from __future__ import annotations

import atexit
import contextlib
import os
import socket
import struct
import threading
from pathlib import Path
from typing import Any, Optional

from stalloc._core import _log
from stalloc._sleep import api, boundary, sockets

BOUNDARY, ONCE = "boundary", "once"
_MOST_SECONDS = 24 * 3600.0  # that somebody waits


class Server:
    """Listens until the process ends. `at`: when orders are carried out."""

    def __init__(self, at: str, path: Path) -> None:
        self.path = path
        self._at = at
        self._pid = os.getpid()
        with contextlib.suppress(FileNotFoundError):
            path.unlink()  # of a process that had the number before
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.bind(str(path))
        path.chmod(0o600)
        self._socket.listen()
        atexit.register(self.close)
        threading.Thread(target=self._listen, name="stalloc sleep", daemon=True).start()

    def close(self) -> None:
        if os.getpid() != self._pid:
            return  # a forked child: the socket is its parent's
        self._socket.close()
        with contextlib.suppress(OSError):
            self.path.unlink()

    def leave(self) -> None:
        """In a forked child."""
        self._socket.close()

    def _listen(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return  # closed
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            try:
                _check_peer(connection)
                answer = self._obey(sockets.receive(connection))
            except (ValueError, PermissionError) as error:
                answer = {"ok": False, "error": str(error)}
            sockets.send(connection, answer)

    def _obey(self, message: dict[str, Any]) -> dict[str, Any]:
        order = _order_of(message)
        if self._at == ONCE:
            order.run()
            return order.answer(0)
        boundary.give(order)
        return order.answer(min(float(message.get("timeout", _MOST_SECONDS)), _MOST_SECONDS))


def _check_peer(connection: socket.socket) -> None:
    packed = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    user = struct.unpack("3i", packed)[1]
    if user not in (os.getuid(), 0):
        raise PermissionError(f"user {user} may not put processes of user {os.getuid()} to sleep")


def _order_of(message: dict[str, Any]) -> boundary.Order:
    tags, keep = (_names(message, key) for key in ("tags", "keep"))
    to, device = message.get("to", "host"), message.get("device")
    if message.get("do") == "sleep":
        return boundary.Order(lambda: api.sleep(keep, tags, to, device), wakes=False)
    if message.get("do") == "wake":
        return boundary.Order(lambda: api.wake(tags, device), wakes=True)
    raise ValueError(f"expected an order to sleep or wake, found {message.get('do')!r}")


def _names(message: dict[str, Any], key: str) -> Optional[list[str]]:
    names = message.get(key)
    if names is None or (isinstance(names, list) and all(isinstance(name, str) for name in names)):
        return names
    raise ValueError(f"{key} must be a list of names, found {names!r}")


_server: Optional[Server] = None


def serve(at: str) -> Path:
    """Listens from now on; a second call changes nothing. OSError where there can be no socket."""
    global _server
    if at not in (BOUNDARY, ONCE):
        raise ValueError(f"at must be '{BOUNDARY}' or '{ONCE}': {at!r}")
    if _server is None:
        boundary.serve()
        _server = Server(at, sockets.path_of(os.getpid()))
        os.register_at_fork(after_in_child=_forget)
    return _server.path


def _forget() -> None:
    """A forked child must not keep the socket open: whoever orders would wait for it when the parent has gone."""
    global _server
    if _server is not None:
        _server.leave()
    _server = None


def serve_if_asked(wanted: str) -> None:
    """STALLOC_SLEEP_SOCKET: "1" between iterations, "once" at once."""
    if not wanted:
        return
    try:
        serve(ONCE if wanted == ONCE else BOUNDARY)
    except OSError as error:
        _log.warning(f"takes no orders to sleep (STALLOC_SLEEP_SOCKET): {error}")
