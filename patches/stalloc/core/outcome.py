"""What a run came to, from its summary and the planner's analysis: for its last line and `stalloc status`."""

from __future__ import annotations

import dataclasses
import json
import os
import shlex
from pathlib import Path
from typing import Any, Optional

from stalloc.core.sizes import size

_ALIKE = 0.02  # of the peak: further away, what is known of another run, or of a part of this one, says nothing
_MOSTLY = 0.95  # of the requests: what is less is said in the run's last line
LEAST_REPORTED_BYTES = 1 << 20  # a program that allocates less has nothing to plan, and gets no message
NO_ITERATION = "no iteration was seen: step an optimizer of torch's, or call stalloc.iteration() in the loop"
NOT_SERVED = "no plan served this run"
NEVER_SHORT = "memory was never short"


def planned(device: dict[str, Any]) -> str:
    """What a device's plan served, of requests over 512 B from the second iteration on; fenced ones (evaluations,
    checkpoints) have no slots, and are apart. Before that iteration: of all requests."""
    steady = device.get("steady", {})
    if not steady.get("requests"):
        return f"{device.get('planned_hits', 0)} of {device.get('requests', 0)} requests"
    fenced = steady.get("fenced", 0)
    return f"{steady['hits']} of {steady['requests']} steady requests" + (f", and {fenced} fenced" if fenced else "")


def served_share(device: dict[str, Any]) -> Optional[float]:
    """The share of the steady requests; None if there were none."""
    steady = device.get("steady", {})
    return steady["hits"] / steady["requests"] if steady.get("requests") else None


@dataclasses.dataclass(frozen=True)
class Outcome:
    """The outcome of the device with most requests. Bytes; `native_bytes`: what PyTorch's allocator would hold for this
    run, as a model of it says that followed its requests, or the planner's simulation of the traced run, where this is
    the same and a plan served it; None where that is not known: `native_unknown` then has why."""

    mode: str
    peak_live_bytes: int
    held_peak_bytes: int
    efficiency: float
    served: str  # of a run under a plan
    native_bytes: Optional[int]
    native_unknown: str = ""
    share: Optional[float] = None  # of the steady requests, that the plan served; None: there were none, or no plan
    needed_bytes: Optional[int] = None  # of the device, with what graphs write that no tensor holds; None: no graphs
    was_short: bool = True  # of memory, at some time; else more than lives is held to save time, and E says nothing

    @property
    def saved_bytes(self) -> Optional[int]:
        """Less than that is held; None as there. Never negative."""
        return None if self.native_bytes is None else max(0, self.native_bytes - self.held_peak_bytes)

    @property
    def device_efficiency(self) -> Optional[float]:
        """What the device needs, by what is held."""
        if self.needed_bytes is None:
            return None
        return min(self.needed_bytes, self.held_peak_bytes) / self.held_peak_bytes

    def worded(self) -> str:
        """One line."""
        text = self._held(2)
        if self.mode not in ("Alloc", "Auto"):
            return text
        text += f", {self.served} from the plan" if self.served else f"; {NOT_SERVED}"
        return f"{text}; {self._native()}"

    def _held(self, digits: int) -> str:
        text = held_for(size(self.held_peak_bytes), size(self.peak_live_bytes))
        if not self.was_short:
            return f"{text}, {NEVER_SHORT}"
        text += f": E {100 * self.efficiency:.{digits}f} %"
        if self.device_efficiency is None:
            return text
        return f"{text}, {100 * self.device_efficiency:.{digits}f} % with what graphs need"

    def _native(self, saved: bool = True) -> str:
        if self.native_bytes is None:
            return f"what PyTorch would hold is not known: {self.native_unknown}"
        text = f"PyTorch would hold {size(self.native_bytes)}"
        return f"{text}: {size(self.saved_bytes)} saved" if saved and self.saved_bytes else text

    def brief(self) -> str:
        """A run's last line."""
        if not self.served:
            return f"{NOT_SERVED}: {held_for(size(self.held_peak_bytes), size(self.peak_live_bytes))}"
        text = self._held(1)
        if self.share is not None and self.share < _MOSTLY:
            text += f", {100 * self.share:.0f} % from the plan"
        return f"{text}; {self._native(saved=False)}"


def outcome_of(stats: dict[str, Any], directory: Path, rank: int) -> Optional[Outcome]:
    """The outcome in stats() or a summary; None if nothing was allocated. `rank`: whose trace was analysed."""
    figures = stats.get("since_plan") or stats
    held, live = figures.get("held_peak_bytes", 0), figures.get("peak_live_bytes", 0)
    if not held or not live:
        return None
    native, unknown = _followed(stats.get("native") or {}, live)
    served = bool(stats.get("planned_hits") or stats.get("steady", {}).get("hits"))
    analysis = directory / "output" / "trace_analysis" / f"rank{rank:05d}.json"
    simulated, needed = _traced(analysis, live) if served else (None, None)
    native = simulated if native is None else native
    text, share = (planned(stats), served_share(stats)) if served else ("", None)
    was_short = bool(stats.get("card_was_full", True)) or not served
    unknown = "" if native else unknown
    return Outcome(str(stats.get("mode")), live, held, live / held, text, native, unknown, share, needed, was_short)


def held_for(held: str, live: str) -> str:
    return f"held {held} for {live} live"


def _followed(native: dict[str, Any], live: int) -> tuple[Optional[int], str]:
    """What the model says that the library fed with the requests of this run, or why it does not."""
    if native.get("overflowed"):
        return None, "too many blocks lived at a time to follow them"
    if not native.get("held_bytes"):
        return None, "no iteration's requests were followed"
    if live > (1 + _ALIKE) * native.get("peak_live_bytes", 0):
        return None, "more lived later than while requests were followed"
    return int(native["held_bytes"]), ""


def shown(directory: Path) -> str:
    """The path in few letters, as it can be typed: with ~ below the user's home directory."""
    home, text = os.path.expanduser("~"), str(directory)
    below = os.path.isabs(home) and home != "/" and text.startswith(f"{home}/")
    return shlex.quote(text) if not below else f"~/{shlex.quote(text[len(home) + 1 :])}"


def _traced(analysis: Path, live: int) -> tuple[Optional[int], Optional[int]]:
    """For the traced run, if this is the same: what PyTorch's allocator would hold, and what the device needs with
    captured graphs."""
    try:
        devices = json.loads(analysis.read_text(encoding="utf-8"))["devices"]
        traced = max(devices, key=lambda device: int(device["peak"]["live_bytes"]))
        if abs(live - traced["peak"]["live_bytes"]) > _ALIKE * live:
            return None, None
        graphs = traced.get("graphs")
        return int(traced["simulated"]["native_bytes"]), None if graphs is None else int(graphs["needed_bytes"])
    except (OSError, ValueError, KeyError, TypeError):
        return None, None  # not planned here, or the file is of another version
