"""The end of the socket that a program has: threads that take orders from processes of the same user.

A connection is an order, and its answer. A sleep that was answered is to be kept by its client, in another message; a
client that undoes it, or has gone, did not want it or does not know of it, and it is undone.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import socket
import threading
import time
from pathlib import Path
from typing import Any, Optional

from stalloc.core import log, sleep_places, sleep_sockets
from stalloc.train import lifetime
from stalloc.train.sleep import api, boundary, orders
from stalloc.train.sleep.orders import Order

BOUNDARY, ONCE = "boundary", "once"
_MESSAGE_SECONDS = 10.0  # for an order, once somebody has connected
_SEND_SECONDS = 60.0
_PAUSE_SECONDS = 0.5  # where there is no descriptor for a connection
_UNDER_WAY_SECONDS = 60.0  # so long the program's end waits for a sleep or wake that runs on another thread
_FAREWELL_SECONDS = 2.0  # and for the answers


class Server:
    """Listens until the process ends. `at`: when orders are carried out."""

    def __init__(self, at: str) -> None:
        self._at = at
        self._pid = os.getpid()
        self._socket, self.path = _listening()
        self._identity = _identity(self.path)
        self._lock = threading.Condition()
        self._connections: dict[socket.socket, bool] = {}  # guarded by the lock; True: it waits for an answer
        self._closed = False
        threading.Thread(target=self._listen, name="stalloc sleep", daemon=True).start()

    def close(self) -> None:
        """Orders that wait are refused."""
        if os.getpid() != self._pid or self._closed:
            return  # a forked child: the socket is its parent's
        self._closed = True
        boundary.end(_UNDER_WAY_SECONDS if self._at == ONCE else 0)
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # the listener would wait on
        self._socket.close()
        if _identity(self.path) == self._identity:
            with contextlib.suppress(OSError):
                self.path.unlink()
        with self._lock:
            self._lock.wait_for(lambda: not any(self._connections.values()), _FAREWELL_SECONDS)

    def leave(self) -> None:
        """In a forked child, which must keep nothing open: who orders would wait for it when the parent has gone."""
        for connection in (self._socket, *list(self._connections)):
            connection.close()

    def _listen(self) -> None:
        while not self._closed:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                time.sleep(0 if self._closed else _PAUSE_SECONDS)
                continue
            with self._lock:
                self._connections[connection] = False
            try:
                threading.Thread(target=self._serve, args=(connection,), name="stalloc sleep", daemon=True).start()
            except RuntimeError:  # the process has as many threads as it may
                connection.close()
                self._owes(connection, None)

    def _serve(self, connection: socket.socket) -> None:
        try:
            with connection:
                self._answer(connection)
        except Exception as error:  # an OSError: the client has gone
            if not isinstance(error, OSError):
                log.error(f"an order to sleep failed: {error!r}")
        finally:
            self._owes(connection, None)

    def _owes(self, connection: socket.socket, waits: Optional[bool]) -> None:
        """Whether who connected waits for an answer; None: it is over."""
        with self._lock:
            if waits is None:
                self._connections.pop(connection, None)
            else:
                self._connections[connection] = waits
            self._lock.notify_all()

    def _answer(self, connection: socket.socket) -> None:
        lines = sleep_sockets.Lines(connection)
        order: Optional[Order] = None
        try:
            message = lines.receive(_MESSAGE_SECONDS)
            self._owes(connection, True)
            _check_peer(connection)
            timeout = sleep_sockets.seconds_of(message.get("timeout", sleep_sockets.LONGEST_TIMEOUT))
            order = _order_of(message, connection)
            answer = self._obey(order, timeout)
        except Exception as error:
            answer = sleep_sockets.failed(str(error) or type(error).__name__)
        sleeps = order is not None and not order.wakes and answer["ok"]
        wanted: Any = None
        try:
            connection.settimeout(_SEND_SECONDS)
            sleep_sockets.send(connection, answer)
            self._owes(connection, False)
            if sleeps:
                wanted = lines.receive(None).get("do")
        finally:
            if order is not None and sleeps and wanted != "keep":
                undone = self._undo(order)
                if wanted == "undo":
                    sleep_sockets.send(connection, undone)
                elif not undone["ok"] and undone["error"] not in (boundary.ENDING, orders.HELD):
                    orders.warn_of_sleep("was put to sleep by a process that has gone", undone["error"])

    def _obey(self, order: Order, timeout: float) -> dict[str, Any]:
        if self._at == ONCE:
            boundary.at_once(order)
        else:
            boundary.give(order)
        return order.answer(timeout)

    def _undo(self, order: Order) -> dict[str, Any]:
        if not orders.is_held(order):
            return {"ok": True}  # somebody has woken it
        return self._obey(Order(lambda: orders.undo(order), wakes=True), sleep_sockets.LONGEST_TIMEOUT)


def _listening() -> tuple[socket.socket, Path]:
    """In the first directory that can have it. OSError says what is in the way in each."""
    obstacles = []
    for directory in sleep_places.of_user(os.getuid(), os.environ.get("XDG_RUNTIME_DIR")):
        try:
            with contextlib.suppress(FileExistsError):
                directory.mkdir(mode=0o700)
            with sleep_places.opened(directory, os.getuid()) as descriptor:
                sleep_places.sweep(directory, descriptor)
                return _bound(directory, descriptor), directory / sleep_places.own_name()
        except OSError as error:
            obstacles.append(str(error))
    raise OSError("; ".join(obstacles))


def _bound(directory: Path, descriptor: int) -> socket.socket:
    name = sleep_places.own_name()
    at = sleep_places.address(directory, descriptor, name)
    if sleep_places.is_listened_to(at):
        raise OSError(f"{directory / name}: a process listens there already")
    with contextlib.suppress(FileNotFoundError):
        os.unlink(name, dir_fd=descriptor)  # of a process that had the number before
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listening.bind(at)
        os.chmod(at, 0o600)
        listening.listen()
    except BaseException:
        listening.close()
        raise
    return listening


def _identity(path: Path) -> Optional[tuple[int, int]]:
    try:
        found = path.lstat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _check_peer(connection: socket.socket) -> None:
    _, user = sleep_sockets.peer(connection)
    if user not in (os.getuid(), 0):
        raise PermissionError(f"user {user} may not put processes of user {os.getuid()} to sleep")


def _order_of(message: dict[str, Any], connection: socket.socket) -> Order:
    tags, keep = (_names(message, key) for key in ("tags", "keep"))
    device = message.get("device")
    if message.get("do") == "sleep":
        carry_out = api.sleeper(keep, tags, message.get("to", "host"), device)
    elif message.get("do") == "wake":
        carry_out = api.waker(tags, device)
    else:
        raise ValueError(f"expected an order to sleep or wake, found {sleep_sockets.short(message.get('do'))}")
    return Order(carry_out, message["do"] == "wake", lambda: sleep_sockets.is_open(connection))


def _names(message: dict[str, Any], key: str) -> Optional[list[str]]:
    names = message.get(key)
    if names is None or (isinstance(names, list) and all(isinstance(name, str) for name in names)):
        return names
    raise ValueError(f"{key} must be a list of names, found {sleep_sockets.short(names)}")


# One a process -------------------------------------------------------------------------------------------------------

_starting = threading.Lock()
_server: Optional[Server] = None
_watches_forks = False


def serve(at: str) -> Path:
    """Listens from now on; a second call changes nothing. OSError where there can be no socket."""
    global _server, _watches_forks
    if at not in (BOUNDARY, ONCE):
        raise ValueError(f"at must be '{BOUNDARY}' or '{ONCE}': {at!r}")
    with _starting:
        if _server is None:
            _server = Server(at)
            if at == BOUNDARY:
                boundary.serve()
            lifetime.before_the_end(_server.close)
            atexit.register(_server.close)  # where there is no session
            if not _watches_forks:
                os.register_at_fork(after_in_child=_forget)
                _watches_forks = True
        return _server.path


def _forget() -> None:
    """In a forked child."""
    global _server, _starting
    _starting = threading.Lock()
    if _server is not None:
        _server.leave()
        boundary.forget()
    _server = None


def serve_if_wanted(wanted: str) -> None:
    """STALLOC_SLEEP_SOCKET: "1" between iterations, "once" at once."""
    if not wanted:
        return
    try:
        serve(ONCE if wanted == ONCE else BOUNDARY)
    except OSError as error:
        log.warning(f"takes no orders to sleep (STALLOC_SLEEP_SOCKET): {error}")
