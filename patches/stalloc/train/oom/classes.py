"""The class of each block of a report: by the tensors in it, else by the phase that requested it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Optional

from stalloc.train.oom.names import Named


def classify(report: dict[str, Any], named: Mapping[int, Named]) -> None:
    """Gives each live block `class`, and, where tensors in it are known, `tensor` and `names`."""
    now = _phase(report.get("phase", ""))
    for block in report["live_blocks"]:
        known = named.get(int(block["address"], 16))
        if known is not None:
            block.update({"class": known.memory_class, "tensor": known.role, "names": known.names})
        elif "phase" in block:
            block["class"] = class_by_phase(_phase(block["phase"]), now)


# An iteration, None in the set-up, and what runs in it.
Phase = tuple[Optional[int], str]


def class_by_phase(requested: Phase, now: Phase) -> str:
    """The class of a live block without a name. A batch comes after the optimizer's step of the last iteration, or
    later."""
    (iteration, what), (present, running) = requested, now
    if iteration is None or present is None or what == "fence":
        return "other"
    if what == "optimizer":
        return "temporaries" if requested == now else "optimizer state"
    if what == "after the optimizer":
        return "inputs" if present - iteration == 1 else "other"
    return _class_in_iteration(what, running) if iteration == present else "other"


def _class_in_iteration(what: str, running: str) -> str:
    if what == "between":
        return "inputs" if running.startswith("F") else "other"
    if not what and running:  # before the first pass
        return "inputs"
    return "temporaries" if what.startswith(("B ", "W ")) else "activations"


def _phase(text: str) -> Phase:
    """ "iter 3, F 0" -> (3, "F 0"); "set-up" -> (None, "")."""
    iteration, _, what = text.partition(", ")
    number = iteration.removeprefix("iter ")
    return (int(number), what) if number != iteration else (None, "")
