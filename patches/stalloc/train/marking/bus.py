"""How fast copies between the GPU and the host are: measured once, after the trace, for `stalloc fit`.

The file, rank00000.bus.json, has bytes a second, of each direction alone and of each while both run:

    {"to_host": 54.1e9, "to_device": 55.0e9, "to_host_with_both": 47.9e9, "to_device_with_both": 46.2e9}
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from stalloc.core import files, log

_BYTES = 64 << 20  # of a copy
_COPIES = 4
_WARM_UP = 1

TO_HOST, TO_DEVICE = "to_host", "to_device"


def measure(path: Path, torch: Any) -> None:
    """Writes the file; removes what an earlier trace has left. Whatever goes wrong costs a warning. The device's work
    is waited for."""
    try:
        files.remove(path)
        if torch is None or not torch.cuda.is_initialized():
            return
        files.write_whole(path, json.dumps(speeds(_Copies(torch).seconds)).encode())
    except Exception as error:  # no memory is the likeliest: the run goes on
        log.warning(f"the speed of copies to the host was not measured: {error}")


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
