"""Whether a tensor in the arena can be handed to another process, which takes file descriptors from its owner."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from typing import Optional

from stalloc.tools.doctor.machine import Finding, Machine, ok, warning

# pidfd_open and pidfd_getfd, which have these numbers on every architecture.
_FETCH = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
process = libc.syscall(434, int(sys.argv[1]), 0)
if process < 0 or libc.syscall(438, process, int(sys.argv[2]), 0) < 0: sys.exit(os.strerror(ctypes.get_errno()))
"""
_SUBJECT = "sharing"
_CAP_SYS_PTRACE = 19


def between_processes(machine: Machine) -> Iterator[Finding]:
    why = fetch_from_parent()
    if why is None:
        yield ok(_SUBJECT, "a child can take file descriptors from its parent: CUDA IPC of tensors in the arena works")
        return
    scope = machine.read("/proc/sys/kernel/yama/ptrace_scope") or "not there"
    has = "has" if _has_ptrace(machine) else "has not"
    yield warning(
        _SUBJECT,
        f"a child cannot take file descriptors from its parent: {why} (kernel.yama.ptrace_scope is {scope}, this "
        f"process {has} CAP_SYS_PTRACE)",
        "only for programs that send CUDA tensors to other processes: start the container with --cap-add SYS_PTRACE, "
        "or set kernel.yama.ptrace_scope to 0; loaders that send CPU tensors need nothing",
    )


def fetch_from_parent() -> Optional[str]:
    """Tries it. None where it works, else the system's words."""
    with tempfile.TemporaryFile() as file:
        words = [sys.executable, "-I", "-c", _FETCH, str(os.getpid()), str(file.fileno())]
        try:
            done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
        except (OSError, subprocess.SubprocessError) as error:
            return str(error)
    return None if done.returncode == 0 else done.stderr.strip().splitlines()[-1]


def _has_ptrace(machine: Machine) -> bool:
    for line in (machine.read("/proc/self/status") or "").splitlines():
        if line.startswith("CapEff:"):
            return bool(int(line.split()[1], 16) >> _CAP_SYS_PTRACE & 1)
    return False
