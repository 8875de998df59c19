"""What `stalloc status` reads of one rank under Auto: its stages, which process it is, and how far that has come.

One file, written as a whole: where a stage begins, where the program ends, and in between at the end of an iteration,
but seldom. The start that began last has the file; one that another has followed writes no more.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any, Optional

from stalloc.core import identity, log
from stalloc.core.files import write_whole

REFRESH_SECONDS = 5.0  # at least, between two writes without news
_MOST_OF_TIME = 0.002  # that these writes take, on a slow disk as well


class RunStatus:
    """Called on the thread that runs the loop. No error reaches the caller; the first one is a warning."""

    def __init__(self, path: Path, rank: int) -> None:
        self._path = path
        self._process = identity.own()
        self._rank = rank
        self._stages: list[dict[str, Any]] = []
        self._began = time.monotonic()
        self._next = 0.0  # when it is written again
        self._written: Optional[tuple[int, int]] = None  # the file, as it was written last
        self._warned = False

    def enter(self, stage: str, iterations: int, **facts: Any) -> None:
        """A stage begins."""
        since = round(time.monotonic() - self._began, 3)
        self._stages.append({"stage": stage, "after_seconds": since, "iterations": iterations, **facts})
        if _file(self._path) is None or not self._is_followed():
            self._write(iterations, ended=False)

    def finished(self, iterations: int) -> None:
        """So many iterations are over."""
        if time.monotonic() >= self._next and not self._is_followed():
            self._write(iterations, ended=False)

    def move_to(self, path: Path, iterations: int, why: str) -> None:
        """The run is another one than it seemed. What was written of it ends there, and goes on in `path`."""
        if self._written is not None and not self._is_followed():
            stages = self._stages
            self._stages = [*stages, {**stages[-1], "stage": "ended", "why": why}]
            self._write(iterations, ended=True)
            self._stages = stages
        self._path, self._written = path, None
        self._write(iterations, ended=False)

    def end(self, iterations: int) -> None:
        """The program ends by itself."""
        if not self._is_followed():
            self._write(iterations, ended=True)

    def _is_followed(self) -> bool:
        """Another start of this run has written the file since, or it was removed."""
        return self._written is not None and _file(self._path) != self._written

    def _write(self, iterations: int, ended: bool) -> None:
        began = time.monotonic()
        seen = {"at": round(time.time(), 3), "after_seconds": round(began - self._began, 3), "iterations": iterations}
        record = {"rank": self._rank, "process": self._process, "seen": seen, "ended": ended, "stages": self._stages}
        try:
            write_whole(self._path, f"{json.dumps(record, indent=1)}\n".encode())
            self._written = _file(self._path)
        except OSError as error:
            if not self._warned:
                log.warning(f"how far this run's plan is cannot be written: {error}")
            self._warned = True
        took = time.monotonic() - began
        self._next = began + max(REFRESH_SECONDS, took / _MOST_OF_TIME)


def _file(path: Path) -> Optional[tuple[int, int]]:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns


def read(path: Path) -> dict[str, Any]:
    """`rank`, `stages` and `state`: running, ended, gone or unknown, as a stage; None where an older version wrote it.

    Raises:
        OSError: it cannot be read.
        ValueError: it is no such file.
    """
    try:
        record: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        stages = [_checked(stage) for stage in record["stages"]]
        state = _state(record) if "process" in record else None
        return {"rank": int(record["rank"]), "stages": stages, "state": state}
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path}: expected stages of a rank, as a run writes them: {error!r}") from error


def _checked(stage: Any) -> dict[str, Any]:
    return {**stage, "stage": str(stage["stage"]), "after_seconds": float(stage["after_seconds"])}


def _state(record: dict[str, Any]) -> dict[str, Any]:
    """Where the process still runs its time goes on; else it is of when it was last seen."""
    seen, process = record["seen"], record["process"]
    after, iterations = float(seen["after_seconds"]), int(seen["iterations"])
    if record["ended"] is True:
        return {"stage": "ended", "after_seconds": after, "iterations": iterations}
    state = identity.state_of(process)
    since = max(time.time() - float(seen["at"]), 0.0)
    if state == identity.RUNNING:
        after += since
    found = {"stage": state, "after_seconds": after, "iterations": iterations, "pid": process["pid"]}
    if state == identity.UNKNOWN:
        found["host"] = str(process.get("host"))
    return {**found, "seen_seconds_ago": since}
