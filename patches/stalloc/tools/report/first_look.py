"""The first facts of a device: the changes that save most, and what another trace would show in addition."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stalloc.tools.report import collect, figures

_CHANGES = 2
_WORTH_A_HINT = 0.05  # of the peak
_TRACED_BY_A_RUN = ("exact", "fast", "fake")  # others have no program that could be traced again


def best_changes(advice: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The first rows of `advise`, each of another kind: a second layer to recompute is no second idea.

    What makes the run grow goes first, then what lowers the peak itself, then what lowers only what is held for it.
    """
    kinds: dict[str, dict[str, Any]] = {}
    for row in advice:
        kinds.setdefault(row["what"].split()[0], row)
    return sorted(kinds.values(), key=lambda row: (not row["grows"], not row["of_live"]))[:_CHANGES]


def hints(view: dict[str, Any], index: int) -> list[str]:
    """Sentences: where a trace was broken off, and which variables would show more of the peak's blocks."""
    sentences = collect.broken_off(view)
    return [*([] if sentences is None else [f"{sentences[:1].upper()}{sentences[1:]}."]), *_of_variables(view, index)]


def _of_variables(view: dict[str, Any], index: int) -> list[str]:
    if view["rank"]["fingerprint"]["trace_mode"] not in _TRACED_BY_A_RUN:
        return []
    known, live = figures.detail(view, index), view["devices"][index]["peak"]["live_bytes"]
    unknown = known["neither"] > _WORTH_A_HINT * live
    missing = []
    if unknown and not known["modules"]:
        missing.append("STALLOC_TRACE_MODULES=1 names the module of each block")
    if not known["stacks"]:
        missing.append("STALLOC_TRACE_STACKS=1 shows the line of Python that requests it")
    sentences = [f"{100 * known['neither'] / live:.0f} % of the peak has no module and no tensor's name."] * unknown
    if missing:
        sentences.append(f"When tracing, {', '.join(missing)}.")
    if len(missing) > 1:
        fake = view["rank"]["fingerprint"]["trace_mode"] == "fake"  # whose operations use no block
        sentences.append(f"STALLOC_TRACE_DETAIL=1 does both{'' if fake else ', and shows what is held without use'}.")
    return sentences if missing else []
