"""Limits of the host: memory, addresses, descriptors, shared memory."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from typing import Optional

from stalloc.core.sizes import size
from stalloc.tools.doctor.machine import Finding, Machine, failure, ok, warning

_LEAST_BYTES = 2 << 30
_LEAST_DESCRIPTORS = 1024


def limits(machine: Machine) -> Iterator[Finding]:
    total, limit = _total_bytes(machine), _container_bytes(machine)
    usable = min(bytes_ for bytes_ in (total, limit) if bytes_ is not None) if total or limit else None
    if usable is None:
        yield warning("host memory", "how much there is cannot be read", "see that /proc is mounted")
    else:
        shown = f"{size(usable)}{' (a limit of the container)' if limit is not None and limit == usable else ''}"
        advice = "a trace of a large model and its planner need some GiB in addition to the training"
        yield ok("host memory", shown) if usable >= _LEAST_BYTES else warning("host memory", shown, advice)
    yield from _addresses()
    yield from _descriptors()
    yield _anonymous_files()


def _addresses() -> Iterator[Finding]:
    """The arena reserves addresses, far more than it maps."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit != resource.RLIM_INFINITY:
        yield failure(
            "addresses",
            f"limited to {size(limit)} (ulimit -v): the arena's reservation may fail",
            "ulimit -v unlimited",
        )


def _descriptors() -> Iterator[Finding]:
    limit, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit < _LEAST_DESCRIPTORS:
        yield warning(
            "descriptors", f"{limit} (ulimit -n), at most {most}", "sharing tensors takes one each: ulimit -n 65536"
        )


def _anonymous_files() -> Finding:
    """On the CPU the arena's memory is such a file."""
    try:
        os.close(os.memfd_create("stalloc"))
    except (AttributeError, OSError) as error:
        return warning(
            "memfd", f"the system gives none: {error}", "on the CPU there is neither an arena nor an exact trace"
        )
    return ok("memfd", "works: the CPU's arena and exact traces")


def _total_bytes(machine: Machine) -> Optional[int]:
    for line in (machine.read("/proc/meminfo") or "").splitlines():
        if line.startswith("MemTotal:"):
            return int(line.split()[1]) * 1024
    return None


def _container_bytes(machine: Machine) -> Optional[int]:
    """The limit of cgroup v2, or v1."""
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        text = machine.read(path)
        if text is not None and text.isdecimal() and int(text) < 1 << 60:
            return int(text)
    return None
