"""What this process does under stalloc, once it has been activated. One per process; a forked child has none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, Optional

from stalloc.train.imports import when_imported

if TYPE_CHECKING:
    from stalloc.core.library import Library
    from stalloc.train.auto.auto import Auto
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
