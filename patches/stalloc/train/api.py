"""Marks of the training loop, and figures of this process: what costs nothing where stalloc is not active."""

from __future__ import annotations

from typing import Any, Optional, SupportsIndex

from stalloc.train import session as _session
from stalloc.train.marking.marks import NO_MARK, NoMark, check_pass


def iteration(index: Optional[int] = None) -> NoMark:
    """Begins an iteration; `index` as the loop counts it, or one more than the last. Turns automatic iterations off."""
    session = _session.marked()
    return NO_MARK if session is None else session.marker.iteration(index)


def microbatch(kind: str, index: Optional[int] = None, chunk: int = 0) -> NoMark:
    """Begins a pass of one micro-batch through one model chunk.

    Args:
        kind: "F" forward, "B" backward, "W" the weight half of a split backward, "FB" both merged, "O" other.
        index: which micro-batch of the iteration; by default counted per kind and chunk.
        chunk: the model chunk (virtual pipeline stage).
    """
    session = _session.marked()
    check_pass(kind)
    return NO_MARK if session is None else session.marker.microbatch(kind, index, chunk)


def layer(name: str, kind: str = "F") -> NoMark:
    """Begins a layer, or a step in one, whose sizes depend on the data."""
    session = _session.marked()
    check_pass(kind)
    return NO_MARK if session is None else session.marker.layer(name, kind)


def optimizer() -> NoMark:
    """Begins the optimizer's part of an iteration."""
    session = _session.marked()
    return NO_MARK if session is None else session.marker.optimizer()


def fence(kind: str) -> NoMark:
    """Begins something that is not part of the steady loop: "eval", "save", … Use it as a context manager."""
    session = _session.marked()
    return NO_MARK if session is None else session.marker.fence(kind)


def tokens(count: SupportsIndex) -> None:
    """Reports the tokens of the present micro-batch of training (padding included), where lengths vary.

    A traced run needs it, once for each micro-batch, so that `stalloc plan --max-tokens N` can plan for longer ones.
    Elsewhere it does nothing. Give it a plain number: one on the GPU would have to be waited for.
    """
    session = _session.marked()
    if session is not None and session.tracing is not None:
        session.tracing.tokens(count)


def stats() -> dict[str, Any]:
    """The allocator's figures, per device; no devices where it is not in place."""
    session = _session.current
    return {"mode": None, "degraded": None, "devices": []} if session is None else session.stats()


def flush() -> None:
    """Hands every event so far to the trace file, and writes the summary."""
    session = _session.current
    if session is not None:
        session.flush()


def stop() -> None:
    """Ends the trace in order; the run goes on and is not recorded any more. Nothing where there is no trace."""
    session = _session.current
    if session is not None:
        session.stop()


def mode() -> Optional[str]:
    """Torch, Trace, Alloc or Auto; None where stalloc is not active in this process."""
    session = _session.current
    return None if session is None else session.mode


def installed() -> bool:
    """True where stalloc's allocator serves this process (Trace and Alloc)."""
    session = _session.current
    return session is not None and session.library is not None
