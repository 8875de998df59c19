"""How fast copies between the GPU and the host are: measured once, after the trace, for `stalloc fit`.

The file, rank00000.bus.json, has bytes a second, of each direction alone and of each while both run, and the bytes of
host memory that copies of this process may take:

    {"to_host": 54.1e9, "to_device": 55.0e9, "to_host_with_both": 47.9e9, "to_device_with_both": 46.2e9,
     "host_bytes": 137438953472}
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Optional

from stalloc.core import files, log

_BYTES = 64 << 20  # of a copy
_COPIES = 4
_WARM_UP = 1
_SHARE = 0.9  # of the memory that is free: the program goes on taking some
_GROUPS = (
    ("sys/fs/cgroup/memory.max", "sys/fs/cgroup/memory.current"),
    ("sys/fs/cgroup/memory/memory.limit_in_bytes", "sys/fs/cgroup/memory/memory.usage_in_bytes"),
)

TO_HOST, TO_DEVICE = "to_host", "to_device"


def measure(path: Path, torch: Any) -> None:
    """Writes the file; removes what an earlier trace has left. Whatever goes wrong costs a warning. The device's work
    is waited for."""
    try:
        files.remove(path)
        if torch is None or not torch.cuda.is_initialized():
            return
        found: dict[str, Any] = {**speeds(_Copies(torch).seconds), "host_bytes": host_bytes(os.environ)}
        files.write_whole(path, json.dumps(found).encode())
    except Exception as error:  # no memory is the likeliest: the run goes on
        log.warning(f"the speed of copies to the host was not measured: {error}")


def host_bytes(environ: Mapping[str, str], root: Path = Path("/")) -> Optional[int]:
    """This process's part of the memory that is free, of a container where it is less; None: the system says nothing.
    `root`: of the system's files."""
    left = [_free_of_machine(root), *(_left_of_group(root, *names) for names in _GROUPS)]
    known = [each for each in left if each is not None]
    local = environ.get("LOCAL_WORLD_SIZE", "")
    processes = int(local) if local.isdecimal() and int(local) > 0 else 1
    return int(_SHARE * min(known)) // processes if known else None


def _free_of_machine(root: Path) -> Optional[int]:
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in (root / "proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return None


def _left_of_group(root: Path, limit: str, used: str) -> Optional[int]:
    with contextlib.suppress(OSError, ValueError):  # "max": there is no limit
        return max(0, int((root / limit).read_text()) - int((root / used).read_text()))
    return None


def speeds(seconds: Callable[[tuple[str, ...]], dict[str, float]]) -> dict[str, float]:
    """Bytes a second. `seconds`: how long `_COPIES` copies took in each of these directions, all at once."""
    both = (TO_HOST, TO_DEVICE)
    found = {direction: seconds((direction,))[direction] for direction in both}
    found |= {f"{direction}_with_both": taken for direction, taken in seconds(both).items()}
    return {name: _COPIES * _BYTES / taken for name, taken in found.items() if taken > 0}


class _Copies:
    """Between pinned memory and the current device, each direction with a stream of its own."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        pinned = [torch.empty(_BYTES, dtype=torch.uint8, pin_memory=True) for _ in range(2)]
        there = [torch.empty(_BYTES, dtype=torch.uint8, device="cuda") for _ in range(2)]
        self._pairs = {TO_HOST: (pinned[0], there[0]), TO_DEVICE: (there[1], pinned[1])}
        self._streams = {direction: torch.cuda.Stream() for direction in self._pairs}

    def seconds(self, directions: tuple[str, ...]) -> dict[str, float]:
        timing = {}
        self._torch.cuda.synchronize()
        for i in range(_WARM_UP + _COPIES):  # in turns, so that both begin at about the same time
            for direction in directions:
                target, source = self._pairs[direction]
                with self._torch.cuda.stream(self._streams[direction]):
                    if i == _WARM_UP:
                        timing[direction] = [self._event(direction)]
                    target.copy_(source, non_blocking=True)
        for direction in directions:
            timing[direction].append(self._event(direction))
        self._torch.cuda.synchronize()
        return {direction: begin.elapsed_time(end) / 1e3 for direction, (begin, end) in timing.items()}

    def _event(self, direction: str) -> Any:
        event = self._torch.cuda.Event(enable_timing=True)
        event.record(self._streams[direction])
        return event
