"""Messages between a program and who gives it orders: one JSON object a line, and what both ends check of them."""

from __future__ import annotations

import json
import select
import socket
import struct
import time
from typing import Any, Optional

LONGEST_TIMEOUT = 24 * 3600.0  # seconds that somebody may wait for the end of an iteration
_MOST_BYTES = 1 << 20  # of a message


def failed(why: str) -> dict[str, Any]:
    """The answer to an order that was not carried out."""
    return {"ok": False, "error": why}


def seconds_of(value: Any) -> float:
    """A timeout. ValueError for what is no number of seconds that somebody can wait."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if is_number and 0 < value <= LONGEST_TIMEOUT:  # NaN is not
        return float(value)
    raise ValueError(f"the timeout must be more than 0 and at most {LONGEST_TIMEOUT:.0f} seconds: {short(value)}")


def send(connection: socket.socket, message: dict[str, Any]) -> None:
    connection.sendall(json.dumps(message).encode() + b"\n")


def parse(line: bytes) -> dict[str, Any]:
    """ValueError for what is no message."""
    try:
        message = json.loads(line)
    except RecursionError:
        raise ValueError("a message is nested too deeply") from None
    if not isinstance(message, dict):
        raise ValueError(f"a message must be an object: {short(message)}")
    return message


class Lines:
    """The messages that come on a connection. For one thread."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._text = b""

    def take(self) -> bool:
        """Reads what has come, and waits for it as the connection does. True: there is a whole message.

        Raises:
            ValueError: the message is longer than any.
            ConnectionError: the other end has gone.
        """
        if b"\n" not in self._text:
            part = self._connection.recv(65536)
            if not part:
                raise ConnectionError("the other end has closed the connection")
            self._text += part
            if len(self._text) > _MOST_BYTES:
                raise ValueError("a message is too long")
        return b"\n" in self._text

    def message(self) -> dict[str, Any]:
        """The next one, once `take` has it. ValueError for what is none."""
        line, _, self._text = self._text.partition(b"\n")
        return parse(line)

    def receive(self, seconds: Optional[float]) -> dict[str, Any]:
        """Waits for one, so long or without end. ValueError for what is none, OSError where none comes."""
        deadline = None if seconds is None else time.monotonic() + seconds
        try:
            while True:
                self._connection.settimeout(None if deadline is None else max(deadline - time.monotonic(), 0.001))
                if self.take():
                    return self.message()
        except socket.timeout as error:  # TimeoutError from Python 3.10 on
            raise TimeoutError(f"no whole message came within {seconds:g} s") from error


def is_open(connection: socket.socket) -> bool:
    """Whether the other end has not closed it, nor died; False where this one has."""
    if connection.fileno() < 0:
        return False
    poll = select.poll()
    poll.register(connection, 0)  # POLLHUP and POLLERR are reported in any case
    return not poll.poll(0)


def peer(connection: socket.socket) -> tuple[int, int]:
    """Process and user at the other end; of one that listens: as it began to. 0: a process of another PID namespace."""
    packed = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    pid, user, _ = struct.unpack("3i", packed)
    return pid, user


def short(value: Any) -> str:
    """What was found, for an error."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
