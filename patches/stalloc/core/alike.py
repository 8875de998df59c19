"""Which rank says what several ranks of a launch have to say: the first of each machine.

A process that reports binds a socket whose name has the launch and the kind of text, in Linux' abstract namespace:
the kernel lets one process have a name, and takes it back when that process ends. Nothing is sent, and no file is left.
Texts that differ in their numbers alone (a rank in a path, bytes) are of one kind. allocator/base/alike.h does the same
for what the library prints.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import socket
from collections.abc import Mapping

# Equal in the ranks of a launch, and not in those of another that runs at the same time on the same machine.
_LAUNCH = (
    "MASTER_ADDR",
    "MASTER_PORT",
    "TORCHELASTIC_RUN_ID",
    "SLURM_JOB_ID",
    "SLURM_STEP_ID",
    "PMIX_NAMESPACE",
    "OMPI_MCA_ess_base_jobid",
)
_MOST = 32  # kinds, a descriptor each; more are always said

_ours: dict[str, bool] = {}


def is_first(text: str, environ: Mapping[str, str]) -> bool:
    """Whether this process alone of the launch on this machine may print this kind of text, now and later."""
    launch = "\0".join([str(os.getuid()), *(environ.get(name, "") for name in _LAUNCH)])
    kind = hashlib.sha256(f"{launch}\0{re.sub(r'[0-9]+', '#', text)}".encode("utf-8", "surrogateescape")).hexdigest()
    if kind not in _ours:
        if len(_ours) >= _MOST:
            return True
        _ours[kind] = _takes(f"\0stalloc-said-{kind[:32]}")
    return _ours[kind]


def _takes(name: str) -> bool:
    """False where another process has the name. Where there are no such sockets, everybody speaks."""
    try:
        holder = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    except (OSError, AttributeError):
        return True
    try:
        holder.bind(name)
    except OSError as error:
        holder.close()
        return error.errno != errno.EADDRINUSE
    holder.detach()  # open until the process ends
    return True
