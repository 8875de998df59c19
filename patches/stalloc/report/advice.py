"""What would lower the peak of a run, by how much and at what cost: computed from the planner's JSON. Bytes.

Each change of what is live was played over the whole run by the planner; a split of the model is estimated; what
allocators hold is simulated. Nothing is advised that saves less than 0.2 % of the peak.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterable
from typing import Any, Callable, Optional

from stalloc.report import findings, splits, unused
from stalloc.report.estimate import Configuration
from stalloc.report.figures import size
from stalloc.report.megatron_arguments import configuration_of

BUS = 25e9  # bytes a second to the host; what PCIe 4.0 x16 moves in practice (31.5e9 without its overhead)
_LEAST_SAVING = 0.002
_ALIKE = 0.01  # of the saving: layers that differ by less are one choice
_MOST_SPLITS = 6

Told = tuple[str, str, float]  # what to do, what it costs, and that as a share of an iteration


@dataclasses.dataclass(frozen=True)
class Advice:
    what: str
    saves_bytes: int
    peak_bytes: int  # then
    cost: str
    how_known: str
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
    rows += _from_graphs(view["devices"][index]["graph_pools"])
    rows += _from_splits(configuration, peak, gpus) if configuration else []
    rows += _from_leaks(findings.leaks(view, index), peak)
    rows = [row for row in _merged(rows) if row.saves_bytes >= _LEAST_SAVING * peak]
    return [dataclasses.asdict(row) for row in sorted(rows, key=lambda row: (-row.saves_bytes, row.cost_share))]


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
        self._configuration = configuration
        self._ranks: int = gpus or view["replicas"]
        self._bus = bus
        timed = view["rank"]["fingerprint"]["trace_mode"] != "fake"  # its times are those of making it
        self._forward = _forward_shares(self._drawn) if timed else {}
        self._iteration_ns = _iteration_ns(self._drawn) if timed else 0

    def rows(self) -> list[Advice]:
        told: dict[str, Callable[[dict[str, Any]], Iterable[Told]]] = {
            "recompute layer": self._recompute_layer,
            "recompute all": self._recompute_all,
            "drop activations": self._drop,
            "offload state": self._offload_state,
            "shard state": self._shard_state,
            "shard gradients": self._shard_gradients,
            "shard all": self._shard_all,
            "no optimizer scratch": lambda _: [("use a fused optimizer: its temporaries go (fused=True)", "none", 0)],
            "chunk": self._chunk,
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
            for what, cost, share in told[entry["kind"]](entry):
                rows.append(Advice(what, live - entry["peak"], entry["peak"], cost, how, share, layers=entry["layers"]))
        return rows

    def unused(self, rows: list[dict[str, Any]]) -> Iterable[Advice]:
        """From the uses of blocks: each kind as a whole, and groups of blocks that are alike."""
        table, live = self._drawn["unused"], self._drawn["peak"]["live_bytes"]
        how = "uses of blocks in the trace; the run played with the change"
        what, peak = "allocate every block at its first use, and free it behind its last", table["early_and_late_peak"]
        yield Advice(what, live - peak, peak, "none", how)
        for what, cost, share in self._offloaded({"moved": table["idle_moved"]}, "what is idle for long (a bound)"):
            yield Advice(what, live - table["idle_peak"], table["idle_peak"], cost, how, share)
        whats = {"early": "allocate later", "late": "free earlier"}
        for row in rows:
            if row["kind"] in whats:
                what = f"{whats[row['kind']]}, {unused.when(row)}: {unused.told(row)}"
                at_peak = f"{size(row['at_peak'])} of the peak; {how}"
                yield Advice(what, row["saves_bytes"], row["peak"], "none", at_peak)

    def _moved(self, count: int) -> tuple[str, float]:
        """What it costs to bring so many bytes to the host and back in an iteration."""
        seconds = 2 * count / self._bus
        share = seconds * 1e9 / self._iteration_ns if self._iteration_ns else 0.0
        relative = f": {100 * share:.1f} % of it" if share < 1 else f": {share:.1f} times as long as it takes"
        known = relative if self._iteration_ns else ""
        return f"{size(count)} over the bus an iteration, out and back{known}, less what is hidden", share

    def _offloaded(self, entry: dict[str, Any], what: str) -> Iterable[Told]:
        if self._drawn["device"] >= 0:  # the CPU's memory is the host's
            yield f"offload {what}", *self._moved(entry["moved"])

    def _recompute_layer(self, entry: dict[str, Any]) -> Iterable[Told]:
        layer = entry["layers"]
        share = sum(part for name, part in self._forward.items() if called(name, layer))
        part = f", {100 * share:.1f} % of the iteration" if self._forward else ""
        yield f"recompute {layer}", f"its forward pass again{part}", share
        if "*" in layer:
            yield from self._offloaded(entry, f"the activations of {layer}")

    def _recompute_all(self, entry: dict[str, Any]) -> Iterable[Told]:
        known = self._forward
        share = sum(part for name, part in known.items() if not any(above in known for above in _above(name)))
        cost = "every forward pass again, " + (
            f"{100 * share:.1f} % of the iteration" if share else "about a third of the arithmetic"
        )
        yield "recompute all layers (a bound: layer inputs stay)", cost, share
        yield from self._offloaded(entry, "all activations")

    def _drop(self, entry: dict[str, Any]) -> Iterable[Told]:
        yield f"recompute activations of {size(entry['bytes'])}", "what makes them, again", 0.0
        yield from self._offloaded(entry, f"activations of {size(entry['bytes'])}")

    def _offload_state(self, entry: dict[str, Any]) -> Iterable[Told]:
        yield from self._offloaded({"moved": entry["at_peak"]}, "the optimizer state")

    def _shard_state(self, _: object) -> Iterable[Told]:
        if self._configuration is None or not self._configuration.use_distributed_optimizer:
            what = f"share the optimizer state among {self._ranks} ranks (ZeRO 1, distributed optimizer)"
            yield what, "a gather of the weights every step", 0.0

    def _shard_gradients(self, entry: dict[str, Any]) -> Iterable[Told]:
        found = self._drawn["alternatives"]
        state_alone = [peak for kind, peak in zip(found["kind"], found["peak"]) if kind == "shard state"]
        if [entry["peak"]] != state_alone:  # else there are no gradients at the peak
            what = f"share optimizer state and gradients among {self._ranks} ranks (ZeRO 2)"
            yield what, "gradients are scattered in every backward pass", 0.0

    def _shard_all(self, _: object) -> Iterable[Told]:
        what = f"share weights, gradients and state among {self._ranks} ranks (FSDP, ZeRO 3; a bound)"
        yield what, "a gather of each layer's weights in each pass, and room for it", 0.0

    def _chunk(self, entry: dict[str, Any]) -> Iterable[Told]:
        role = self._drawn["roles"][entry["role"]]
        yield f"make temporaries of {size(entry['bytes'])} in {role} in two halves", "more, smaller kernels", 0.0

    def _chunk_loss(self, entry: dict[str, Any]) -> Iterable[Told]:
        parts = round(1 / entry["keep"])
        largest = size(entry["bytes"])
        what = f"compute logits and loss in {parts} parts (blocks of up to {largest} that are there at the turn alone)"
        yield what, "more, smaller kernels at the turn", 0.0

    def _free_late(self, entry: dict[str, Any]) -> Iterable[Told]:
        most = f"up to {size(entry['bytes'])}, most from {self._drawn['roles'][entry['role']]}"
        whats = {
            "after the backward": "free what outlives the backward pass of its micro-batch (outputs kept in variables)",
            "after the layer": "free activations where the backward pass of their layer ends",
            "after the iteration": "let nothing live into the next iteration: del outputs and losses behind the "
            "optimizer's step, zero_grad(set_to_none=True) there",
            "after the optimizer": "free gradients behind the optimizer's step: zero_grad(set_to_none=True) there",
        }
        yield f"{whats[entry['late']]}: {most}", "none", 0.0


def _from_allocators(of_device: dict[str, Any]) -> list[Advice]:
    held = {row["name"]: row["held_bytes"] for row in of_device["allocators"]}
    native = held["PyTorch native"]
    known = "held on the device against PyTorch's native allocator; "
    changes = [
        ("expandable_segments", "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True", "simulated from the trace"),
        ("stalloc, planned", "run with the plan (STALLOC_MODE=Alloc)", "predicted by the planner"),
    ]
    return [
        Advice(what, native - held[name], held[name], "none", known + how, of_live=False)
        for name, what, how in changes
        if name in held
    ]


# What is live outside beside all that pools have had is held whoever allocates, and is more than is ever live.
def _from_graphs(pools: Optional[dict[str, Any]]) -> list[Advice]:
    if pools is None:
        return []
    idle = pools["held"] - pools["live_then"]
    what = (
        f"let graphs' pools serve more: {size(idle)} of them lie idle when most is held. Capture what runs eagerly "
        "then into one of them (pool=), or free it before"
    )
    how = "live outside and the most of each pool, from the trace, as if graphs lived to its end"
    return [Advice(what, idle, pools["live_then"], "graphs of one pool keep their order", how, of_live=False)]


# What a split saves is taken off the measured peak, estimate against estimate.
def _from_splits(config: Configuration, peak: int, gpus: Optional[int]) -> list[Advice]:
    now, found = splits.better(config, gpus)
    rows = []
    for split in found[:_MOST_SPLITS]:
        saves = now.total - split.total
        cost = f"pipeline waits {100 * split.bubble:.1f} % (now {100 * now.bubble:.1f} %), other communication"
        how = f"stalloc estimate: {size(split.total)} on the rank that needs most, {size(now.total)} as traced ({now})"
        share = max(0.0, split.bubble - now.bubble)
        what = f"split over {split.config.world_size} GPUs as {split}"
        rows.append(Advice(what, saves, max(0, peak - saves), cost, how, share))
    return rows


def _from_leaks(leaking: dict[str, Any], peak: int) -> list[Advice]:
    left, judged = leaking["bytes_per_iteration"], leaking["judged_iterations"]
    what = f"stop leaving {size(left)} behind in every iteration (stalloc leaks)"
    return [Advice(what, left * judged, peak, "none", f"over the {judged} traced iterations that can be judged")]


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


def _iteration_ns(drawn: dict[str, Any]) -> int:
    """Of the peak's iteration, on the host; 0 for the set-up."""
    phases = drawn["phases"]
    inside = [i for i, event in enumerate(phases["event"]) if event <= drawn["peak"]["event"]]
    segment = phases["segment"][inside[-1]] if inside else 0
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


def _above(path: str) -> list[str]:
    parts = path.split(".")
    return [".".join(parts[:depth]) for depth in range(1, len(parts))]


def _pattern(path: str) -> str:
    return ".".join("*" if part.isdigit() else part for part in path.split("."))


def called(path: str, pattern: str) -> bool:
    """The path is the pattern's, where * stands for a number."""
    parts, wanted = path.split("."), pattern.split(".")
    return len(parts) == len(wanted) and all(w in (p, "*" if p.isdigit() else p) for p, w in zip(parts, wanted))
