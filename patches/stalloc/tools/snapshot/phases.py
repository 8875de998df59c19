"""Marks of a training loop, from what a snapshot knows: annotations, Python stacks, the period of the requests."""

from __future__ import annotations

import dataclasses
import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Optional

from stalloc.tools.snapshot import iterations, layers, steps
from stalloc.tools.snapshot.iterations import Pile
from stalloc.tools.snapshot.marks import Mark
from stalloc.tools.snapshot.read import Annotation, Event, Snapshot
from stalloc.tools.snapshot.steps import Spans

_BACKWARD = frozenset({"backward", "unpack_hook", "recompute_fn", "_engine_run_backward"})
_WITH_STACKS = 0.1  # of the requests: below it phases are not read from stacks
_LOOPS = ("ProfilerStep#", "iteration ")
# Ranges that name a pass of a micro-batch, as stalloc export writes them: "F 0", "B 3 chunk 1".
_PASS = re.compile(r"(?P<which>F|B|W|FB) (?P<index>\d+)(?: chunk (?P<chunk>\d+))?$")
_OPTIMIZER = "optimizer"
_FENCE = re.compile(r"(?P<kind>fence|init) ?(?P<name>.*)$")  # the same


@dataclasses.dataclass(frozen=True)
class Marks:
    marks: list[Mark]  # ascending by `before`
    source: str = ""  # how the iterations were found, for the user; "" if they were not
    pile: Optional[Pile] = None  # repeats that are no iterations, or iterations that pile up
    iterations: int = 0  # that ran to their end, as far as it is known


@dataclasses.dataclass(frozen=True)
class _Found:
    spans: Spans
    source: str = ""
    pile: Optional[Pile] = None


_NOTHING = Spans([], [])


def find_marks(snapshot: Snapshot, annotation: Optional[str] = None, whole: bool = False) -> Marks:
    """Iterations, and with ranges that name them, or with stacks, also micro-batches, optimizer and layers.

    `annotation`: the beginning of the name of a record_function range that is one iteration. `whole`: the history is
    one.
    """
    events = snapshot.events
    found = _whole(events) if whole else _iterations(snapshot, annotation)
    marks = [Mark(at, "iteration", index=index) for index, at in enumerate(found.spans.begins)]
    marks += [Mark(at, "iteration", "end", index=index) for index, at in enumerate(found.spans.ends)]
    passes = _from_ranges(snapshot) or _from_stacks(events, found.spans.begins)
    if not any(mark.kind == "optimizer" for mark in passes):
        passes += _optimizers(snapshot)
    marks += passes
    marks += _fences(snapshot)
    marks += (
        layers.from_ranges(snapshot, passes, _is_loop(annotation))
        or layers.from_words(events)
        or layers.from_stacks(events, passes)
    )
    marks.sort(key=Mark.order)
    return Marks(marks, found.source, found.pile, found.spans.complete)


def _iterations(snapshot: Snapshot, annotation: Optional[str]) -> _Found:
    events = snapshot.events
    if annotation is not None and not annotation.startswith("Optimizer.step"):
        return _from_annotations(snapshot, annotation) or _Found(_NOTHING)
    for prefix in _LOOPS if annotation is None else ():
        found = _from_annotations(snapshot, prefix)
        if found is not None:
            return found
    times = [event.time_us for event in events]
    named = [found for found in snapshot.annotations if found.name.startswith(annotation or steps.STEP)]
    ends = [bisect_left(times, found.end_us or 0) for found in steps.ranges_of_steps(named)]
    by_ranges = steps.spans_of_steps(events, ends)
    source = f'annotations "{steps.STEP}"'
    if annotation is not None or (by_ranges is not None and (by_ranges.complete > 1 or len(ends) == 1)):
        return _named(by_ranges, source) if by_ranges is not None else _Found(_NOTHING)
    by_period = _from_period(events)
    if by_period.spans.begins:
        return by_period
    if by_ranges is not None:
        return _named(by_ranges, source)
    by_stacks = steps.spans_of_steps(events, steps.ends_of_steps(events))
    return _named(by_stacks, "the optimizer's steps in Python stacks") if by_stacks is not None else by_period


def _named(spans: Spans, source: str, pile: Optional[Pile] = None) -> _Found:
    count = spans.complete
    return _Found(spans, f"{source} ({count} iteration{'s' if count > 1 else ''})", pile)


def _whole(events: Sequence[Event]) -> _Found:
    begin = next((at for at, event in enumerate(events) if event.kind == "alloc" and not event.earlier), 0)
    return _named(Spans([begin, *steps.beginning_at_end(events)], [len(events)]), "the whole history")


def _from_annotations(snapshot: Snapshot, prefix: str) -> Optional[_Found]:
    ranges = [found for found in snapshot.annotations if found.name.startswith(prefix)]
    times = [event.time_us for event in snapshot.events]
    begins = sorted({bisect_left(times, found.begin_us) for found in ranges} - {len(times)})
    if not begins:
        return None
    live = list(steps.live_bytes(snapshot.events))
    tops = [max(live[begin:end]) for begin, end in zip(begins, begins[1:])]
    growth = iterations.piled_up([live[at] for at in begins], tops)
    requests = sum(event.kind == "alloc" for event in snapshot.events[begins[0] :]) // len(begins)
    pile = None if growth is None else Pile(len(begins), requests, growth)
    return _named(Spans(begins, []), f'annotations "{prefix}"', pile)


def _from_period(events: Sequence[Event]) -> _Found:
    places = [at for at, event in enumerate(events) if event.kind == "alloc"]
    live = list(steps.live_bytes(events))
    sizes = [events[at].size for at in places]
    cut = iterations.find_cut(sizes, [*(live[at] for at in places), live[-1]])
    if not cut.begins:
        return _Found(_NOTHING, pile=cut.pile)
    inside = places[cut.begins[0] :]
    # An optimizer that goes from parameter to parameter repeats, too.
    if 2 * sum(steps.is_optimizer(events[at]) for at in inside) > len(inside):
        return _Found(_NOTHING)
    return _named(Spans([places[request] for request in cut.begins], []), "the period of the requests")


def _is_loop(annotation: Optional[str]) -> tuple[str, ...]:
    return _LOOPS if annotation is None else (*_LOOPS, annotation)


def _from_ranges(snapshot: Snapshot) -> list[Mark]:
    marks: list[Mark] = []
    for found, begin, end in _places(snapshot):
        named = _PASS.match(found.name)
        if named is None and found.name != _OPTIMIZER:
            continue
        if named is None:
            mark = Mark(begin, "optimizer")
        else:
            mark = Mark(begin, "microbatch", "begin", named["which"], int(named["index"]), int(named["chunk"] or 0))
        marks += [mark, dataclasses.replace(mark, before=end, edge="end")]
    return marks


def _optimizers(snapshot: Snapshot) -> list[Mark]:
    return [
        mark
        for found, begin, end in _places(snapshot)
        if found.name.startswith(steps.STEP)
        for mark in (Mark(begin, "optimizer"), Mark(end, "optimizer", "end"))
    ]


def _fences(snapshot: Snapshot) -> list[Mark]:
    marks: list[Mark] = []
    for found, begin, end in _places(snapshot):
        named = _FENCE.match(found.name)
        if named is not None:
            mark = Mark(begin, named["kind"], name=named["name"])
            marks += [mark, dataclasses.replace(mark, before=end, edge="end")]
    return marks


# Ranges in which something happens, each with its first event and one past its last.
def _places(snapshot: Snapshot) -> Iterator[tuple[Annotation, int, int]]:
    times = [event.time_us for event in snapshot.events]
    for found in snapshot.annotations:
        begin = bisect_left(times, found.begin_us)
        end = len(times) if found.end_us is None else bisect_left(times, found.end_us)
        if begin < end:
            yield found, begin, end


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
    if steps.is_optimizer(event):
        return "O"
    return "B" if not event.frames or any(steps.function_of(name) in _BACKWARD for _, name, _ in event.frames) else "F"
