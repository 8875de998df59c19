"""Captured CUDA graphs of a traced run: what their pools hold, what it saves that these serve others between launches,
and why no more. Computed from the planner's JSON (lend_figures.h). Bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Optional

from stalloc.core.sizes import size

_AFTER = 3  # iterations after the one that captures: the plan repeats them
_MEGATRON_WARMUP = 3  # --cuda-graph-warmup-steps
_MEGATRON_SWITCHES = ("--enable-cuda-graph", "--external-cuda-graph")
_NOTHING = "nothing: STALLOC_GRAPHS=shared is the default"
_TRACE_AGAIN = "trace once more, with this version"
_WHY = {
    "late trace": "the trace began late, and what was captured before it is not known",
    "unknown pools": "the trace does not show where the blocks of the pools lie",
    "no launch": "no launch of them is in the trace",
    "captured late": "they are captured after the iterations that the plan repeats",
    "kept": "all that graphs wrote is kept: what is freed outside of captures, or never",
    "order": "all is carried, and launches come in another order in each iteration",
    "fence": "most is held in a fence (evaluation, checkpoint), which may hide launches",
    "launch": "most is held while a launch writes the pools' bytes",
    "carried": "the pools' bytes are carried to a later launch when most is held",
    "blocks": "what has no place in the pools when most is held stays, varies, is small, or fits into no free part",
}
_HOW = {
    "late trace": "trace from the run's start on",
    "unknown pools": _TRACE_AGAIN,
    "kept": "nothing, but where a capture leaves tensors that nobody reads: del of what holds them, before it ends",
}


def finding(view: dict[str, Any], index: int) -> Optional[dict[str, Any]]:
    """The graphs of one device; None if nothing is captured, nor known to be after the trace.

    `why`: lending saves no more; `how_to`: what to set; `told`: all of it, in lines. Bytes that the trace does not know
    are 0.
    """
    found = _find(view, index)
    return None if found is None else {**found, "told": _lines(found)}


def _find(view: dict[str, Any], index: int) -> Optional[dict[str, Any]]:
    report, pools = view["rank"]["devices"][index], view["devices"][index]["graph_pools"]
    needs = report["graphs"]
    if needs is None:
        return _without_marks(view, index, pools)
    lending = (report["forecast"] or {}).get("lending")
    found = {**_EMPTY, "graphs": len({graph["number"] for graph in needs["graphs"]})}
    found |= {"pools": 0 if pools is None else len(pools["pool"]), "pools_bytes": _most(pools)}
    if lending is None:
        return {**found, "why": "no iteration ran to its end", "how_to": _steps(needs["captured_in"])}
    limit = lending["limit"]
    found |= {key: lending[key] for key in found if key in lending}
    return {**found, "why": _WHY[limit], "how_to": _how_to(view, limit, needs["captured_in"], lending)}


_EMPTY = dict.fromkeys(
    (
        "graphs",
        "pools",
        "unknown_pools",
        *(f"{key}_bytes" for key in ("pools", "dead", "carried", "kept", "saves", "cycle_saves", "held", "held_apart")),
    ),
    0,
)


def _lines(found: dict[str, Any]) -> list[str]:
    if not found["graphs"]:
        return [f"captured graphs: {found['why']}", f"set: {found['how_to']}"]
    pools = f"{found['pools']} {'pool' if found['pools'] == 1 else 'pools'}"
    parts = ((found["dead_bytes"], "free between launches"), (found["carried_bytes"], "carried to a later launch"))
    parts_text = ", ".join(f"{size(count)} {what}" for count, what in (*parts, (found["kept_bytes"], "kept")))
    first = f"captured graphs: {found['graphs']} in {pools} of {size(found['pools_bytes'])}: {parts_text}"
    if found["unknown_pools"]:
        first += f"; {found['unknown_pools']} cannot be followed"
    return [first, _saved(found), f"set: {found['how_to']}"]


def _saved(found: dict[str, Any]) -> str:
    held, apart, cycle = found["held_bytes"], found["held_apart_bytes"], found["cycle_saves_bytes"]
    if found["saves_bytes"]:
        start = f"lending them between launches saves {size(found['saves_bytes'])}: {size(held)} held instead of"
        return f"{start} {size(apart)}; no more, for {found['why']}"
    if cycle:
        start = f"lending them between launches saves nothing of the most that is held, {size(held)}, which is before"
        return (
            f"{start} the iterations that the plan repeats; there it saves {size(cycle)}, no more, for {found['why']}"
        )
    return f"lending them between launches saves 0 B: {found['why']}"


def _how_to(view: dict[str, Any], limit: str, captured_in: int, lending: dict[str, Any]) -> str:
    if limit == "captured late" or (limit == "no launch" and captured_in + _AFTER > _iterations(view)):
        return _steps(captured_in)
    return _HOW.get(limit, _TRACE_AGAIN if lending["unknown_pools"] else _NOTHING)


# What is captured in the k-th traced iteration is launched in those after it.
def _steps(captured_in: int) -> str:
    return f"STALLOC_TRACE_STEPS={captured_in + _AFTER} when tracing, or more"


def _without_marks(view: dict[str, Any], index: int, pools: Optional[dict[str, Any]]) -> Optional[dict[str, Any]]:
    if pools is not None:
        why = f"their pools hold {size(_most(pools))}, and the trace has no marks of captures"
        return {**_EMPTY, "pools": len(pools["pool"]), "pools_bytes": _most(pools), "why": why, "how_to": _TRACE_AGAIN}
    warmup = _megatron_warmup(view["rank"]["fingerprint"]["command_line"])
    if warmup is None or view["devices"][index]["device"] < 0 or _iterations(view) > warmup:
        return None
    why = f"captures are not in the trace: they come after {warmup} iterations, {_iterations(view)} were traced"
    return {**_EMPTY, "why": why, "how_to": _steps(warmup + 1)}


def _megatron_warmup(words: Sequence[str]) -> Optional[int]:
    """Iterations before Megatron-LM captures; None: it does not, or is another program."""
    given = dict(zip(words, [*words[1:], ""])) | dict(word.split("=", 1) for word in words if "=" in word)
    if given.get("--cuda-graph-impl", "none") == "none" and not any(switch in words for switch in _MEGATRON_SWITCHES):
        return None
    steps = given.get("--cuda-graph-warmup-steps", "")
    return int(steps) if steps.isdigit() else _MEGATRON_WARMUP


def _iterations(view: dict[str, Any]) -> int:
    return int(view["rank"]["marks"]["iterations"])


def _most(pools: Optional[dict[str, Any]]) -> int:
    return 0 if pools is None else sum(pools["most"])
