"""runtime_report.json with the keys of MemScope: runtime_trace, peak, top_events, comparisons, metadata.

The marks of a trace replace its hooks and torch.cuda's counters: where steps, the optimizer and
modules begin and end. Live bytes are rounded up to 512 for each block, as torch counts them. Reserved bytes are what
was held while tracing, as far as that was recorded; else what is live.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any, Optional

from stalloc.core.sizes import size

_PHASES = {"F": "forward", "B": "backward", "W": "backward", "FB": "forward_backward", "O": "optimizer"}
_STEP = "train_step"
# Arguments of Megatron-LM that its users look for among the metadata.
_ARGUMENTS = (
    *("tensor_model_parallel_size", "pipeline_model_parallel_size", "data_parallel_size"),
    *("use_distributed_optimizer", "optimizer"),
)


def runtime_report(view: Mapping[str, Any], lines: Iterable[dict[str, Any]], top: int) -> dict[str, Any]:
    """The report of the view's first device.

    Args:
        view: of the planner's report, with `estimate`.
        lines: of `stalloc-planner dump --json`, parsed, in order.
        top: how many of top_events there are.
    """
    device = int(view["devices"][0]["device"])
    timeline = _Timeline(device)
    for line in lines:
        timeline.take(line)
    timeline.finish()
    events = [dataclasses.asdict(event) for event in timeline.events]
    order = ("mem_allocated_after", "max_mem_allocated", "delta_allocated")
    return {
        "runtime_trace": events,
        "peak": timeline.peak,
        "top_events": sorted(events, key=lambda event: [event[key] for key in order], reverse=True)[:top],
        "metadata": _metadata(view, device),
        "comparisons": _comparisons(view, int(timeline.peak["memory_bytes"])),
    }


@dataclasses.dataclass
class Event:
    """Bytes before and after what it is about. A module's: inside it; a step's: the moment."""

    event_type: str  # step, module, tensor_grad
    module: str
    phase: str
    step: int
    mem_allocated_before: int
    mem_allocated_after: int
    mem_reserved_before: int
    mem_reserved_after: int
    max_mem_allocated: int
    max_mem_reserved: int
    delta_allocated: int
    delta_reserved: int
    inputs: list[Any] = dataclasses.field(default_factory=list)  # a trace has blocks, and no tensors
    outputs: list[Any] = dataclasses.field(default_factory=list)
    grads: list[Any] = dataclasses.field(default_factory=list)
    notes: str = ""


class _Timeline:
    """Plays a trace. Marks count as for the planner: not in fences, and automatic ones up to the first that is not."""

    def __init__(self, device: int) -> None:
        self.events: list[Event] = []
        self.peak: dict[str, Any] = {"phase": "", "module": "", "step": 0, "memory_bytes": 0, "reserved_bytes": 0}
        self._device = device
        self._live = self._held = self._most = self._most_held = 0
        self._step: Optional[int] = None
        self._phase = ""  # of the pass, or the optimizer
        self._open: list[tuple[str, str, int, int]] = []  # layers: name, pass, live and held where each began
        self._explicit: set[str] = set()
        self._fences = 0

    def take(self, line: dict[str, Any]) -> None:
        kind = line["event"]
        if kind == "mark":
            self._mark(line)
        elif kind in ("alloc", "free", "held") and line["device"] == self._device:
            if kind == "held":
                self._held = line["bytes"]
            else:
                self._live += (1 if kind == "alloc" else -1) * max(512, -(-line["bytes"] // 512) * 512)
            self._most_held = max(self._most_held, self._reserved())
            if self._live > self._most:
                self._most = self._live
                self._peak()

    def finish(self) -> None:
        self._close(0)
        self._end_step()

    def _reserved(self) -> int:
        return max(self._held, self._live)

    def _peak(self) -> None:
        name, which = self._open[-1][:2] if self._open else (_STEP, "-")
        self.peak = {
            "phase": _PHASES.get(which, self._phase) or ("set_up" if self._step is None else "step"),
            "module": name,
            "step": self._step or 0,
            "memory_bytes": self._live,
            "reserved_bytes": self._reserved(),
        }

    def _mark(self, line: dict[str, Any]) -> None:
        kind, begins = line["kind"], line["edge"] == "begin"
        if kind == "fence":
            self._fences += 1 if begins else -1
            return
        if not line.get("automatic"):
            self._explicit.add(kind)
        if self._fences > 0 or (line.get("automatic") and kind in self._explicit):
            return
        if kind == "layer":
            self._layer(line, begins)
            return
        self._close(0)
        if kind == "iteration":
            self._end_step()
            if begins:
                self._step, self._phase = line["index"], ""
                self._boundary("step_start")
        elif kind == "microbatch":
            self._phase = _PHASES.get(line["pass"], "") if begins else ""
        elif kind == "optimizer":
            if begins and self._phase != "optimizer":
                self._boundary("forward_backward_end")
                self._boundary("optimizer_step_start")
            elif not begins and self._phase == "optimizer":
                self._boundary("optimizer_step_end")
            self._phase = "optimizer" if begins else ""

    def _end_step(self) -> None:
        if self._phase == "optimizer":
            self._boundary("optimizer_step_end")
        if self._step is not None:
            self._boundary("step_end")
        self._step, self._phase = None, ""

    def _layer(self, line: dict[str, Any], begins: bool) -> None:
        name, which = line["name"], line["pass"]
        if begins:
            self._open.append((name, which, self._live, self._reserved()))
            if which != "B":
                self._add(("module", name, "forward_pre", "before forward"), self._live, self._reserved())
            return
        places = [at for at, entry in enumerate(self._open) if entry[:2] == (name, which)]
        if places:
            self._close(places[-1])

    def _close(self, depth: int) -> None:
        while len(self._open) > depth:
            name, which, live, held = self._open.pop()
            if which == "B":
                self._add(("tensor_grad", name, "backward", "the module's backward pass"), live, held)
            else:
                self._add(("module", name, _PHASES.get(which, "forward"), "after forward"), live, held)

    def _boundary(self, phase: str) -> None:
        self._add(("step", _STEP, phase, phase.replace("_", " ")), self._live, self._reserved())

    def _add(self, texts: tuple[str, str, str, str], live: int, held: int) -> None:
        """`texts`: type, module, phase and notes; bytes from before."""
        kind, module, phase, notes = texts
        now, reserved = self._live, self._reserved()
        self.events.append(
            Event(
                event_type=kind,
                module=module,
                phase=phase,
                step=self._step or 0,
                mem_allocated_before=live,
                mem_allocated_after=now,
                mem_reserved_before=held,
                mem_reserved_after=reserved,
                max_mem_allocated=self._most,
                max_mem_reserved=self._most_held,
                delta_allocated=now - live,
                delta_reserved=reserved - held,
                notes=notes,
            )
        )


def _metadata(view: Mapping[str, Any], device: int) -> dict[str, str]:
    print_of = view["rank"]["fingerprint"]
    arguments = view.get("megatron_arguments") or {}
    known = {name: str(arguments[name]) for name in _ARGUMENTS if name in arguments}
    if arguments:
        half = next((name for name in ("bf16", "fp16") if arguments.get(name)), "fp32")
        known["dtype"] = half
    return {
        "mode": "runtime",
        "rank": str(view["rank"]["rank"]),
        "world_size": str(print_of.get("world_size", 1)),
        "device": "cpu" if device < 0 else f"cuda:{device}",
        "device_name": print_of.get("device_name", ""),
        "trace_mode": print_of.get("trace_mode", ""),
        **known,
    }


def _comparisons(view: Mapping[str, Any], peak: int) -> dict[str, float]:
    """Appends the estimate, if there is one."""
    found = {"runtime_peak_memory_bytes": float(peak)}
    static = next((row["estimate"] for row in view.get("estimate") or () if row["name"] == "peak"), 0)
    if static:
        found |= {
            "static_peak_memory_bytes": float(static),
            "peak_diff_bytes": float(peak - static),
            "peak_diff_ratio": (peak - static) / static,
        }
    return found


def top_table(report: Mapping[str, Any]) -> str:
    """top_events as Markdown."""
    header = ("step", "event type", "module", "phase", "allocated after", "reserved after", "delta allocated")
    rows: list[tuple[object, ...]] = [header, ("---",) * len(header)]
    for event in report["top_events"]:
        bytes_of = (event[key] for key in ("mem_allocated_after", "mem_reserved_after", "delta_allocated"))
        texts = (event[key] for key in ("step", "event_type", "module", "phase"))
        rows.append((*texts, *(("-" if count < 0 else "") + size(abs(count)) for count in bytes_of)))
    lines = ["| " + " | ".join(map(str, row)) + " |" for row in rows]
    return "\n".join(["", "## Top events", "", *lines, ""])
