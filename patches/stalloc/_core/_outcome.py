"""What a run came to, from its summary and the planner's analysis: for its last line and `stalloc summary`."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any, Optional

from stalloc._core._report import planned, size

_ALIKE = 0.02  # of the traced peak: further away, what was simulated from the trace says nothing of this run


@dataclasses.dataclass(frozen=True)
class Outcome:
    """Of the device with most requests. Bytes; `native_bytes`: what PyTorch's allocator would hold for the traced run,
    simulated, None where that is not known, this run is another, or no plan served it."""

    mode: str
    peak_live_bytes: int
    held_peak_bytes: int
    efficiency: float
    served: str
    native_bytes: Optional[int]

    @property
    def saved_bytes(self) -> Optional[int]:
        """Less than that is held; None as there. Never negative."""
        return None if self.native_bytes is None else max(0, self.native_bytes - self.held_peak_bytes)

    def told(self) -> str:
        """One line."""
        text = (
            f"held {size(self.held_peak_bytes)} for {size(self.peak_live_bytes)} live: E {100 * self.efficiency:.2f} %"
        )
        if self.mode in ("Alloc", "Auto"):
            text += f", {self.served} from the plan"
        if self.saved_bytes:
            text += f"; PyTorch's allocator would hold {size(self.native_bytes or 0)}: {size(self.saved_bytes)} saved"
        return text


def outcome_of(stats: dict[str, Any], directory: Path, rank: int) -> Optional[Outcome]:
    """Of stats() or a summary; None where nothing was allocated. `rank`: whose trace was analysed."""
    figures = stats.get("since_plan") or stats
    held, live = figures.get("held_peak_bytes", 0), figures.get("peak_live_bytes", 0)
    if not held or not live:
        return None
    analysis = directory / "output" / "trace_analysis" / f"rank{rank:05d}.json"
    native = _native_bytes(analysis, live) if _served_from_plan(stats) else None
    return Outcome(str(stats.get("mode")), live, held, live / held, planned(stats), native)


def _served_from_plan(stats: dict[str, Any]) -> bool:
    return bool(stats.get("planned_hits") or stats.get("steady", {}).get("hits"))


def _native_bytes(analysis: Path, live: int) -> Optional[int]:
    try:
        devices = json.loads(analysis.read_text(encoding="utf-8"))["devices"]
        traced = max(devices, key=lambda device: int(device["peak"]["live_bytes"]))
        if abs(live - traced["peak"]["live_bytes"]) > _ALIKE * live:
            return None
        return int(traced["simulated"]["native_bytes"])
    except (OSError, ValueError, KeyError, TypeError):
        return None  # not planned here, or the file is of another version
