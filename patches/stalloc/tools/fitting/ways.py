"""Captured graphs as a choice: what they take and save, from a trace with them and one without. Bytes, seconds."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, Optional


@dataclasses.dataclass(frozen=True)
class Way:
    """How the run is not traced, where it could be run so: with graphs, or without. `more_bytes` and `more_seconds` are
    of a step with traced micro-batches, over the way that was traced; below 0 it is less."""

    graphs: bool
    more_bytes: int
    more_seconds: float

    def bytes_at(self, scale: float) -> int:
        """`scale`: of the micro-batch. Pools of graphs grow as what is in them."""
        return round(self.more_bytes * scale)

    def seconds_at(self, micro_batches: float, seconds: float, host_share: Optional[float]) -> float:
        """Of a step with so many micro-batches, over those of a traced step. Graphs save no more than the host's part.

        Args:
            seconds: of the step in the traced way.
            host_share: of these; None: not known.
        """
        more = self.more_seconds * micro_batches
        return more if host_share is None else max(more, -host_share * seconds)


def other_way(found: Optional[dict[str, Any]], traced: Path) -> Optional[Way]:
    """From report.graph_choice.choice of a trace; None: how long steps take is not known of both."""
    if found is None or found["change"]["seconds"] is None:
        return None
    held = max(found["with"]["held_bytes"], found["capture_bytes"]) - found["without"]["held_bytes"]
    sign = -1 if found["with"]["run"] == str(traced) else 1
    return Way(sign > 0, sign * held, sign * found["change"]["seconds"])
