"""Tracing by hand, for loops and scripts that nothing else marks.

    import stalloc.trace

    stalloc.trace.start("run1")      # before CUDA is initialised; or STALLOC_MODE=Trace STALLOC_TRACE_STEPS=manual
    for batch in batches:
        train(batch)
        stalloc.trace.step()         # one iteration is over; not needed where an optimizer of torch's steps
    stalloc.trace.stop()             # the file is complete; the run goes on
    print(stalloc.trace.dump())      # at any time before: what there is so far is in the file

One process writes one trace. Every call raises RuntimeError, with what to do, where there is nothing that it could do.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Optional, Union

from stalloc.core import config
from stalloc.train import install
from stalloc.train import session as _session
from stalloc.train.marking.tracing import ENDED, RUNS, WAITS, Tracing
from stalloc.train.session import Session

__all__ = ["dump", "names", "start", "step", "stop"]


def start(directory: Optional[Union[str, os.PathLike[str]]] = None) -> None:
    """Begins the trace; blocks that are live already are its set-up.

    Args:
        directory: where the run's files go, if STALLOC_MODE is not set: this call then puts the allocator in place,
            too. Default: STALLOC_MODEL_INFO_PATH.
    """
    if _session.current is None:
        _activate(directory)
        return
    tracing = _tracing(_session.current)
    if tracing.state == RUNS:
        raise RuntimeError("the trace has begun already; STALLOC_TRACE_STEPS=manual lets it wait for start()")
    if tracing.state == ENDED:
        raise RuntimeError("the trace has ended, and a process writes one; start another process for the next")
    if directory is not None:
        raise RuntimeError(f"the directory is fixed by then: STALLOC_MODEL_INFO_PATH; start() was given {directory}")
    tracing.begin()


def step() -> None:
    """Ends one iteration of the loop and begins the next. Nothing where an optimizer did so since the last call."""
    session = _active()
    _running(session)
    session.marker.step()


def stop() -> None:
    """Ends the trace in order; the run goes on and is not recorded any more."""
    _running(_active()).end()


def dump() -> Path:
    """Hands every event so far to the trace's file, and returns its path."""
    session = _active()
    if _tracing(session).state == WAITS:
        raise RuntimeError("the trace has not begun: it waits for stalloc.trace.start() or STALLOC_TRACE_STEPS")
    session.flush()
    rank = int(config.rank_text(os.environ) or 0)
    return Path(os.environ["STALLOC_MODEL_INFO_PATH"]) / "trace" / f"rank{rank:05d}.trace"


def names() -> None:
    """Records in the trace what modules hold at this moment: parameters, their gradients, buffers.

    Optimizers of torch's have this done around their steps.
    """
    tracing = _running(_active())
    if tracing.names is None:
        raise RuntimeError("names are switched off: STALLOC_TRACE_NAMES=0")
    tracing.names.resolve()


def _activate(directory: Optional[Union[str, os.PathLike[str]]]) -> None:
    if os.environ.get("STALLOC_MODE"):
        raise RuntimeError("this process is not traced: it launches others, or its rank is not in STALLOC_TRACE_RANKS")
    if directory is None and not os.environ.get("STALLOC_MODEL_INFO_PATH"):
        raise RuntimeError("where to? give start() a directory, or set STALLOC_MODEL_INFO_PATH")
    os.environ["STALLOC_MODE"] = config.TRACE
    if directory is not None:
        os.environ["STALLOC_MODEL_INFO_PATH"] = os.fspath(directory)
    try:
        install.activate()
    except (RuntimeError, ValueError):
        del os.environ["STALLOC_MODE"]
        raise
    if _session.current is not None and _tracing(_session.current).state == WAITS:
        _tracing(_session.current).begin()


def _active() -> Session:
    if _session.current is None:
        raise RuntimeError("nothing is traced: set STALLOC_MODE=Trace, or call stalloc.trace.start(DIRECTORY) first")
    return _session.current


def _tracing(session: Session) -> Tracing:
    if session.tracing is None:
        raise RuntimeError(f"nothing is traced: STALLOC_MODE is {session.mode}, and Trace is needed")
    return session.tracing


def _running(session: Session) -> Tracing:
    tracing = _tracing(session)
    if tracing.state == WAITS:
        raise RuntimeError("the trace has not begun: it waits for stalloc.trace.start() or STALLOC_TRACE_STEPS")
    if tracing.state == ENDED:
        raise RuntimeError("the trace has ended: STALLOC_TRACE_STEPS or an earlier stop() ended it")
    return tracing
