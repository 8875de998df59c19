"""Marks of a training loop, from what a snapshot knows: annotations, Python stacks, the period of the requests."""

from __future__ import annotations

import dataclasses
import re
from bisect import bisect_left
from collections.abc import Sequence
from typing import Optional

from stalloc.snapshot import iterations
from stalloc.snapshot.read import Annotation, Event, Snapshot

_BACKWARD = frozenset({"backward", "unpack_hook", "recompute_fn", "_engine_run_backward"})
_WITH_STACKS = 0.1  # of the requests: below it phases are not read from stacks
_PREFERRED = ("ProfilerStep#", "iteration ", "Optimizer.step#")
# Ranges that name a pass of a micro-batch, as stalloc export writes them: "F 0", "B 3 chunk 1".
_PASS = re.compile(r"(?P<which>F|B|W|FB) (?P<index>\d+)(?: chunk (?P<chunk>\d+))?$")
_OPTIMIZER = "optimizer"


@dataclasses.dataclass(frozen=True)
class Mark:
    """As proto/trace.proto has it; it stands before event `before`."""

    before: int  # index into Snapshot.events
    kind: str
    edge: str = "begin"
    which: str = "-"  # pass
    index: int = 0
    chunk: int = 0


@dataclasses.dataclass(frozen=True)
class Marks:
    marks: list[Mark]  # ascending by `before`
    source: str  # how the iterations were found, for the user; "" if they were not


def find_marks(snapshot: Snapshot, annotation: Optional[str] = None) -> Marks:
    """Iterations, and with ranges that name them, or with stacks, also micro-batches and optimizer.

    `annotation`: the beginning of the name of a record_function range that is one iteration.
    """
    begins, source = _iterations(snapshot, annotation)
    marks = [Mark(before, "iteration", index=index) for index, before in enumerate(begins)]
    marks += _from_ranges(snapshot) or _from_stacks(snapshot.events, begins)
    marks.sort(key=lambda mark: (mark.before, mark.edge == "begin", mark.kind != "iteration"))
    return Marks(marks, source)


def _iterations(snapshot: Snapshot, annotation: Optional[str]) -> tuple[list[int], str]:
    for prefix in (annotation,) if annotation is not None else _PREFERRED:
        ranges = [found for found in snapshot.annotations if found.name.startswith(prefix)]
        if ranges:
            return _from_annotations(snapshot.events, ranges, prefix)
    if annotation is not None:
        return [], ""
    begins = _from_period(snapshot.events)
    return begins, f"the period of the requests ({len(begins)} iterations)" if begins else ""


def _from_annotations(events: Sequence[Event], ranges: Sequence[Annotation], prefix: str) -> tuple[list[int], str]:
    times = [event.time_us for event in events]
    # An iteration begins where its range does. An optimizer's step ends one; set-up and first iteration are then one.
    ends = prefix.startswith("Optimizer.step")
    moments = {found.end_us if ends else found.begin_us for found in ranges}
    begins = sorted({bisect_left(times, moment) for moment in moments} - {len(events)})
    return begins, f'annotations "{prefix}" ({len(begins)} iterations)'


def _from_period(events: Sequence[Event]) -> list[int]:
    places, sizes, live_before = [], [], []
    live: dict[tuple[int, int], int] = {}
    total = 0
    for at, event in enumerate(events):
        key = (event.device, event.address)
        if event.kind == "alloc":
            places.append(at)
            sizes.append(event.size)
            live_before.append(total)
            live[key] = event.size
            total += event.size
        elif event.kind == "free":
            total -= live.pop(key, 0)
    return [places[request] for request in iterations.cut(sizes, live_before)]


def _from_ranges(snapshot: Snapshot) -> list[Mark]:
    times = [event.time_us for event in snapshot.events]
    marks: list[Mark] = []
    for found in snapshot.annotations:
        named = _PASS.match(found.name)
        begin, end = bisect_left(times, found.begin_us), bisect_left(times, found.end_us)
        if begin == end or (named is None and found.name != _OPTIMIZER):
            continue
        if named is None:
            mark = Mark(begin, "optimizer")
        else:
            mark = Mark(begin, "microbatch", "begin", named["which"], int(named["index"]), int(named["chunk"] or 0))
        marks += [mark, dataclasses.replace(mark, before=end, edge="end")]
    return marks


def _from_stacks(events: Sequence[Event], begins: Sequence[int]) -> list[Mark]:
    requests = [at for at, event in enumerate(events) if event.kind == "alloc"]
    if not begins or sum(bool(events[at].frames) for at in requests) < _WITH_STACKS * len(requests):
        return []
    marks: list[Mark] = []
    phase, microbatch, next_begin = "", -1, 0
    for at in requests:
        if next_begin < len(begins) and at >= begins[next_begin]:
            phase, microbatch = "", -1
            while next_begin < len(begins) and at >= begins[next_begin]:
                next_begin += 1
        if next_begin == 0:
            continue  # set-up
        found = _phase_of(events[at])
        if found == phase:
            continue
        if found == "O":
            marks.append(Mark(at, "optimizer"))
        else:
            if found == "F" or microbatch < 0:
                microbatch += 1
            marks.append(Mark(at, "microbatch", which=found, index=microbatch))
        phase = found
    return marks


def _phase_of(event: Event) -> str:
    """F, B or O. Autograd's threads have no Python stack, unless they recompute or run a backward of the user's."""
    if any(name in ("step", "zero_grad") and "optim" in file for file, name, _ in event.frames):
        return "O"
    return "B" if not event.frames or any(name in _BACKWARD for _, name, _ in event.frames) else "F"
