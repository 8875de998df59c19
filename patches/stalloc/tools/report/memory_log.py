"""memory.log, in the layout of InternEvo's SimpleMemoryProfiler: totals by class over time, and the peak's layout.

The points are the beginnings of phases. MB are 2^20 bytes, as there. The optimizer's copy of the parameters counts as
its state: a trace with names of tensors knows it, by lifetimes alone it looks like weights where it was made with them.
So os_params_memory is 0. activation_memory is whatever else is live.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

_LAYOUTS = (
    ("params_layout", "param_mem", ("weights",)),
    ("grads_layout", "grad_mem", ("gradients",)),
    ("os_state_layout", "os_state_mem", ("optimizer state",)),
    (
        "activation_layout",
        "activation_mem",
        ("casts of weights", "activations", "inputs", "dynamic", "temporaries", "other"),
    ),
)


def render(view: dict[str, Any]) -> str:
    """The log of the first device."""
    return "\n".join(_lines(view)) + "\n"


def _lines(view: dict[str, Any]) -> Iterator[str]:
    drawn = view["devices"][0]
    phases = drawn["phases"]
    peak_phase = max((i for i, ns in enumerate(phases["event"]) if ns <= drawn["peak"]["event"]), default=0)
    for i, live in enumerate(phases["begin_live"]):
        yield from _state(phases["ns"][i], dict(zip(view["classes"], phases["begin_by_class"][i])), live)
        if i == peak_phase:
            yield "# the peak is in the phase that begins here; its layout:"
            yield "---Layout---"
            for title, root, classes in _LAYOUTS:
                yield from _layout(view, title, root, classes)


def _megabytes(count: float) -> str:
    return f"{count / (1 << 20):.2f} MB"


def _state(ns: int, by_class: dict[str, int], live: int) -> Iterator[str]:
    kept = [by_class["weights"], by_class["gradients"], 0, by_class["optimizer state"]]
    names = ("params_memory", "grads_memory", "os_params_memory", "os_state_memory", "activation_memory")
    yield "Memory State:"
    yield f"time: {ns / 1e9}"
    yield "---summary---"
    yield f"total_memory: {_megabytes(live)}"
    yield ", ".join(f"{name}: {_megabytes(count)}" for name, count in zip(names, [*kept, live - sum(kept)]))


# A tree over layer paths; what is in no layer stands under the phase that allocated it.
def _layout(view: dict[str, Any], title: str, root: str, classes: Sequence[str]) -> Iterator[str]:
    drawn = view["devices"][0]
    peak = drawn["peak"]
    own: dict[str, int] = {}
    for i, kind in enumerate(peak["class"]):
        if view["classes"][kind] in classes:
            path = f"{root}.{drawn['layers'][peak['layer'][i]] or drawn['roles'][peak['role'][i]]}"
            own[path] = own.get(path, 0) + peak["bytes"][i] * peak["count"][i]
    total: dict[str, int] = {}
    for path, count in own.items():
        parts = path.split(".")
        for depth in range(1, len(parts) + 1):
            above = ".".join(parts[:depth])
            total[above] = total.get(above, 0) + count
    yield f"{title}:"
    for path, count in total.items():
        yield f"layer: {path}, layer_mem: {_megabytes(own.get(path, 0))}, total_mem: {_megabytes(count)}"
