"""Seconds and tokens of the iterations after a trace, written next to it for `stalloc fit`: tracing is slower.

The file, rank00000.steps.json, has for each such iteration its seconds, and the tokens of its micro-batches where the
program reports them (`stalloc.tokens`), and of those in which the device was watched, and which are not among them,
what it did (device_work.py):

    {"seconds": [1.31, 1.18], "tokens": [[988, 402], [512, 640]],
     "device": [{"tokens": [702, 480], "kernels": ["gemm"], "parts": [...]}]}
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any, Callable

from stalloc.train.marking.device_work import DeviceWork
from stalloc.train.marking.side_file import SideFile

_MOST = 64  # iterations; more add nothing
_UNWATCHED = 4  # iterations, before the first whose device is watched
_MOST_WATCHED = 2


class FreeSteps:
    """The steps of one rank. Called on the thread that runs the loop. A failed write costs a warning."""

    def __init__(self, path: Path, wait: Callable[[], object], work: DeviceWork) -> None:
        """`wait`: for the device, so that a step's time is its own. Removes what an earlier trace has left."""
        self._wait, self._work = wait, work
        self._watched: list[dict[str, Any]] = []
        self._seconds: list[float] = []
        self._tokens: list[list[int]] = []
        self._current: list[int] = []
        self._begin = 0.0
        self._begun = False
        self._closed = False
        self._file = SideFile(path, "the steps after the trace could not be written")

    def add(self, tokens: int) -> None:
        self._current.append(tokens)

    def iteration_finished(self) -> None:
        """The first call is the end of the trace, where the first of them begins."""
        if self._closed or len(self._seconds) >= _MOST:
            return
        self._wait()
        seconds = time.monotonic() - self._begin
        work = self._work.end()
        if work is not None:
            self._watched.append({"tokens": self._current, **work})
        elif self._begun:
            self._seconds.append(seconds)
            self._tokens.append(self._current)
        if len(self._seconds) >= _UNWATCHED and len(self._watched) < _MOST_WATCHED:
            self._work.begin()
        self._begun, self._begin, self._current = True, time.monotonic(), []

    def close(self) -> None:
        """The iteration that runs has no end of its own: it is left out, and nothing watches it any more."""
        self._closed = True
        self._work.end()

    def write(self) -> None:
        """Does nothing if no iteration came after the trace."""
        if self._seconds:
            found = {"seconds": self._seconds, "tokens": self._tokens, "device": self._watched}
            self._file.write(json.dumps(found))


def waiting_for(torch: Any) -> Callable[[], object]:
    """Waits for the GPU, where the program has one."""
    return lambda: torch.cuda.synchronize() if torch.cuda.is_initialized() else None
