"""Which process wrote something, and whether that one still runs, whatever other process has its number by now.

A number means something within one PID namespace of one boot of one machine; with the time at which the process was
started it is of one process alone. Of another machine or container nothing can be said.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any, Optional

RUNNING, GONE, UNKNOWN = "running", "gone", "unknown"


def boot() -> str:
    """The identity of this boot of this machine; empty if the system does not say."""
    return _text("/proc/sys/kernel/random/boot_id").strip()


def namespace(pid: Optional[int] = None) -> str:
    """The PID namespace of a process, by default this one. Empty if it may not be read."""
    try:
        return os.readlink(f"/proc/{'self' if pid is None else pid}/ns/pid")
    except OSError:
        return ""


def own() -> dict[str, Any]:
    """The identity of this process, for JSON."""
    pid = os.getpid()
    return {
        "pid": pid,
        "started": started(pid),
        "namespace": namespace(),
        "boot": boot(),
        "host": socket.gethostname(),
    }


def state_of(process: dict[str, Any]) -> str:
    """The state of the process that called `own`. UNKNOWN: it cannot be seen from here. ValueError: it is no such
    record."""
    pid, began = process.get("pid"), process.get("started")
    if not (isinstance(pid, int) and (began is None or isinstance(began, int))):
        raise ValueError(f"expected a process's number and the time at which it was started: {process!r}")
    here = (boot(), namespace())
    if (process.get("boot"), process.get("namespace")) != here or not all(here) or began is None:
        return UNKNOWN
    return RUNNING if started(pid) == began else GONE


def started(pid: int) -> Optional[int]:
    """In ticks of the clock since the boot; None where no such process runs, or it is over and only waited for."""
    fields = _text(f"/proc/{pid}/stat").rpartition(")")[2].split()  # its name may have brackets and blanks
    if len(fields) < 20 or fields[0] in ("Z", "X"):
        return None
    return int(fields[19])


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
