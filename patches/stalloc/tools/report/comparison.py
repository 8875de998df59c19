"""An estimate against the trace, class by class, with the reasons for the difference. Bytes."""

from __future__ import annotations

from typing import Any, Optional

from stalloc.core.sizes import size
from stalloc.tools.report.arguments import configuration_of
from stalloc.tools.report.configuration import Configuration
from stalloc.tools.report.estimate import Estimate, estimate

# Roles of named tensors (docs/report-json.md, devices[].peak.tensor) by the estimate's classes.
_STATE = {"weights": ("parameter", "buffer"), "gradients": ("gradient",), "optimizer state": ("optimizer state",)}
_BETWEEN = ", between"  # ends the names of phases outside of passes: where pipelines send and receive


def of_view(view: dict[str, Any]) -> Optional[list[dict[str, Any]]]:
    """The comparison for the command line that a trace was recorded with; None where that is not Megatron-LM's."""
    config = configuration_of(view)
    return None if config is None else compare(config, estimate(config), view)


def compare(config: Configuration, result: Estimate, view: Optional[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows of name, estimate, measured (None: unknown), why (what it is made of, and what it leaves out).

    Classes of state are measured apart where the trace has names; by lifetimes alone, buffers made at set-up look like
    weights, so that only their sum can be.
    """
    peak, reasons = result.peak, _texts(config, result)
    estimates = {
        "weights": result.weights,
        "gradients": result.gradients,
        "optimizer state": result.optimizer_state,
        "weights, gradients and state": result.state,
        "activations": result.activations + peak.activations,
        "temporaries": peak.temporaries,
        "buffers and the rest": result.buffers,
        "peak": result.total,
    }
    found = {} if view is None else _measured(view)
    left = "" if view is None else _left_out(view)
    return [
        {
            "name": name,
            "estimate": count,
            "measured": found.get(name),
            "why": reasons.get(name, "") + (left if name == "temporaries" else ""),
        }
        for name, count in estimates.items()
    ]


def _texts(config: Configuration, result: Estimate) -> dict[str, str]:
    layer = result.activations / result.layers_in_flight if result.layers_in_flight else 0
    moved = result.peak.activations
    change = ""
    if moved:
        change = f"; {size(abs(moved))} {'more are kept for' if moved > 0 else 'are gone in'} {result.peak.where}"
    shards = config.data_parallel if config.use_distributed_optimizer else 1
    return {
        "weights": f"{result.parameters / 1e9:.3f} G parameters",
        "gradients": f"{result.gradients / result.parameters:.0f} bytes a parameter",
        "optimizer state": f"of {shards} ranks that share it" if shards > 1 else "not shared",
        "activations": f"{result.layers_in_flight:g} layers in flight, {size(layer)} each{change}",
        "temporaries": f"at {result.peak.where}" if result.peak.temporaries else "",
        "buffers and the rest": _buffers(config),
    }


def _buffers(config: Configuration) -> str:
    parts = [] if config.fused_attention else ["one matrix of scores"]
    return ", ".join([*parts, *(["two cuBLAS workspaces of 32 MiB (from Hopper on)"] if config.cuda else [])])


def _measured(view: dict[str, Any]) -> dict[str, int]:
    peak, by_class = view["devices"][0]["peak"], dict(view["rank"]["devices"][0]["peak"]["by_class"])
    live = int(peak["live_bytes"])
    found = {"peak": live, "activations": by_class["activations"] + by_class["dynamic"]}
    found["temporaries"] = by_class["temporaries"]
    named = {name: _named(peak, roles) for name, roles in _STATE.items()}
    if any(named.values()):
        found.update(named)
    state = sum(named.values()) or sum(by_class[name] for name in _STATE)
    found["weights, gradients and state"] = state
    found["buffers and the rest"] = live - state - found["activations"] - found["temporaries"]
    return found


def _named(peak: dict[str, Any], roles: tuple[str, ...]) -> int:
    rows = zip(peak["tensor"], peak["bytes"], peak["count"])
    return sum(each * count for role, each, count in rows if role in roles)


def _left_out(view: dict[str, Any]) -> str:
    """The measured temporaries that no estimate knows."""
    peak, classes = view["devices"][0]["peak"], view["classes"]
    rows = zip(peak["class"], peak["phase"], peak["bytes"], peak["count"])
    sent = sum(
        each * count
        for of_class, phase, each, count in rows
        if classes[of_class] == "temporaries" and phase.endswith(_BETWEEN)
    )
    return f"; measured, not estimated: {size(sent)} allocated between passes (messages)" if sent else ""
