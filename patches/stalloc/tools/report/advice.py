"""What would lower the peak of a run, by how much and at what cost: computed from the planner's JSON. Bytes.

Each change of what is live was played over the whole run by the planner; a split of the model is estimated; what
allocators hold is simulated. Nothing is advised that saves less than 0.2 % of the peak. Where the trace does not tell
all, the worse is taken, and the row says "at least".
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterable
from typing import Any, Callable, Optional

from stalloc.core.sizes import size
from stalloc.tools.report import findings, graphs, how_to, splits, unused
from stalloc.tools.report.arguments import configuration_of
from stalloc.tools.report.configuration import Configuration

BUS = 25e9  # bytes a second to the host; what PCIe 4.0 x16 moves in practice (31.5e9 without its overhead)
_LEAST_SAVING = 0.002
_ALIKE = 0.01  # of the saving: layers that differ by less are one choice
_MOST_SPLITS = 6
_TRACED_BY_A_RUN = ("exact", "fast", "fake")  # others have no program that could be traced again
_EARLY = "allocate it right before {}"
_LATE = "del of what holds it, right behind {}"
_IDLE = "t.cpu() and back, or torch.autograd.graph.save_on_cpu(pin_memory=True) where backward needs it"

Told = tuple[str, str, float, str]  # what to do, what it costs, that as a share of an iteration, and what to set


@dataclasses.dataclass(frozen=True)
class Advice:
    what: str
    saves_bytes: int
    peak_bytes: int  # then
    cost: str
    how_known: str
    how_to: str = ""  # the option or the line to set
    at_least: bool = False  # it may save more
    cost_share: float = 0.0  # of an iteration's time on the host
    of_live: bool = True  # saves_bytes are of what is live; else of what an allocator holds
    layers: str = dataclasses.field(default="", repr=False)  # that are recomputed


def advise(
    view: dict[str, Any], index: int, of_device: dict[str, Any], gpus: Optional[int] = None, bus: float = BUS
) -> list[dict[str, Any]]:
    """Of one device, by bytes saved: the fields of Advice.

    Savings of the live peak are of the whole run, played with the change; those of an allocator are of what the device
    holds. They do not add up: two changes may remove the same peak.

    Args:
        view: the planner's JSON.
        index: of the device.
        of_device: figures.device_figures.
        gpus: to split the model over (default: as many as the run had).
        bus: bytes a second, for what is moved to the host.
    """
    peak = of_device["peak_live_bytes"]
    configuration = configuration_of(view)
    played = _Played(view, index, configuration, gpus, bus)
    rows = played.rows()
    if view["devices"][index]["unused"] is not None:
        rows += played.unused(unused.rows(view, index))
    rows += _from_allocators(of_device)
    rows += _from_graphs(view["devices"][index]["graph_pools"], graphs.finding(view, index))
    rows += _from_splits(configuration, peak, gpus) if configuration else []
    rows += _from_leaks(findings.leaks(view, index), peak, _peak_segment(view["devices"][index]))
    rows = [row for row in _merged(rows) if row.saves_bytes >= _LEAST_SAVING * peak]
    return [dataclasses.asdict(row) for row in sorted(rows, key=lambda row: (-row.saves_bytes, row.cost_share))]


def hint(view: dict[str, Any], index: int) -> Optional[str]:
    """What the trace would have to have for more advice; None: nothing."""
    if any(view["devices"][index]["layers"]) or view["rank"]["fingerprint"]["trace_mode"] not in _TRACED_BY_A_RUN:
        return None
    return "which layers to recompute is not known: trace once more with STALLOC_TRACE_MODULES=1"


class _Played:
    """Rows from the alternatives that the planner played."""

    def __init__(
        self,
        view: dict[str, Any],
        index: int,
        configuration: Optional[Configuration],
        gpus: Optional[int],
        bus: float,
    ) -> None:
        self._drawn = view["devices"][index]
        self._layers = frozenset(self._drawn["layers"])
        self._megatron = configuration is not None
        self._configuration = configuration
        self._ranks: int = gpus or view["replicas"]
        self._bus = bus
        timed = view["rank"]["fingerprint"]["trace_mode"] != "fake"  # its times are those of making it
        self._forward = _forward_shares(self._drawn) if timed else {}
        self._iteration_ns = _iteration_ns(self._drawn) if timed else 0

    def rows(self) -> list[Advice]:
        told: dict[str, Callable[[dict[str, Any]], Iterable[Told]]] = {
            "recompute layer": self._recompute_layer,
            "offload layer": self._offload_layer,
            "offload state": self._offload_state,
            "shard state": self._shard_state,
            "shard gradients": self._shard_gradients,
            "shard all": self._shard_all,
            "no optimizer scratch": self._fused,
            "chunk loss": self._chunk_loss,
            "free late": self._free_late,
        }
        found, live = self._drawn["alternatives"], self._drawn["peak"]["live_bytes"]
        rows = []
        for values in zip(*found.values()):
            entry = dict(zip(found, values))
            if entry["kind"] == "free late" and self._drawn["unused"] is not None:
                continue  # uses tell better than marks
            how = f"{size(entry['at_peak'])} of the peak; the run played with the change"
            if entry["kind"] == "free late":
                how = f"{size(entry['at_peak'])} of the peak, late by the marks (the trace has no uses); the run played"
            for what, cost, share, line in told[entry["kind"]](entry):
                row = Advice(what, live - entry["peak"], entry["peak"], cost, how, line, entry["at_least"], share)
                rows.append(dataclasses.replace(row, layers=entry["layers"]))
        return rows

    def unused(self, rows: list[dict[str, Any]]) -> Iterable[Advice]:
        """From the uses of blocks: each kind as a whole, and groups of blocks that are alike."""
        table, live = self._drawn["unused"], self._drawn["peak"]["live_bytes"]
        how = "uses of blocks in the trace; the run played with the change"
        what, peak = "allocate every block at its first use, and free it behind its last", table["early_and_late_peak"]
        yield Advice(what, live - peak, peak, "none", how, "the rows below, all of them")
        if self._drawn["device"] >= 0:  # the CPU's memory is the host's
            cost, share = self._moved(table["idle_moved"])
            what, peak = "offload what is idle for long (at most so much)", table["idle_peak"]
            yield Advice(what, live - peak, peak, cost, how, _IDLE, cost_share=share)
        whats = {"early": "allocate later", "late": "free earlier"}
        for row in rows:
            if row["kind"] in whats:
                what = f"{whats[row['kind']]}, {unused.when(row)}: {unused.told(row)}"
                at_peak = f"{size(row['at_peak'])} of the peak; {how}"
                line = _EARLY.format(row["after"]) if row["kind"] == "early" else _LATE.format(row["before"])
                yield Advice(what, row["saves_bytes"], row["peak"], "none", at_peak, line)

    def _moved(self, count: int) -> tuple[str, float]:
        """What it costs to bring so many bytes to the host and back in an iteration."""
        seconds = 2 * count / self._bus
        share = seconds * 1e9 / self._iteration_ns if self._iteration_ns else 0.0
        relative = f": {100 * share:.1f} % of it" if share < 1 else f": {share:.1f} times as long as it takes"
        known = relative if self._iteration_ns else ""
        return f"{size(count)} over the bus an iteration, out and back{known}, less what is hidden", share

    def _recompute_layer(self, entry: dict[str, Any]) -> Iterable[Told]:
        layers = entry["layers"]
        share = sum(part for name, part in self._forward.items() if called(name, layers))
        part = f", {100 * share:.1f} % of the iteration" if self._forward else ""
        line = how_to.recompute(layers, self._layers, self._megatron, entry["leaves"])
        yield f"recompute {'each of ' if '*' in layers else ''}{layers}", f"its forward pass again{part}", share, line

    def _offload_layer(self, entry: dict[str, Any]) -> Iterable[Told]:
        layers = entry["layers"]
        if self._drawn["device"] >= 0 and "*" in layers:  # the CPU's memory is the host's
            line = how_to.offload(layers, self._layers, self._megatron)
            yield f"offload the activations of each of {layers}", *self._moved(entry["moved"]), line

    def _offload_state(self, entry: dict[str, Any]) -> Iterable[Told]:
        if self._drawn["device"] >= 0:
            line = how_to.MEGATRON_OFFLOAD_STATE if self._megatron else how_to.OFFLOAD_STATE
            yield "offload the optimizer state", *self._moved(entry["at_peak"]), line

    def _shard_state(self, _: object) -> Iterable[Told]:
        if self._configuration is None or not self._configuration.use_distributed_optimizer:
            what = f"share the optimizer state among {self._ranks} ranks (ZeRO 1, distributed optimizer)"
            line = how_to.MEGATRON_SHARD_STATE if self._megatron else how_to.SHARD_STATE
            yield what, "a gather of the weights every step; shares are taken to be even", 0.0, line

    def _shard_gradients(self, entry: dict[str, Any]) -> Iterable[Told]:
        found = self._drawn["alternatives"]
        state_alone = [peak for kind, peak in zip(found["kind"], found["peak"]) if kind == "shard state"]
        if [entry["peak"]] != state_alone and not self._megatron:  # else there are no gradients at the peak
            what = f"share optimizer state and gradients among {self._ranks} ranks (ZeRO 2): at most so much"
            cost = "gradients are scattered in every backward pass; their buckets are not counted"
            yield what, cost, 0.0, how_to.SHARD_GRADIENTS

    def _shard_all(self, _: object) -> Iterable[Told]:
        what = f"share weights, gradients and state among {self._ranks} ranks (FSDP, ZeRO 3): at most so much"
        line = how_to.MEGATRON_SHARD_ALL if self._megatron else how_to.SHARD_ALL
        yield what, "a gather of each layer's weights in each pass; room for it is not counted", 0.0, line

    def _fused(self, _: object) -> Iterable[Told]:
        yield "use a fused optimizer: its temporaries go", "none", 0.0, how_to.FUSED

    def _chunk_loss(self, entry: dict[str, Any]) -> Iterable[Told]:
        parts = round(1 / entry["keep"])
        largest = size(entry["bytes"])
        what = f"compute logits and loss in {parts} parts (blocks of up to {largest} that are there at the turn alone)"
        line = how_to.LOSS_IN_PARTS.replace("{parts}", str(parts))
        yield what, "logits again, and more, smaller kernels at the turn", 0.0, line

    def _free_late(self, entry: dict[str, Any]) -> Iterable[Told]:
        most = f"up to {size(entry['bytes'])}, most from {self._drawn['roles'][entry['role']]}"
        whats = {
            "after the backward": "free what outlives the backward pass of its micro-batch (outputs kept in variables)",
            "after the layer": "free activations where the backward pass of their layer ends",
            "after the iteration": "let nothing live into the next iteration: del outputs and losses behind the "
            "optimizer's step, zero_grad(set_to_none=True) there",
            "after the optimizer": "free gradients behind the optimizer's step: zero_grad(set_to_none=True) there",
        }
        yield f"{whats[entry['late']]}: {most}", "none", 0.0, how_to.LATE[entry["late"]]


def _from_allocators(of_device: dict[str, Any]) -> list[Advice]:
    held = {row["name"]: row["held_bytes"] for row in of_device["allocators"]}
    native = held["PyTorch native"]
    known = "held on the device against PyTorch's native allocator; "
    changes = [
        ("expandable_segments", "let PyTorch's segments grow", "simulated from the trace", how_to.EXPANDABLE),
        ("stalloc, planned", "run with the plan", "predicted by the planner", how_to.PLANNED),
    ]
    return [
        Advice(what, native - held[name], held[name], "none", known + how, line, of_live=False)
        for name, what, how, line in changes
        if name in held
    ]


# What is live outside beside all that pools have had is held where nothing of them is lent, and is more than is live.
def _from_graphs(pools: Optional[dict[str, Any]], found: Optional[dict[str, Any]]) -> list[Advice]:
    if pools is None:
        return []
    lent = 0 if found is None else found["saves_bytes"]
    idle = max(0, pools["held"] - pools["live_then"] - lent)
    what = (
        f"let graphs' pools serve more: {size(idle)} of them lie idle when most is held. Capture what runs eagerly "
        "then into one of them (pool=), or free it before"
    )
    how = "live outside and the most of each pool, from the trace, as if graphs lived to its end"
    line = "torch.cuda.graph(graph, pool=first.pool())"
    return [Advice(what, idle, pools["live_then"], "graphs of one pool keep their order", how, line, of_live=False)]


# What a split saves is taken off the measured peak, estimate against estimate.
def _from_splits(config: Configuration, peak: int, gpus: Optional[int]) -> list[Advice]:
    now, found = splits.better(config, gpus)
    rows = []
    for split in found[:_MOST_SPLITS]:
        saves = now.total - split.total
        cost = f"pipeline waits {100 * split.bubble:.1f} % (now {100 * now.bubble:.1f} %), other communication"
        how = f"an estimate: {size(split.total)} on the rank that needs most, {size(now.total)} as traced ({now})"
        share = max(0.0, split.bubble - now.bubble)
        what = f"split over {split.config.world_size} GPUs as {split}"
        line = how_to.split(split.config)
        rows.append(Advice(what, saves, max(0, peak - saves), cost, how, line, cost_share=share))
    return rows


# What the iterations before the peak's have left is there at the peak.
def _from_leaks(leaking: dict[str, Any], peak: int, peak_segment: int) -> list[Advice]:
    left = leaking["bytes_per_iteration"]
    saves = left * max(0, min(leaking["judged_iterations"], peak_segment - 1))
    what = f"stop leaving {size(left)} behind in every iteration"
    line = "stalloc report DIR --leaks names what stays; STALLOC_TRACE_STACKS=1 when tracing, where it was made"
    how = f"left by the {peak_segment - 1} traced iterations before the peak; the run's own go on"
    return [Advice(what, saves, peak - saves, "none", how, line)] if saves else []


# Single layers of one kind that save as much each are one choice.
def _merged(rows: list[Advice]) -> list[Advice]:
    kinds: dict[str, list[Advice]] = defaultdict(list)
    kept: list[Advice] = []
    for row in rows:
        single = row.layers and "*" not in row.layers
        (kinds[_pattern(row.layers)] if single else kept).append(row)
    for pattern, alike in kinds.items():
        saved = [row.saves_bytes for row in alike]
        if len(alike) == 1 or max(saved) - min(saved) > _ALIKE * max(saved):
            kept += alike
            continue
        share = max(row.cost_share for row in alike)
        cost = "its forward pass again" + (f", {100 * share:.1f} % of the iteration at most" if share else "")
        what = f"recompute one of {pattern} ({len(alike)} of them save as much each)"
        kept.append(dataclasses.replace(alike[0], what=what, cost=cost, cost_share=share))
    return kept


def _peak_segment(drawn: dict[str, Any]) -> int:
    """The iteration of the peak, from 1; 0: the set-up."""
    phases = drawn["phases"]
    inside = [i for i, event in enumerate(phases["event"]) if event <= drawn["peak"]["event"]]
    return int(phases["segment"][inside[-1]]) if inside else 0


def _iteration_ns(drawn: dict[str, Any]) -> int:
    """Of the peak's iteration, on the host; 0 for the set-up."""
    phases, segment = drawn["phases"], _peak_segment(drawn)
    if segment == 0:
        return 0
    begin = phases["ns"][phases["segment"].index(segment)]
    end = next((ns for ns, other in zip(phases["ns"], phases["segment"]) if other > segment), drawn["end_ns"])
    return int(end - begin)


# Of the wall time of the iterations, by layer with what is inside it; on the host, as far as the marks see it.
def _forward_shares(drawn: dict[str, Any]) -> dict[str, float]:
    table, phases = drawn["layer_table"], drawn["phases"]
    begin = next((ns for ns, segment in zip(phases["ns"], phases["segment"]) if segment > 0), 0)
    whole = drawn["end_ns"] - begin
    rows = zip(table["layer"], table["pass"], table["ns"])
    return {drawn["layers"][layer]: ns / whole for layer, which, ns in rows if which == "F" and whole > 0}


def _pattern(path: str) -> str:
    return ".".join("*" if part.isdigit() else part for part in path.split("."))


def called(path: str, pattern: str) -> bool:
    """The path is the pattern's, where * stands for a number."""
    parts, wanted = path.split("."), pattern.split(".")
    return len(parts) == len(wanted) and all(w in (p, "*" if p.isdigit() else p) for p, w in zip(parts, wanted))
