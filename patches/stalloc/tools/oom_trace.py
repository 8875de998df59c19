"""Blocks of a report in the trace of the same run: class, tensor, layer and stack as the planner reports them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from stalloc.core import oom_notes
from stalloc.tools.report import collect

_MOST_STRANGERS = 0.01  # of the blocks, whose sizes the trace has otherwise: else it is another run's, or began late


def join(report: dict[str, Any]) -> str:
    """Gives blocks what the trace knows. Returns why it could not, for the user, or ""."""
    if not report.get("trace"):
        return ""
    path = Path(report["trace"])
    if not path.is_file():
        return f"the trace is not there any more: {path}"
    try:
        view = collect.traced_view(path, every_block=True)
    except collect.CollectError as error:
        return f"the trace cannot be read: {error}"
    device = next((device for device in view["devices"] if device["device"] == report["device"]), None)
    pairs = [] if device is None else list(_pairs(report["live_blocks"], device["blocks"]))
    if device is None or len(pairs) < (1 - _MOST_STRANGERS) * len(report["live_blocks"]):
        return f"the trace does not hold these blocks, since it began later or is another run's: {path}"
    for block, row in pairs:
        _add(block, row, view["classes"], device)
    _note_what_was_not_traced(report)
    return ""


def _note_what_was_not_traced(report: dict[str, Any]) -> None:
    notes = [note for note in report["notes"] if note not in (oom_notes.BY_PHASE, oom_notes.NO_LAYERS)]
    blocks = report["live_blocks"]
    if not any(block.get("layer") and "tensor" not in block for block in blocks):
        notes.append(oom_notes.NO_LAYERS)
    if not any("stack" in block for block in blocks):
        notes.append("stacks: this trace has none; STALLOC_TRACE_STACKS=1 records them")
    report["notes"] = notes


def _pairs(blocks: list[dict[str, Any]], rows: dict[str, Any]) -> list[tuple[dict[str, Any], int]]:
    """Each block with its row: requests of a device are numbered as they come, in the trace as in the report."""
    return [
        (block, block["number"])
        for block in blocks
        if block.get("number", len(rows["event"])) < len(rows["event"])
        and rows["requested"][block["number"]] == block.get("requested", block["bytes"])
    ]


def _add(block: dict[str, Any], row: int, class_names: list[str], device: dict[str, Any]) -> None:
    rows, stacks = device["blocks"], device["stacks"]
    if "tensor" not in block:  # what was looked at when the error came is newer
        block["class"] = class_names[rows["class"][row]]
        if rows["name"][row]:
            block["tensor"] = rows["tensor"][row]
            block["names"] = rows["names"][row].split("\n") if rows["names"][row] else [rows["name"][row]]
    if device["layers"][rows["layer"][row]]:
        block["layer"] = device["layers"][rows["layer"][row]]
    if rows["stack"][row]:
        calls = stacks["calls"][rows["stack"][row]] or stacks["call_site"][rows["stack"][row]]
        block["stack"] = calls.split("\n")
        block["call_site"] = stacks["call_site"][rows["stack"][row]]
