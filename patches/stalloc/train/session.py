"""What this process does under stalloc, once it has been activated. One per process; a forked child has none."""

from __future__ import annotations

import atexit
import os
import sys
from pathlib import Path
from typing import Any, Callable, Optional

from stalloc.core import config, log
from stalloc.core.library import Library
from stalloc.core.outcome import LEAST_TOLD_BYTES, NO_ITERATION, outcome_of, shown
from stalloc.train import started
from stalloc.train.auto.auto import Auto
from stalloc.train.imports import when_imported
from stalloc.train.marking.marks import Marker
from stalloc.train.marking.tracing import Tracing


class Session:
    """Mode, library (None in mode Torch, where PyTorch's own allocator stays), marker and trace."""

    def __init__(
        self,
        mode: str,
        library: Optional[Library],
        marker: Marker,
        tracing: Optional[Tracing] = None,
        *,
        fake: Optional[Any] = None,
        auto: Optional[Auto] = None,
    ) -> None:
        self.mode = mode
        self.library = library
        self.marker = marker
        self.tracing = tracing  # None in other modes than Trace
        self.auto = auto  # None in other modes than Auto
        self.fake = fake  # FakeRun, where tensors are fake (STALLOC_TRACE_FAKE)
        self.is_traced: Callable[[], bool] = _not_traced
        when_imported("torch", self._see_torch)

    def _see_torch(self, torch: Any) -> None:
        self.is_traced = getattr(getattr(torch, "compiler", None), "is_dynamo_compiling", _not_traced)

    def flush(self) -> None:
        if self.fake is not None:
            self.fake.settle()
        if self.tracing is not None:
            self.tracing.flush()
        if self.library is not None:
            self.library.flush()

    def stop(self) -> None:
        if self.tracing is not None:
            self.tracing.end()

    def stats(self) -> dict[str, Any]:
        if self.library is None:
            return {"mode": self.mode, "degraded": None, "devices": []}
        return self.library.stats()


def _not_traced() -> bool:
    """Without torch nothing is compiled."""
    return False


current: Optional[Session] = None


def marked() -> Optional[Session]:
    """The session that a mark is for. None where torch.compile traces the program: a mark would break its graph."""
    session = current
    return None if session is None or session.is_traced() else session


_before_the_end: list[Callable[[], object]] = []


def start(session: Session, device: str = "cpu") -> None:
    """Makes it the process's session, to be closed at exit and absent from forked children."""
    global current
    current = session
    process = os.getpid()
    atexit.register(_close)
    os.register_at_fork(after_in_child=lambda: _leave(process, device == "cuda"))


def before_the_end(call: Callable[[], object]) -> None:
    """Called when the process ends, before the iteration that runs is over: nothing that waits for it may begin."""
    _before_the_end.append(call)


def _leave(parent: int, on_cuda: bool) -> None:
    """A forked child neither marks nor writes: trace, plan and summary are its parent's."""
    global current
    if current is not None:  # the optimizer hooks still know its marker
        told = current.library is not None
        current.marker.silence(*([started.tell_of_forked_steps(parent, on_cuda)] if told else []))
    current = None


def _close() -> None:
    if current is None:
        return
    if getattr(sys, "last_value", None) is not None:  # python has printed why the program ends: its word is the last
        log.silence()
        if current.library is not None:
            current.library.silence()
    for call in _before_the_end:
        call()
    if current.tracing is not None:
        current.tracing.program_ends()
    current.marker.finish()
    try:
        if current.auto is not None:
            current.auto.finish()
    except Exception as error:  # whatever it is: the summary comes after it
        log.error(f"the run's plan was not left as it should be: {error}")
    try:
        current.flush()
    except (OSError, RuntimeError):
        return  # the library tells why as the process ends: no summary
    if log.rank() == "0":
        _tell_what_next(current)


def _is_traced(stats: dict[str, Any]) -> bool:
    """Another process's trace may lie in the directory, and a full disk ends one early: the library tells of both."""
    trace = stats.get("trace", {})
    whole = not stats.get("degraded") and not trace.get("write_error") and bool(stats.get("requests"))
    return whole and Path(trace.get("path", "")).is_file()


def _tell_what_next(session: Session) -> None:
    """The run's last line: where its files are, what it came to, which command is next."""
    directory = Path(os.environ.get("STALLOC_MODEL_INFO_PATH", ""))
    stats = session.stats()
    if session.mode == config.TRACE and _is_traced(stats):
        if stats.get("iterations"):
            log.info(f"traced to {shown(directory)}; next: stalloc plan {shown(directory)}")
        elif stats.get("peak_live_bytes", 0) >= LEAST_TOLD_BYTES:
            log.info(f"has nothing to plan: {NO_ITERATION}")
    if session.mode == config.ALLOC:
        outcome = outcome_of(stats, directory, 0)
        if outcome is not None:
            log.info(f"{outcome.brief()} (stalloc summary {shown(directory)})")
