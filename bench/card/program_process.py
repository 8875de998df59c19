"""One process of a training program under child.py: lets it make steps, reads what it reports, ends it."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Callable, Optional

CHILD = Path(__file__).resolve().parent / "child.py"
EXIT_OUT_OF_MEMORY = 3  # of child.py
TRAINED, OUT_OF_MEMORY, FAILED = "trained", "out of memory", "failed"
TOO_SLOW, TIME_OVER = "too slow", "time over"
_POLL_SECONDS = 0.5
_EXIT_SECONDS = 120.0  # for a program that has reported its end
_TAIL = 2000  # characters of a log

Event = dict[str, Any]


@dataclasses.dataclass
class Run:
    """What a process did. `seconds`: of each step; `host_seconds`: of these until the host had nothing left to launch;
    `end`: its last report (see child.py)."""

    outcome: str
    seconds: list[float]
    at: list[float]  # seconds from the start of the process to the end of each step
    retries: int  # num_alloc_retries
    end: Event
    message: str = ""
    host_seconds: list[float] = dataclasses.field(default_factory=list)

    @property
    def live(self) -> Optional[int]:
        """Peak of allocated bytes."""
        return self.end.get("live_bytes")

    @property
    def held(self) -> Optional[int]:
        """Peak of reserved bytes."""
        return self.end.get("held_bytes")

    def document(self) -> dict[str, Any]:
        return {
            **{"outcome": self.outcome, "live_bytes": self.live, "held_bytes": self.held, "message": self.message},
            **{"outside_bytes": self.end.get("outside_bytes"), "num_alloc_retries": self.retries},
            **{"step_seconds": self.seconds, "host_seconds": self.host_seconds, "end_of_step_seconds": self.at},
            **{"stalloc": {name: self.end.get(name) for name in ("at_warm_up", "at_end")}},
        }


class ProgramProcess:
    """Starts at once. With `turns` it makes a step (and before its first one the set-up) at each `let_go`.

    Args:
        launcher: words between python and child.py, as -m stalloc run.
        options: words for child.py, without --report and --turns.
        log: what the program prints.
        limit_s: seconds after which it is ended.
    """

    def __init__(
        self,
        launcher: Sequence[str],
        options: Sequence[str],
        program: Sequence[str],
        environment: Mapping[str, str],
        log: Path,
        *,
        turns: bool = False,
        limit_s: float,
    ) -> None:
        self._log = log
        self._report: Optional[int]
        self._go: Optional[int]
        self._report, report = os.pipe()
        go, self._go = os.pipe() if turns else (None, None)
        words = [*launcher, str(CHILD), "--report", str(report), *options]
        words += [] if go is None else ["--turns", str(go)]
        inherited = [end for end in (report, go) if end is not None]
        self._began = time.monotonic()
        self._deadline = self._began + limit_s
        with log.open("w") as file:
            self._process = subprocess.Popen(
                [sys.executable, *words, "--", *program],
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                pass_fds=inherited,
                start_new_session=True,  # so that what it starts itself can be ended with it
            )
        for end in inherited:
            os.close(end)
        self._unread = b""
        self._run = Run(FAILED, [], [], 0, {})
        self._events = self._read_events()

    @property
    def trained(self) -> bool:
        """It has made its last step, or the program has ended well."""
        return self._run.end.get("event") == "end"

    def let_go(self) -> None:
        """It makes its next step."""
        assert self._go is not None
        with contextlib.suppress(BrokenPipeError):
            os.write(self._go, b".")

    def ready(self) -> None:
        """Returns when the program is about to begin, or has failed to."""
        self._next("ready")

    def step(self) -> Optional[float]:
        """Seconds of its next step. None: it makes no more."""
        event = self._next("step")
        if event is None:
            return None
        if event["last"]:
            self._next("end")
        return float(event["seconds"])

    def finish(self, stop: Callable[[list[float]], bool] = lambda _: False) -> Run:
        """Reads on to the end. `stop`: whether the steps so far are enough to end it as too slow."""
        while self.step() is not None:
            if stop(self._run.seconds):
                self._run.outcome = TOO_SLOW
                break
        return self.end()

    def end(self) -> Run:
        """Waits for a process that has reported its end, or is about to; a process that waits for its next step ends,
        too."""
        if self._go is not None:
            if self._run.end:
                self.let_go()  # after its last step it waits once more
            os.close(self._go)
            self._go = None
        if self._run.outcome == FAILED:
            self._run.outcome = self._outcome()
        self.kill()
        if self._run.outcome not in (TRAINED, TOO_SLOW):
            self._run.message = self._run.end.get("message") or self._tail()
        return self._run

    def _outcome(self) -> str:
        limit = _EXIT_SECONDS if self._run.end else max(0.0, self._deadline - time.monotonic())
        try:
            code: Optional[int] = self._process.wait(limit)
        except subprocess.TimeoutExpired:
            code = None
        if self._run.end.get("event") == "out_of_memory" or code == EXIT_OUT_OF_MEMORY:
            return OUT_OF_MEMORY
        if self._run.end:
            return TRAINED
        return TIME_OVER if code is None else FAILED

    def kill(self) -> None:
        """Nothing where it has ended."""
        if self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        ends, self._report, self._go = (self._report, self._go), None, None
        for end in ends:
            if end is not None:
                os.close(end)

    def _tail(self) -> str:
        return self._log.read_text(errors="replace")[-_TAIL:]

    def _next(self, kind: str) -> Optional[Event]:
        """The next report of this kind; None: there are no more."""
        for event in self._events:
            self._take(event)
            if event["event"] == kind:
                return event
        return None

    def _take(self, event: Event) -> None:
        if event["event"] == "step":
            self._run.seconds.append(event["seconds"])
            self._run.host_seconds.append(event["host_seconds"])
            self._run.at.append(event["at"] - self._began)
            self._run.retries = event["retries"]
        elif event["event"] != "ready":
            self._run.end = event
            self._run.retries = event.get("retries", self._run.retries)

    def _read_events(self) -> Iterator[Event]:
        """Until the process is gone, or its time is over."""
        assert self._report is not None
        while time.monotonic() < self._deadline:
            readable, _, _ = select.select([self._report], [], [], _POLL_SECONDS)
            if not readable:
                if self._process.poll() is not None:
                    return  # what it has started may have the pipe still
                continue
            data = os.read(self._report, 1 << 16)
            if not data:
                return
            *lines, self._unread = (self._unread + data).split(b"\n")
            yield from (json.loads(line) for line in lines)
