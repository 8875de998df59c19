"""A choice as fit.json: what `stalloc fit` prints and `stalloc.apply` reads. Bytes, seconds."""

from __future__ import annotations

from typing import Any, Optional

from stalloc.core.module_paths import CHOICE_VERSION
from stalloc.tools.fitting import settings
from stalloc.tools.fitting.choose import Choice, Tried, Wish


def document_of(choice: Choice, wish: Wish, kind: str, headroom: int, run: str) -> dict[str, Any]:
    """The document of a choice. `kind`: one of settings.KINDS."""
    best = choice.best
    assert best.outcome is not None
    chosen = _chosen(choice, wish)
    layers = [settings.module_path(name) for name in choice.layers]
    return {
        "version": CHOICE_VERSION,
        "run": run,
        "for": kind,
        "device": choice.device,
        "memory_bytes": wish.memory + headroom,
        "headroom_bytes": headroom,
        "room_bytes": wish.memory,
        "allocator": wish.allocator,
        "micro_batch": wish.work.traced,
        "accumulation": wish.work.accumulation,
        "truncation": choice.truncation or None,
        "fits": choice.fits,
        "traced": {"peak_live_bytes": choice.traced_live, "step_seconds": choice.traced_step_seconds},
        "chosen": chosen,
        "predicted": {
            "peak_live_bytes": best.outcome.live,
            "held_bytes": best.outcome.held,
            "step_seconds": best.step_seconds,
            "step_at_least": best.at_least,  # the host bounds traced steps, the device may bound larger ones
            "step_bound": _bound_of(best),
            "host_share": best.host_share,
            "tokens_per_second": best.tokens,
            # In one pool with all passes; `traced`: the pools of graphs that the traced run had, as it was.
            "graphs": {
                "held_bytes": best.graph_bytes,
                "fit": best.graph_bytes <= wish.memory,
                "traced": choice.graph_pools,
            },
        },
        # Pinned memory: what is there for this process, what is chosen, and whether it keeps more from being offloaded.
        "host": {"available_bytes": wish.host, "needed_bytes": best.host_bytes, "binds": best.host_bound},
        "certainty": choice.certainty.document(as_traced=best.change.scale == best.change.first == 1),
        "bound": best.bound,
        "settings": settings.settings(kind, chosen, layers),
        "tried": [_tried(each) for each in choice.tried],
        "candidates": [_candidate(each) for each in choice.candidates],
    }


def _bound_of(one: Tried) -> Optional[str]:
    """What most of a step waits for; None: the device was not watched."""
    if one.host_share is None:
        return None
    return "host" if one.host_share > 0.5 else "device"


def _chosen(choice: Choice, wish: Wish) -> dict[str, Any]:
    best, change = choice.best, choice.best.change
    rows = wish.work.rows or best.accumulation * best.micro_batch
    tokens = rows / (wish.work.accumulation * wish.work.traced)
    units = {"sequence_length": best.micro_batch * wish.sequence_unit} if wish.sequence_unit else {}
    return {
        "micro_batch": best.micro_batch,
        **units,
        "accumulation": best.accumulation,
        "tokens_of_a_step": tokens,  # over those of the traced run
        "recompute": [settings.module_path(name) for name in change.recompute],
        "offload": [settings.module_path(name) for name in change.offload],
        "offload_state": change.offload_state,
        "graphs": best.graphs,  # whether to capture them; None: only one way was traced
        "stores": any(choice.layers[name]["stores"] for name in change.recompute),
    }


def _tried(one: Tried) -> dict[str, Any]:
    return {
        "micro_batch": one.micro_batch,
        "accumulation": one.accumulation,
        "recompute": list(one.change.recompute),
        "offload": list(one.change.offload),
        "offload_state": one.change.offload_state,
        "graphs": one.graphs,
        "fits": one.fits,
        "peak_live_bytes": one.live,
        "held_bytes": one.outcome.held if one.outcome is not None else None,
        "step_seconds": one.step_seconds,
        "tokens_per_second": one.tokens,
        "bound": one.bound,
    }


def _candidate(one: dict[str, Any]) -> dict[str, Any]:
    return {
        "layers": one["layers"],
        "use": one["use"],
        "count": one["count"],
        "away_bytes": one["away"],
        "peak_live_bytes": one["peak"],
        "seconds": one["cost_ns"] / 1e9,
        "at_least": one["at_least"],
    }
