"""Where the socket of a process is, for both ends. Its directory is the user's alone."""

from __future__ import annotations

import json
import os
import socket
import stat
from pathlib import Path
from typing import Any

_MOST_BYTES = 1 << 20  # of a message


def directory() -> Path:
    """Made if need be. OSError where it is another user's, or others may enter it."""
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    path = Path(runtime) / "stalloc" if runtime else Path("/tmp") / f"stalloc-{os.getuid()}"
    path.mkdir(mode=0o700, exist_ok=True)
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise OSError(f"{path} must be a directory of this user with mode 0700: sockets in it take orders")
    return path


def path_of(pid: int) -> Path:
    return directory() / f"{pid}.sock"


def send(connection: socket.socket, message: dict[str, Any]) -> None:
    connection.sendall(json.dumps(message).encode() + b"\n")


def receive(connection: socket.socket) -> dict[str, Any]:
    """One message. ValueError for what is none, ConnectionError where the other end has gone."""
    text = b""
    while not text.endswith(b"\n"):
        part = connection.recv(65536)
        if not part:
            raise ConnectionError("the other end has closed the connection")
        text += part
        if len(text) > _MOST_BYTES:
            raise ValueError("a message is too long")
    message = json.loads(text)
    if not isinstance(message, dict):
        raise ValueError(f"a message must be an object: {text[:80]!r}")
    return message
