"""Checks a pickle against what PyTorch's page of memory snapshots asks of one.

The page (torch/utils/viz/MemoryViz.js, read at c4b5ac7) loads d3 from a network, so the gate cannot open it. It reads
pickles with a reader of its own, which knows some opcodes; places the blocks of a segment one behind the other; plays
the history backwards from the blocks that are there in the end, looking up the segment of each; and, where an entry has
a category, needs one that is called unknown.
"""

from __future__ import annotations

import pickle
import pickletools
from collections.abc import Iterable
from typing import Any

_PROTOCOLS = (2, 3, 4)
_WORDS = """PROTO FRAME STOP MARK APPEND APPENDS LIST EMPTY_LIST TUPLE TUPLE1 TUPLE2 TUPLE3 EMPTY_TUPLE DICT
    EMPTY_DICT SETITEM SETITEMS NONE NEWTRUE NEWFALSE BININT BININT1 BININT2 LONG1 BINFLOAT BINUNICODE
    SHORT_BINUNICODE MEMOIZE BINPUT LONG_BINPUT BINGET LONG_BINGET"""
_OPCODES = frozenset(_WORDS.split())
_STATES = ("active_allocated", "active_pending_free", "inactive")
_OF_BLOCKS = ("alloc", "free_requested", "free_completed")
_OF_SEGMENTS = ("segment_alloc", "segment_free", "segment_map", "segment_unmap")
_EXACT = 1 << 53  # a number of JavaScript's


def check(written: bytes) -> dict[str, Any]:
    """The snapshot. Raises AssertionError naming what the page would not show."""
    _check_opcodes(written)
    snapshot: dict[str, Any] = pickle.loads(written)
    entries = [entry for history in snapshot["device_traces"] for entry in history]
    for entry in entries:
        _check_entry(entry)
    categories = {entry["category"] for entry in entries if "category" in entry}
    assert not categories or "unknown" in categories, "categories without unknown"
    for segment in snapshot["segments"]:
        _check_segment(segment)
        assert segment["device"] < len(snapshot["device_traces"]), "a segment of a device without a history"
    for device, history in enumerate(snapshot["device_traces"]):
        _play_backwards([segment for segment in snapshot["segments"] if segment["device"] == device], history)
    return snapshot


def _check_opcodes(written: bytes) -> None:
    for opcode, argument, _ in pickletools.genops(written):
        assert opcode.name in _OPCODES, opcode.name
        assert opcode.name != "PROTO" or argument in _PROTOCOLS, f"protocol {argument}"
        assert opcode.name != "LONG1" or abs(argument) < _EXACT, argument


def _check_entry(entry: dict[str, Any]) -> None:
    assert entry["action"] in (*_OF_BLOCKS, *_OF_SEGMENTS), entry
    for key in ("addr", "size", "stream", "time_us"):
        assert isinstance(entry[key], int), entry
        assert entry[key] >= 0, entry
    _check_frames(entry["frames"])


def _check_frames(frames: Iterable[dict[str, Any]]) -> None:
    for frame in frames:
        assert isinstance(frame["filename"], str), frame
        assert isinstance(frame["name"], str), frame
        assert isinstance(frame["line"], int), frame


def _check_segment(segment: dict[str, Any]) -> None:
    address = segment["address"]
    for block in segment["blocks"]:
        assert block["address"] == address, f"a gap before {block['address']:#x}"
        assert block["state"] in _STATES, block
        assert 0 <= block["requested_size"] <= block["size"], block
        _check_frames(block["frames"])
        address += block["size"]
    assert address == segment["address"] + segment["total_size"], "blocks do not fill the segment"


def _play_backwards(segments: list[dict[str, Any]], history: list[dict[str, Any]]) -> None:
    spans = {segment["address"]: segment["address"] + segment["total_size"] for segment in segments}
    live = {
        block["address"]: block["requested_size"]
        for segment in segments
        for block in segment["blocks"]
        if block["state"] != "inactive"
    }
    for entry in reversed(history):
        place, size = entry["addr"], entry["size"]
        if entry["action"] == "alloc":
            assert live.pop(place, None) == size, f"{place:#x} is allocated, and not live behind that"
        elif entry["action"] == "free_completed":
            assert place not in live, f"{place:#x} is freed, and live behind that"
            live[place] = size
        elif entry["action"] == "free_requested":
            assert live.get(place) == size, f"{place:#x} is given back, and its free is not completed"
        elif entry["action"] in ("segment_alloc", "segment_map"):
            assert spans.pop(place, None) == place + size, f"the segment {place:#x} is not there in the end"
        else:
            spans[place] = place + size
        if entry["action"] in _OF_BLOCKS:
            assert any(begin <= place and place + size <= end for begin, end in spans.items()), (
                f"{place:#x}: no segment"
            )
    times = [entry["time_us"] for entry in history]
    assert times == sorted(times), "times step back"
