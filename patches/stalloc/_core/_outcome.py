"""What a run came to, from its summary and the planner's analysis: for its last line and `stalloc summary`."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any, Optional

from stalloc._core._report import planned, size

_ALIKE = 0.02  # of the peak: further away, what is known of another run, or of a part of this one, says nothing


@dataclasses.dataclass(frozen=True)
class Outcome:
    """Of the device with most requests. Bytes; `native_bytes`: what PyTorch's allocator would hold for this run, as a
    model of it says that followed its requests, or the planner's simulation of the traced run, where this is the same
    and a plan served it; None where that is not known: `native_unknown` then has why."""

    mode: str
    peak_live_bytes: int
    held_peak_bytes: int
    efficiency: float
    served: str
    native_bytes: Optional[int]
    native_unknown: str = ""

    @property
    def saved_bytes(self) -> Optional[int]:
        """Less than that is held; None as there. Never negative."""
        return None if self.native_bytes is None else max(0, self.native_bytes - self.held_peak_bytes)

    def told(self) -> str:
        """One line."""
        text = (
            f"held {size(self.held_peak_bytes)} for {size(self.peak_live_bytes)} live: E {100 * self.efficiency:.2f} %"
        )
        if self.mode not in ("Alloc", "Auto"):
            return text
        return f"{text}, {self.served} from the plan; {self._native()}"

    def _native(self) -> str:
        if self.native_bytes is None:
            return f"what PyTorch's allocator would hold is not known: {self.native_unknown}"
        saved = f": {size(self.saved_bytes)} saved" if self.saved_bytes else ""
        return f"PyTorch's allocator would hold {size(self.native_bytes)}{saved}"


def outcome_of(stats: dict[str, Any], directory: Path, rank: int) -> Optional[Outcome]:
    """Of stats() or a summary; None where nothing was allocated. `rank`: whose trace was analysed."""
    figures = stats.get("since_plan") or stats
    held, live = figures.get("held_peak_bytes", 0), figures.get("peak_live_bytes", 0)
    if not held or not live:
        return None
    native, unknown = _followed(stats.get("native") or {}, live)
    if native is None and _served_from_plan(stats):
        analysis = directory / "output" / "trace_analysis" / f"rank{rank:05d}.json"
        native = _simulated(analysis, live)
    return Outcome(str(stats.get("mode")), live, held, live / held, planned(stats), native, "" if native else unknown)


def _followed(native: dict[str, Any], live: int) -> tuple[Optional[int], str]:
    """What the model says that the library fed with the requests of this run, or why it does not."""
    if native.get("overflowed"):
        return None, "too many blocks lived at a time to follow them"
    if not native.get("held_bytes"):
        return None, "no iteration's requests were followed"
    if live > (1 + _ALIKE) * native.get("peak_live_bytes", 0):
        return None, "more lived later than while requests were followed"
    return int(native["held_bytes"]), ""


def _served_from_plan(stats: dict[str, Any]) -> bool:
    return bool(stats.get("planned_hits") or stats.get("steady", {}).get("hits"))


def _simulated(analysis: Path, live: int) -> Optional[int]:
    try:
        devices = json.loads(analysis.read_text(encoding="utf-8"))["devices"]
        traced = max(devices, key=lambda device: int(device["peak"]["live_bytes"]))
        if abs(live - traced["peak"]["live_bytes"]) > _ALIKE * live:
            return None
        return int(traced["simulated"]["native_bytes"])
    except (OSError, ValueError, KeyError, TypeError):
        return None  # not planned here, or the file is of another version
