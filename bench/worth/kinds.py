"""The programs as worth.py sees them: how they are traced, and the request to `stalloc fit`. Needs no torch."""

from __future__ import annotations

import dataclasses
from typing import Optional

from rows import ROWS, Rows


@dataclasses.dataclass(frozen=True)
class Traced:
    """A traced run: its micro-batch, and the share of all lengths (0: the program has no rows)."""

    micro_batch: int
    share: float = 0.0

    def words(self) -> list[str]:
        return ["--micro-batch", str(self.micro_batch), *(["--share", str(self.share)] if self.share else [])]


@dataclasses.dataclass(frozen=True)
class Kind:
    """Of a program. The two traces are such that both fit with nothing recomputed, one with half the tokens."""

    traced: Traced
    beside: Traced
    ranks: int = 1
    longest: bool = False  # what counts is the longest sequence, not speed
    divides: bool = False  # the framework knows no smaller last micro-batch
    graphs: bool = False  # its micro-batches can be captured


KINDS = {
    "fsdp2-packed": Kind(Traced(2, 1.0), Traced(1, 1.0), ranks=2),
    "lora": Kind(Traced(1, 0.5), Traced(1, 0.25)),
    "trainer": Kind(Traced(1, 0.5), Traced(1, 0.25), divides=True),
    "captured": Kind(Traced(6, 1.0), Traced(3, 1.0), divides=True, graphs=True),
    "experts": Kind(Traced(24, 1.0), Traced(12, 1.0)),
    "rollout": Kind(Traced(32), Traced(16)),
    "long": Kind(Traced(64), Traced(32), longest=True),
}


def rows_of(program: str, size: str) -> Optional[Rows]:
    """None: its steps have one micro-batch each."""
    return ROWS[program][size] if program in ROWS else None
