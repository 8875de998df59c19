"""Where the socket of a process is, for both ends: PID-TAG.sock in a directory that is its user's alone.

The tag stands for the boot and the PID namespace: containers that share a directory have the same numbers for other
processes. The number is the process's own, as its innermost namespace counts.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Optional

from stalloc.core import identity

_LONGEST = 107  # bytes of an address; a longer one goes through the directory's descriptor
_PROBE_SECONDS = 5.0


def of_user(user: int, *runtime_directories: Optional[str]) -> list[Path]:
    """Where that user's processes have their sockets, in the order in which they look for a place.

    Args:
        runtime_directories: values of XDG_RUNTIME_DIR; what is no absolute path counts for nothing.
    """
    chosen = [Path(text) / "stalloc" for text in runtime_directories if text and os.path.isabs(text)]
    return list(dict.fromkeys([*chosen, Path(f"/tmp/stalloc-{user}")]))


def of_process(pid: int) -> list[Path]:
    """Where the socket of any process may be. FileNotFoundError where there is no such process."""
    user = user_of(pid)
    return of_user(user, _runtime_directory_of(pid), os.environ.get("XDG_RUNTIME_DIR"), f"/run/user/{user}")


def name_of(pid: int) -> str:
    """The socket's name, as the process itself makes it: of any process that this one may look at."""
    numbers, namespace = _status(pid, "NSpid").split(), identity.namespace(pid)
    return _name(numbers[-1], namespace) if numbers and namespace else own_name(pid)


def own_name(pid: Optional[int] = None) -> str:
    """The name that this process gives its socket, or one of that number in the same namespace."""
    return _name(str(os.getpid() if pid is None else pid), identity.namespace())


@contextlib.contextmanager
def opened(directory: Path, user: int) -> Iterator[int]:
    """Its descriptor. OSError where there is none, and where it is another user's or others may enter it."""
    try:
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except NotADirectoryError as error:  # a symbolic link is none, either
        raise _unfit(directory) from error
    try:
        found = os.fstat(descriptor)
        if found.st_uid != user or found.st_mode & 0o077:
            raise _unfit(directory)
        yield descriptor
    finally:
        os.close(descriptor)


def address(directory: Path, descriptor: int, name: str) -> str:
    """What to bind or to connect to, as long as the descriptor is open."""
    path = str(directory / name)
    return path if len(os.fsencode(path)) <= _LONGEST else f"/proc/self/fd/{descriptor}/{name}"


def is_listened_to(at: str) -> bool:
    """Whether a process takes connections there. A connection that waits for a busy one counts."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(_PROBE_SECONDS)
        try:
            probe.connect(at)
        except (FileNotFoundError, ConnectionRefusedError):
            return False
        except OSError:
            return True
        return True


def sweep(directory: Path, descriptor: int) -> None:
    """Removes sockets of processes of this namespace that have ended without doing so."""
    suffix = own_name().partition("-")[2]
    for name in os.listdir(descriptor):
        pid, _, rest = name.partition("-")
        if rest != suffix or not pid.isdecimal() or os.path.exists(f"/proc/{pid}"):
            continue
        if not is_listened_to(address(directory, descriptor, name)):
            with contextlib.suppress(OSError):  # another process sweeps as well
                os.unlink(name, dir_fd=descriptor)


def _unfit(directory: Path) -> OSError:
    return OSError(f"{directory} must be a directory of this user with mode 0700: sockets in it take orders")


def _name(pid: str, namespace: str) -> str:
    return f"{pid}-{hashlib.sha256(f'{identity.boot()} {namespace}'.encode()).hexdigest()[:12]}.sock"


def _status(pid: int, key: str) -> str:
    for line in Path(f"/proc/{pid}/status").read_text(encoding="utf-8", errors="replace").splitlines():
        name, _, value = line.partition(":")
        if name == key:
            return value
    return ""


def user_of(pid: int) -> int:
    fields = _status(pid, "Uid").split()
    return int(fields[0]) if fields else os.getuid()


def _runtime_directory_of(pid: int) -> Optional[str]:
    """The environment that the process was started with; None if it may not be read."""
    try:
        variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return None
    return next((os.fsdecode(text[16:]) for text in variables if text.startswith(b"XDG_RUNTIME_DIR=")), None)
