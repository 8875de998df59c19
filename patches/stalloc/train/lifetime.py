"""When a session begins and ends: at exit in order, and not at all in forked children."""

from __future__ import annotations

import atexit
import os
import sys
from pathlib import Path
from typing import Any, Callable

from stalloc.core import config, log
from stalloc.core.outcome import LEAST_REPORTED_BYTES, NO_ITERATION, outcome_of, shown
from stalloc.train import session, started
from stalloc.train.session import Session

_before_the_end: list[Callable[[], object]] = []


def start(begun: Session, device: str = "cpu") -> None:
    """Makes it the process's session, to be closed at exit and absent from forked children."""
    session.current = begun
    process = os.getpid()
    atexit.register(_close)
    os.register_at_fork(after_in_child=lambda: _leave(process, device == "cuda"))


def before_the_end(call: Callable[[], object]) -> None:
    """Called when the process ends, before the iteration that runs is over: nothing that waits for it may begin."""
    _before_the_end.append(call)


def _leave(parent: int, on_cuda: bool) -> None:
    """A forked child neither marks nor writes: trace, plan and summary are its parent's."""
    current = session.current
    if current is not None:  # the optimizer hooks still know its marker
        installed = current.library is not None
        current.marker.silence(*([started.report_forked_steps(parent, on_cuda)] if installed else []))
    session.current = None


def _close() -> None:
    current = session.current
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
        return  # the library says why as the process ends: no summary
    if log.rank() == "0":
        _report_next_step(current)


def _is_traced(stats: dict[str, Any]) -> bool:
    """Another process's trace may lie in the directory, and a full disk ends one early: the library reports both."""
    trace = stats.get("trace", {})
    whole = not stats.get("degraded") and not trace.get("write_error") and bool(stats.get("requests"))
    return whole and Path(trace.get("path", "")).is_file()


def _report_next_step(ended: Session) -> None:
    """The run's last line: where its files are, what it came to, which command is next."""
    directory = Path(os.environ.get("STALLOC_MODEL_INFO_PATH", ""))
    stats = ended.stats()
    if ended.mode == config.TRACE and _is_traced(stats):
        if stats.get("iterations"):
            log.info(f"traced to {shown(directory)}; next: stalloc plan {shown(directory)}")
        elif stats.get("peak_live_bytes", 0) >= LEAST_REPORTED_BYTES:
            log.info(f"has nothing to plan: {NO_ITERATION}")
    if ended.mode == config.ALLOC:
        outcome = outcome_of(stats, directory, 0)
        if outcome is not None:
            log.info(f"{outcome.brief()} (stalloc status {shown(directory)})")
