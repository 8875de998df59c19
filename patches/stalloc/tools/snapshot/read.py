"""Reads a snapshot that torch.cuda.memory._dump_snapshot wrote, without torch and without running what is in it."""

from __future__ import annotations

import dataclasses
import io
import pickle
from pathlib import Path
from typing import Any, NoReturn, Optional


class SnapshotError(Exception):
    """The file is no snapshot that can be used; the text is for the user."""


class _PlainUnpickler(pickle.Unpickler):
    """A snapshot consists of containers, numbers and texts; whatever else a pickle names is not ours to run."""

    def find_class(self, module: str, name: str) -> NoReturn:
        raise SnapshotError(f"it refers to {module}.{name}; a snapshot holds only containers, numbers and texts")


@dataclasses.dataclass(frozen=True)
class Event:
    """One step of the allocator's history, or a block that was there before it (`time_us` is then the first one's)."""

    kind: str  # "alloc", "free", "held"
    device: int
    time_us: int
    address: int = 0
    size: int = 0  # bytes: as requested; of "held": reserved from here on
    stream: int = 0
    frames: tuple[tuple[str, str, int], ...] = ()  # file, function and line, innermost first
    earlier: bool = False  # was there before the history begins
    words: str = ""  # user_metadata: the program's own, or of stalloc export (metadata.py)


@dataclasses.dataclass(frozen=True)
class Annotation:
    """A range that record_function marked. One that was open already begins with the history."""

    name: str
    begin_us: int
    end_us: Optional[int]  # None: it was open in the end


@dataclasses.dataclass(frozen=True)
class Snapshot:
    events: list[Event]
    annotations: list[Annotation]
    earlier_blocks: int  # that were there before the history begins
    notes: list[str]


def read_snapshot(path: Path) -> Snapshot:
    """Raises SnapshotError, or OSError."""
    written = path.read_bytes()
    try:
        content = _PlainUnpickler(io.BytesIO(written)).load()
    except SnapshotError:
        raise
    except Exception as error:  # a broken pickle raises whatever it likes
        raise SnapshotError(f"not a pickle: {error}") from error
    return parse(content)


def parse(content: Any) -> Snapshot:
    """The value that the pickle holds. SnapshotError where it is something else, or has no history."""
    if not isinstance(content, dict) or "segments" not in content or "device_traces" not in content:
        raise SnapshotError("expected a dictionary with segments and device_traces")
    histories = content["device_traces"]
    if not any(histories):
        raise SnapshotError(
            "it has no history: call torch.cuda.memory._record_memory_history() before what is to be looked at"
        )
    try:
        reader = _Reader(content["segments"], histories)
        return Snapshot(reader.events(), _annotations(content), reader.earlier, reader.notes)
    except (KeyError, TypeError, ValueError) as error:
        raise SnapshotError(f"an entry is not as PyTorch writes it: {type(error).__name__} {error}") from error


class _Reader:
    def __init__(self, segments: list[dict[str, Any]], histories: list[list[dict[str, Any]]]) -> None:
        self._segments = segments
        self._histories = histories
        self.earlier = 0
        self.notes: list[str] = []

    def events(self) -> list[Event]:
        merged: list[Event] = []
        for device, history in enumerate(self._histories):
            if history:
                merged += self._device_events(device, history)
        merged.sort(key=lambda event: event.time_us)  # stable: a device's own order stays
        return merged

    def _device_events(self, device: int, history: list[dict[str, Any]]) -> list[Event]:
        begin = _time(history[0])
        earlier = self._earlier_blocks(device, history)
        self.earlier += len(earlier)
        events = [
            Event("alloc", device, begin, address, size, stream, earlier=True)
            for address, (size, stream) in sorted(earlier.items())
        ]
        held = self._held_before(device, history)
        events.append(Event("held", device, begin, size=held))
        live = set(earlier)
        time_us = begin
        for entry in history:
            # The order of the entries is the truth: PyTorch's times are converted from ticks and may step back.
            action, time_us = entry["action"], max(time_us, _time(entry))
            if action == "alloc":
                if entry["addr"] in live:
                    raise ValueError(f"address {entry['addr']:#x} is allocated twice")
                live.add(entry["addr"])
                frames = tuple((frame["filename"], frame["name"], frame["line"]) for frame in entry.get("frames", ()))
                at, size, stream = entry["addr"], entry["size"], entry.get("stream", 0)
                words = str(entry.get("user_metadata") or "")
                events.append(Event("alloc", device, time_us, at, size, stream, frames, words=words))
            elif action == "free_requested":
                live.discard(entry["addr"])
                events.append(Event("free", device, time_us, entry["addr"]))
            elif action in _HELD_SIGN:
                held += _HELD_SIGN[action] * entry["size"]
                events.append(Event("held", device, time_us, size=max(0, held)))
            elif action == "oom":
                self.notes.append(f"device {device} ran out of memory: {entry['size']} bytes were requested")
        return events

    # Freed without having been allocated in the history, or live in the end without it.
    def _earlier_blocks(self, device: int, history: list[dict[str, Any]]) -> dict[int, tuple[int, int]]:
        earlier: dict[int, tuple[int, int]] = {}
        live: set[int] = set()
        for entry in history:
            if entry["action"] == "alloc":
                live.add(entry["addr"])
            elif entry["action"] == "free_requested":
                if entry["addr"] not in live:
                    earlier[entry["addr"]] = (entry["size"], entry.get("stream", 0))
                live.discard(entry["addr"])
        for address, size, stream in self._live_blocks(device):
            if address not in live and address not in earlier:
                earlier[address] = (size, stream)
        return earlier

    def _live_blocks(self, device: int) -> list[tuple[int, int, int]]:
        blocks = []
        for segment in self._segments:
            if segment.get("device", 0) != device:
                continue
            address = segment["address"]
            for block in segment["blocks"]:
                place = block.get("address", address)  # older snapshots leave it out
                if block["state"] == "active_allocated":
                    blocks.append((place, block.get("requested_size", block["size"]), segment.get("stream", 0)))
                address = place + block["size"]
        return blocks

    def _held_before(self, device: int, history: list[dict[str, Any]]) -> int:
        now: int = sum(segment["total_size"] for segment in self._segments if segment.get("device", 0) == device)
        change: int = sum(_HELD_SIGN.get(entry["action"], 0) * entry.get("size", 0) for entry in history)
        return max(0, now - change)


_HELD_SIGN = {"segment_alloc": 1, "segment_map": 1, "segment_free": -1, "segment_unmap": -1}


def _time(entry: dict[str, Any]) -> int:
    return int(entry.get("time_us", 0))  # PyTorch before 2.1 has none


def _annotations(content: dict[str, Any]) -> list[Annotation]:
    found: list[Annotation] = []
    open_ranges: dict[tuple[str, object], list[int]] = {}
    entries = content.get("external_annotations", ())
    first = min((_time(history[0]) for history in content["device_traces"] if history), default=0)
    for entry in entries:
        name, time_us = entry["name"], _time(entry)
        begun = open_ranges.setdefault((name, entry.get("device")), [])
        if entry["stage"] == "START":
            begun.append(time_us)
        else:
            found.append(Annotation(name, begun.pop() if begun else min(first, time_us), time_us))
    found += [Annotation(name, begin, None) for (name, _), begun in open_ranges.items() for begin in begun]
    return sorted(found, key=lambda annotation: annotation.begin_us)
