"""A snapshot as events in text, which `stalloc-planner import` makes a trace of (planner/cli/event_text.h)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from stalloc.snapshot.phases import Mark
from stalloc.snapshot.read import Snapshot


def event_lines(snapshot: Snapshot, marks: Sequence[Mark], rank: int = 0) -> Iterator[str]:
    """Each ends with a newline. Ids count allocations."""
    yield "stalloc-events 1\n"
    yield f"= trace_mode snapshot\n= rank {rank}\n"
    following = iter(marks)
    mark = next(following, None)
    live: dict[tuple[int, int], int] = {}  # id of each live block
    ids = 0
    for at, event in enumerate(snapshot.events):
        time_ns = event.time_us * 1000
        while mark is not None and mark.before <= at:
            yield f"m {mark.kind} {mark.edge} {mark.which} {mark.chunk} {mark.index} {time_ns}\n"
            mark = next(following, None)
        key = (event.device, event.address)
        if event.kind == "held":
            yield f"h {event.device} {event.size} {time_ns}\n"
        elif event.kind == "alloc":
            live[key] = ids
            yield f"a {ids} {event.size} {event.device} {event.stream} {time_ns}\n"
            ids += 1
        elif key in live:
            yield f"f {live.pop(key)} {time_ns}\n"
