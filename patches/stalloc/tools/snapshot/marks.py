"""A mark of a training loop, as proto/trace.proto has it, among a snapshot's events."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Mark:
    before: int  # index into Snapshot.events: the event that it stands before
    kind: str
    edge: str = "begin"
    which: str = "-"  # pass
    index: int = 0
    chunk: int = 0
    name: str = ""  # of a layer

    def order(self) -> tuple[int, bool, int]:
        """Its order: ends before begins; outer ranges begin first and end last."""
        begins = self.edge == "begin"
        depth = _OUTSIDE.index(self.kind) if self.kind in _OUTSIDE else len(_OUTSIDE)
        return self.before, begins, depth if begins else -depth


_OUTSIDE = ("iteration", "microbatch", "optimizer", "layer")
