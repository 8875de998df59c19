"""Advice on lowering the peak of a run, by how much and at what cost, from the planner's JSON. Bytes.

Each change of what is live was played over the whole run by the planner; a split of the model is estimated; what
allocators hold is simulated. Nothing is advised that saves less than 0.2 % of the peak. Where the trace lacks data
all, the worse is taken, and the row says "at least".
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterable
from typing import Any, Callable, Optional

from stalloc.core.module_paths import pattern_of
from stalloc.core.sizes import size
from stalloc.tools.report import findings, graphs, how_to, source_lines, splits, unused
from stalloc.tools.report.arguments import configuration_of
from stalloc.tools.report.configuration import Configuration

BUS = 25e9  # bytes a second to the host; what PCIe 4.0 x16 moves in practice (31.5e9 without its overhead)
_LEAST_SAVING = 0.01
_ALIKE = 0.01  # of the saving: layers that differ by less are one choice
_MOST_SPLITS = 6
_TRACED_BY_A_RUN = ("exact", "fast", "fake")  # others have no program that could be traced again
_EARLY = "allocate it right before {}"
_LATE = "del of the variable that holds it, right after {}"
_BY_MARKS = {"after the optimizer", "without a backward"}  # late frees whose line to write is always the same
_COPY = "aten::clone"
_GIB = 1 << 30
_IDLE = "t.cpu() and back, or torch.autograd.graph.save_on_cpu(pin_memory=True) where backward needs it"

Lines = tuple[str, str, float, str]  # what to do, what it costs, that as a share of an iteration, and what to set


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
    grows: int = 0  # bytes more in every iteration: a run that goes on ends out of memory
    layers: str = dataclasses.field(default="", repr=False)  # that are recomputed


def advise(
    view: dict[str, Any], index: int, of_device: dict[str, Any], gpus: Optional[int] = None, bus: float = BUS
) -> list[dict[str, Any]]:
    """The advice for one device, by bytes saved: the fields of Advice.

    What makes the run grow comes first. Savings of the live peak are of the whole run, played with the change; those of
    an allocator are of what the device holds. They do not add up: two changes may remove the same peak.

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
    rows += _from_order(of_device, view["rank"]["devices"][index])
    rows += _from_graphs(view["devices"][index]["graph_pools"], graphs.finding(view, index))
    rows += _from_splits(configuration, peak, gpus) if configuration else []
    rows += _from_leaks(findings.leaks(view, index), peak, _peak_segment(view["devices"][index]))
    rows = [row for row in _merged(rows) if row.grows or row.saves_bytes >= _LEAST_SAVING * peak]
    rows.sort(key=lambda row: (not row.grows, -row.saves_bytes, row.cost_share))
    return [dataclasses.asdict(row) for row in rows]


def hint(view: dict[str, Any], index: int) -> Optional[str]:
    """The data that the trace lacks for more advice; None: nothing."""
    has_modules = "F" in view["devices"][index]["layer_table"]["pass"]
    if has_modules or view["rank"]["fingerprint"]["trace_mode"] not in _TRACED_BY_A_RUN:
        return None
    return (
        "trace once more with STALLOC_TRACE_DETAIL=1: it shows which layers to recompute, whether the loss in parts "
        "helps, and which variables hold what nothing uses any more"
    )


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
        self._named = {group["call_site"] for group in findings.leaks(view, index)["groups"]} - {""}  # of what grows

    def rows(self) -> list[Advice]:
        lines_of: dict[str, Callable[[dict[str, Any]], Iterable[Lines]]] = {
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
            if entry["kind"] == "free late" and entry["late"] not in _BY_MARKS and self._drawn["unused"]:
                continue  # uses are more exact
            how = f"{size(entry['at_peak'])} of the peak; the run played with the change"
            if entry["kind"] == "free late":
                how = f"{size(entry['at_peak'])} of the peak, late by the marks (the trace has no uses); the run played"
            for what, cost, share, line in lines_of[entry["kind"]](entry):
                row = Advice(what, live - entry["peak"], entry["peak"], cost, how, line, entry["at_least"], share)
                rows.append(dataclasses.replace(row, layers=entry["layers"]))
        return rows

    def unused(self, rows: list[dict[str, Any]]) -> Iterable[Advice]:
        """From the uses of blocks: each kind as a whole, and groups of blocks that are alike."""
        table, live = self._drawn["unused"], self._drawn["peak"]["live_bytes"]
        how = "uses of blocks in the trace; the run played with the change"
        unused_rows = [advised for row in rows if (advised := self._unused(row)) is not None]
        worth = [row for row in unused_rows if row.saves_bytes >= _LEAST_SAVING * live]
        reached = len(worth) == sum(row["saves_bytes"] >= _LEAST_SAVING * live for row in rows if row["kind"] != "idle")
        if len(worth) > 1 and reached:  # a bound that its rows do not reach helps nobody
            what, peak = (
                "allocate every block at its first use, and free it after its last",
                table["early_and_late_peak"],
            )
            yield Advice(
                what, live - peak, peak, "none", how, f"the {len(worth)} rows that are known from uses, all of them"
            )
        if self._drawn["device"] >= 0:  # the CPU's memory is the host's
            cost, share = self._moved(table["idle_moved"])
            what, peak = "offload what is idle for long (at most so much)", table["idle_peak"]
            yield Advice(what, live - peak, peak, cost, how, _IDLE, cost_share=share)
        yield from unused_rows

    def _unused(self, row: dict[str, Any]) -> Optional[Advice]:
        """The advice for blocks that are alike; None for idle blocks, and for those that other rows name."""
        if row["kind"] == "idle" or row["class"] == "gradients" or row["call_site"] in self._named:
            return None
        how = f"{size(row['at_peak'])} of the peak; uses of blocks in the trace; the run played with the change"
        if row["kind"] == "early":
            what, line = f"allocate later, {unused.when(row)}: {unused.worded(row)}", _EARLY.format(row["after"])
        elif row["variables"]:
            what, line = self._kept(row)
        elif row["layer"]:
            return None  # a graph keeps it, or the module: no variable of the program
        else:
            what, line = f"free earlier, {unused.when(row)}: {unused.worded(row)}", _LATE.format(row["before"])
        copied = row["before"] == _COPY  # what is copied to the host has no block at all
        return Advice(what, row["saves_bytes"], row["peak"], "none", how, line, copied)

    def _kept(self, row: dict[str, Any]) -> tuple[str, str]:
        """The advice for what a variable keeps without need: what to do, and the line."""
        names = ", ".join(row["variables"])
        if row["before"] == _COPY:  # a copy that nothing has read
            what = f"copy `{names}` ({row['call_site']}) to the host: nothing reads the copies on the device"
            return what, "v.detach().cpu() in place of v.clone()"
        what = f"free `{names}` ({row['call_site']}) after its last use, {row['before']}"
        what += f": nothing needs its blocks of up to {size(row['bytes'])} from there on"
        return what, f"del {names} right after that use; or give the value on without a name, as in loss_of(model(x))"

    def _moved(self, count: int) -> tuple[str, float]:
        """The cost of copying these bytes to the host and back in an iteration."""
        seconds = 2 * count / self._bus
        share = seconds * 1e9 / self._iteration_ns if self._iteration_ns else 0.0
        relative = f": {100 * share:.1f} % of it" if share < 1 else f": {share:.1f} times as long as it takes"
        known = relative if self._iteration_ns else ""
        return f"{size(count)} over the bus an iteration, out and back{known}, less what is hidden", share

    def _recompute_layer(self, entry: dict[str, Any]) -> Iterable[Lines]:
        layers = entry["layers"]
        share = sum(part for name, part in self._forward.items() if called(name, layers))
        part = f", {100 * share:.1f} % of the iteration" if self._forward else ""
        line = how_to.recompute(layers, self._layers, self._megatron, entry["leaves"])
        yield f"recompute {'each of ' if '*' in layers else ''}{layers}", f"its forward pass again{part}", share, line

    def _offload_layer(self, entry: dict[str, Any]) -> Iterable[Lines]:
        layers = entry["layers"]
        if self._drawn["device"] >= 0 and "*" in layers:  # the CPU's memory is the host's
            line = how_to.offload(layers, self._layers, self._megatron)
            yield f"offload the activations of each of {layers}", *self._moved(entry["moved"]), line

    def _offload_state(self, entry: dict[str, Any]) -> Iterable[Lines]:
        if self._drawn["device"] >= 0:
            line = how_to.MEGATRON_OFFLOAD_STATE if self._megatron else how_to.OFFLOAD_STATE
            yield "offload the optimizer state", *self._moved(entry["at_peak"]), line

    def _shard_state(self, _: object) -> Iterable[Lines]:
        if self._configuration is None or not self._configuration.use_distributed_optimizer:
            what = f"share the optimizer state among {self._ranks} ranks (ZeRO 1, distributed optimizer)"
            line = how_to.MEGATRON_SHARD_STATE if self._megatron else how_to.SHARD_STATE
            yield what, "a gather of the weights every step; shares are taken to be even", 0.0, line

    def _shard_gradients(self, entry: dict[str, Any]) -> Iterable[Lines]:
        found = self._drawn["alternatives"]
        state_alone = [peak for kind, peak in zip(found["kind"], found["peak"]) if kind == "shard state"]
        if [entry["peak"]] != state_alone and not self._megatron:  # else there are no gradients at the peak
            what = f"share optimizer state and gradients among {self._ranks} ranks (ZeRO 2): at most so much"
            cost = "gradients are scattered in every backward pass; their buckets are not counted"
            yield what, cost, 0.0, how_to.SHARD_GRADIENTS

    def _shard_all(self, _: object) -> Iterable[Lines]:
        what = f"share weights, gradients and state among {self._ranks} ranks (FSDP, ZeRO 3): at most so much"
        line = how_to.MEGATRON_SHARD_ALL if self._megatron else how_to.SHARD_ALL
        yield what, "a gather of each layer's weights in each pass; its memory is not counted", 0.0, line

    def _fused(self, _: object) -> Iterable[Lines]:
        yield "use a fused optimizer: its temporaries go", "none", 0.0, how_to.FUSED

    def _chunk_loss(self, entry: dict[str, Any]) -> Iterable[Lines]:
        parts = round(1 / entry["keep"])
        largest = size(entry["bytes"])
        what = (
            f"compute logits and loss in {parts} parts (blocks of up to {largest}, live from the last forward layer on)"
        )
        line = how_to.LOSS_IN_PARTS.replace("{parts}", str(parts))
        yield what, "logits again, and more, smaller kernels there", 0.0, line

    def _free_late(self, entry: dict[str, Any]) -> Iterable[Lines]:
        most = f"up to {size(entry['bytes'])}, most from {self._drawn['roles'][entry['role']]}"
        whats = {
            "after the backward": "free what outlives the backward pass of its micro-batch (outputs kept in variables)",
            "after the layer": "free activations where the backward pass of their layer ends",
            "after the iteration": "let nothing live into the next iteration: outputs and losses stay in their "
            "variables, gradients until the next backward pass",
            "without a backward": "keep no graph of forward passes that no backward pass follows (an evaluation)",
            "after the optimizer": "free the gradients after the optimizer's step: they stay until zero_grad()",
        }
        what = whats[entry["late"]] if entry["late"] in _BY_MARKS else f"{whats[entry['late']]}: {most}"
        yield what, "none", 0.0, how_to.LATE[entry["late"]]


# Where there is a plan, what is to be done about the allocator is done.
def _from_allocators(of_device: dict[str, Any]) -> list[Advice]:
    held = {row["name"]: row["held_bytes"] for row in of_device["allocators"]}
    if "stalloc, planned" in held:
        return []
    native, other = held["PyTorch native"], held["expandable_segments"]
    how = "held on the device against PyTorch's native allocator; simulated from the trace"
    what = "let PyTorch's segments grow"
    return [Advice(what, native - other, other, "none", how, how_to.EXPANDABLE, of_live=False)]


# A larger batch that comes later does not fit into the segments of smaller ones, which stay.
def _from_order(of_device: dict[str, Any], report: dict[str, Any]) -> list[Advice]:
    first = report["simulated"]["native_largest_first_bytes"]
    if first == 0 or any(row["name"] == "stalloc, planned" for row in of_device["allocators"]):
        return []
    native = report["simulated"]["native_bytes"]
    largest = max(report["segments"][1:], key=lambda segment: int(segment["peak_live_bytes"]))
    what = (
        f"begin with the largest batch, which comes in iteration {largest['iteration']}: PyTorch's native allocator "
        "keeps the segments of smaller ones, and larger blocks do not fit in"
    )
    how = "held by PyTorch's native allocator, simulated from the trace with that iteration first"
    line = how_to.LARGEST_FIRST
    return [Advice(what, native - first, first, "one step more", how, line, at_least=True, of_live=False)]


# Without lending, everything that pools ever had is reserved in addition to live blocks outside: more than is live.
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
    if left == 0:
        return []
    saves = left * max(0, min(leaking["judged_iterations"], peak_segment - 1))
    what = f"stop leaving {size(left)} more live after every iteration: 1 GiB more after {-(-_GIB // left)} of them"
    how = f"left by the {max(0, peak_segment - 1)} traced iterations before the peak; the run's own go on"
    return [Advice(what, saves, peak - saves, "none", how, _line_of_leak(leaking["groups"][0]), grows=left)]


def _line_of_leak(group: dict[str, Any]) -> str:
    if not group["call_site"]:
        return "trace with STALLOC_TRACE_STACKS=1; then stalloc report DIR --leaks names the line"
    names = source_lines.assigned(group["calls"], group["call_site"])
    kept = f"what keeps `{', '.join(names)}`" if names else "what keeps it"
    return (
        f"made at {group['call_site']}: {kept} (a list, an attribute): append(x.item()) or x.detach().cpu(), for a "
        "tensor with a graph keeps all of the graph; stalloc report DIR --leaks has the others"
    )


# Single layers of one kind that save as much each are one choice.
def _merged(rows: list[Advice]) -> list[Advice]:
    kinds: dict[str, list[Advice]] = defaultdict(list)
    kept: list[Advice] = []
    for row in rows:
        single = row.layers and "*" not in row.layers
        (kinds[pattern_of(row.layers)] if single else kept).append(row)
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
    """The time of the peak's iteration, on the host; 0 for the set-up."""
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


def called(path: str, pattern: str) -> bool:
    """The path is the pattern's, where * stands for a number."""
    parts, wanted = path.split("."), pattern.split(".")
    return len(parts) == len(wanted) and all(w in (p, "*" if p.isdigit() else p) for p, w in zip(parts, wanted))
