"""A trace as a snapshot, which PyTorch's memory_viz opens and `stalloc import` reads.

A trace has no addresses. Blocks get some here: the last one that was freed with the same size, else after all others.
The segment that holds them is therefore larger than what any allocator would reserve.

What the page of memory_viz (torch/utils/viz/MemoryViz.js) requires beyond PyTorch's own readers: a pickle of a protocol
from 2 to 4; blocks that fill their segment, in order; and, where entries have a category, one that is called unknown.
By category it colours blocks.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Optional

from stalloc.tools.snapshot import metadata

Tensors = tuple[str, tuple[str, ...]]  # role and names
Frames = list[dict[str, Any]]

_BASE = 0x7F00_0000_0000
_UNIT = 512
_PROTOCOL = 4
_NO_CATEGORY = "unknown"


class SnapshotWriter:
    """Takes the lines of `stalloc-planner dump --json`, parsed, in order; `finish` gives what to pickle.

    `categories`: the class of each block, by the event of its allocation; `tensors`: what lies in it, as parameter,
    gradient, optimizer state, buffer or nothing, with the names.
    """

    def __init__(self, categories: Mapping[int, str], tensors: Optional[Mapping[int, Tensors]] = None) -> None:
        self._categories = categories
        self._tensors = tensors or {}
        self._events = 0
        self._devices: dict[int, _Device] = {}
        self._homes: dict[int, _Device] = {}
        self._annotations: list[dict[str, Any]] = []
        self._open: list[str] = []
        self._time_us = 0
        self._event_us = -1  # of the last one that is no mark
        self._calls: dict[int, tuple[int, dict[str, Any]]] = {}  # the one outside of each, and its frame
        self._stacks: dict[int, Frames] = {0: []}  # shared, so that a pickle has each once

    def take(self, line: dict[str, Any]) -> None:
        kind = line["event"]
        if kind == "call":
            frame = {"filename": line["file"], "line": line["line"], "name": line["function"]}
            self._calls[line["id"]] = (line["parent"], frame)
            return
        self._events += 1
        self._time_us = max(line["time_ns"] // 1000, self._time_us)
        if kind == "mark":
            # Readers place ranges among events by time alone, so none begins or ends at the microsecond of one before.
            self._time_us = max(self._time_us, self._event_us + 1)
        else:
            self._event_us = self._time_us
        if kind == "alloc":
            device = self._devices.setdefault(max(0, line["device"]), _Device())
            self._homes[line["id"]] = device
            frames = self._frames(line.get("stack", 0))
            category = self._categories.get(self._events - 1, _NO_CATEGORY)
            words = metadata.written(*self._tensors.get(self._events - 1, ("", ())))
            device.allocate(line, self._time_us, frames, category, words)
        elif kind == "free":
            self._homes.pop(line["id"]).free(line["id"], self._time_us)
        elif kind == "mark":
            self._mark(line)

    def _frames(self, stack: int) -> Frames:
        """Innermost first, as PyTorch has them."""
        if stack not in self._stacks:
            frames, call = [], stack
            while call:
                call, frame = self._calls[call]
                frames.append(frame)
            self._stacks[stack] = frames
        return self._stacks[stack]

    def finish(self) -> dict[str, Any]:
        self._time_us += 1  # the last event lies inside what is open
        self._close(0)
        count = max(self._devices, default=-1) + 1
        return {
            "segments": [device.segment(index) for index, device in sorted(self._devices.items())],
            "device_traces": [self._devices[i].history() if i in self._devices else [] for i in range(count)],
            "allocator_settings": {},
            "external_annotations": self._annotations,
        }

    # An iteration ends with the next; what is inside it, with it.
    def _mark(self, line: dict[str, Any]) -> None:
        if line["kind"] == "iteration":
            name = f"iteration {line['index']}"
        elif line["kind"] == "microbatch":
            name = f"{line['pass']} {line['index']} chunk {line['chunk']}"
        elif line["kind"] == "layer":
            name = line["name"] if line["pass"] == "-" else f"{line['name']} ({line['pass']})"
        else:
            name = " ".join(filter(None, (line["kind"], line["name"])))
        if line["edge"] == "end":
            if name in self._open:
                self._close(self._open.index(name))
            return
        if line["kind"] in ("iteration", "microbatch", "optimizer"):
            self._close(0 if line["kind"] == "iteration" else min(1, len(self._open)))
        self._open.append(name)
        self._annotate(name, "START")

    def _close(self, depth: int) -> None:
        while len(self._open) > depth:
            self._annotate(self._open.pop(), "END")

    def _annotate(self, name: str, stage: str) -> None:
        self._annotations.append({"name": name, "stage": stage, "time_us": self._time_us, "device": 0})


class _Device:
    def __init__(self) -> None:
        self._entries: list[dict[str, Any]] = []
        self._free: dict[int, list[int]] = {}  # addresses, by rounded size
        self._live: dict[int, tuple[int, int, int, Frames]] = {}  # address, requested size, stream, stack; by id
        self._next = _BASE
        self._blocks: dict[int, int] = {}  # rounded size, by address

    def allocate(self, line: dict[str, Any], time_us: int, frames: Frames, category: str, words: str) -> None:
        size, stream = line["bytes"], line["stream"]
        rounded = max(_UNIT, -(-size // _UNIT) * _UNIT)
        places = self._free.get(rounded)
        if places:
            address = places.pop()
        else:
            address, self._next = self._next, self._next + rounded
            self._blocks[address] = rounded
        self._live[line["id"]] = (address, size, stream, frames)
        entry = _entry("alloc", address, size, stream, time_us, frames=frames)
        self._entries.append(entry | {"category": category, "user_metadata": words})

    def free(self, block: int, time_us: int) -> None:
        address, size, stream, _ = self._live.pop(block)
        self._free.setdefault(self._blocks[address], []).append(address)
        self._entries.append(_entry("free_requested", address, size, stream, time_us))
        self._entries.append(_entry("free_completed", address, size, stream, time_us))

    def history(self) -> list[dict[str, Any]]:
        begin = self._entries[0]["time_us"]
        segment = _entry("segment_alloc", _BASE, self._next - _BASE, 0, begin)
        return [segment | {"category": _NO_CATEGORY}, *self._entries]

    def segment(self, index: int) -> dict[str, Any]:
        live = {address: (size, frames) for address, size, _, frames in self._live.values()}
        active = sum(self._blocks[address] for address in live)
        return {
            "device": index,
            "address": _BASE,
            "total_size": self._next - _BASE,
            "stream": 0,
            "segment_type": "large",
            "segment_pool_id": (0, 0),
            "is_expandable": False,
            "allocated_size": active,
            "active_size": active,
            "requested_size": sum(size for size, _ in live.values()),
            "frames": [],
            "blocks": [self._block(address, size, live) for address, size in self._blocks.items()],
        }

    @staticmethod
    def _block(address: int, size: int, live: dict[int, tuple[int, Frames]]) -> dict[str, Any]:
        state = "active_allocated" if address in live else "inactive"
        requested, frames = live.get(address, (0, []))
        return {"address": address, "size": size, "requested_size": requested, "state": state, "frames": frames}


def _entry(
    action: str, address: int, size: int, stream: int, time_us: int, *, frames: Sequence[dict[str, Any]] = ()
) -> dict[str, Any]:
    return {
        "action": action,
        "addr": address,
        "size": size,
        "stream": stream,
        "time_us": time_us,
        "frames": frames or [],
        "compile_context": "N/A",
        "user_metadata": "",
    }


def write_snapshot(
    lines: Iterable[dict[str, Any]], categories: Mapping[int, str], tensors: Optional[Mapping[int, Tensors]] = None
) -> bytes:
    """The file's content; arguments as SnapshotWriter has them."""
    writer = SnapshotWriter(categories, tensors)
    for line in lines:
        writer.take(line)
    return pickle.dumps(writer.finish(), protocol=_PROTOCOL)
