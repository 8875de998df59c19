"""Iterations that end with an optimizer's step, as ranges or Python stacks show it; one is enough."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Optional

from stalloc.tools.snapshot.iterations import piled_up
from stalloc.tools.snapshot.read import Annotation, Event

STEP = "Optimizer.step#"
_OF_OPTIMIZER = ("step", "zero_grad")


@dataclasses.dataclass(frozen=True)
class Spans:
    """Ranges of iterations, as indices into the events; `ends` are one past the last event."""

    begins: list[int]
    ends: list[int]  # one for each iteration that ran to its end

    @property
    def complete(self) -> int:
        """The source, as far as it is known."""
        return len(self.ends or self.begins)


def ranges_of_steps(annotations: Sequence[Annotation]) -> list[Annotation]:
    """The steps that end an iteration: of several optimizers that alternate, those of the last one."""
    steps = [found for found in annotations if found.name.startswith(STEP) and found.end_us is not None]
    often = Counter(found.name for found in steps)
    most = max(often.values(), default=0)
    last = {found.name: found.end_us for found in steps if often[found.name] == most}
    name = max(last, key=lambda each: last[each] or 0, default="")
    return [found for found in steps if found.name == name]


def is_optimizer(event: Event) -> bool:
    return any(function_of(name) in _OF_OPTIMIZER and "optim" in file for file, name, _ in event.frames)


def function_of(name: str) -> str:
    """Without its class: PyTorch leaves it out, stalloc's own traces have it."""
    return name.rpartition(".")[2]


def ends_of_steps(events: Sequence[Event]) -> list[int]:
    """The ends of an optimizer's requests, by their stacks."""
    ends: list[int] = []
    inside = False
    for at, event in enumerate(events):
        if event.kind != "alloc":
            continue
        if inside and not is_optimizer(event):
            ends.append(at)
        inside = is_optimizer(event)
    return [*ends, len(events)] if inside else ends


def spans_of_steps(events: Sequence[Event], ends: Sequence[int]) -> Optional[Spans]:
    """Iterations between the ends of steps; None where there is none.

    Steps that are taken while the backward pass goes on (an optimizer for each parameter) are one iteration's: what is
    live after each does not come back to the same level.
    """
    requests = [0]
    for event in events:
        requests.append(requests[-1] + (event.kind == "alloc" and not event.earlier))
    cuts: list[int] = []
    for end in sorted(set(ends)):
        if requests[end] > (requests[cuts[-1]] if cuts else 0):
            cuts.append(end)
    if not cuts:
        return None
    live = list(live_bytes(events))
    tops = [max(live[begin:end]) for begin, end in zip(cuts, cuts[1:])]
    if piled_up([live[cut] for cut in cuts], tops) is not None:
        cuts = cuts[-1:]
    if len(cuts) == 1 and requests[-1] > 2 * requests[cuts[0]] and max(live[cuts[0] :]) > max(live[: cuts[0] + 1]):
        # The history begins with the end of a step, and has the next one but for its optimizer.
        return Spans([*cuts, *beginning_at_end(events)], [len(events)])
    begins = [first_request(events, cuts[0]), *cuts[:-1]]
    if requests[-1] > requests[cuts[-1]]:
        return Spans([*begins, cuts[-1]], cuts)
    return Spans([*begins, *beginning_at_end(events)], cuts)


def beginning_at_end(events: Sequence[Event]) -> list[int]:
    """The beginning of the next iteration, if blocks are freed after the last request: by the program then (gradients
    are dropped), and not by its exit, as a planner would take it."""
    return [len(events)] if events and events[-1].kind == "free" else []


def growth_of(events: Sequence[Event], begin: int, end: int) -> int:
    """Bytes by which an iteration raises the live bytes, after the frees that follow it."""
    after = next((at for at in range(end, len(events)) if events[at].kind == "alloc"), len(events))
    live = list(live_bytes(events[:after]))
    return live[-1] - live[begin]


def live_bytes(events: Sequence[Event]) -> Iterator[int]:
    """Before each event, and in the end."""
    live: dict[tuple[int, int], int] = {}
    total = 0
    for event in events:
        yield total
        key = (event.device, event.address)
        if event.kind == "alloc":
            live[key] = event.size
            total += event.size
        elif event.kind == "free":
            total -= live.pop(key, 0)
    yield total


def first_request(events: Sequence[Event], end: int) -> int:
    """The beginning of the iteration that ends with events[end - 1].

    Set-up leaves blocks that stay, an iteration takes others. So it begins with the first of those that are gone in
    the end, as long as some of them are live, up to the time when most of them are: at least half of the most.
    """
    begin = next((at for at, event in enumerate(events[:end]) if event.kind != "held" and not event.earlier), 0)
    passing = _passing(events, begin, end)
    most = max(passing, default=0)
    high = next((at for at, size in enumerate(passing) if 2 * size >= most > 0), 0)
    empty = (at for at in range(high, -1, -1) if passing[at] == 0)
    return begin + next(empty, 0)


# Live bytes after each event from `begin` on, of blocks that are gone at `end`; with those of before, as 0 before them.
def _passing(events: Sequence[Event], begin: int, end: int) -> list[int]:
    allocated: dict[tuple[int, int], int] = {}
    change = [0] * (end - begin + 1)
    for at, event in enumerate(events[:end]):
        key = (event.device, event.address)
        if event.kind == "alloc":
            allocated[key] = at
        elif event.kind == "free" and key in allocated:
            since = allocated.pop(key)
            size = events[since].size
            change[max(0, since - begin + 1)] += size
            change[at - begin + 1] -= size
    total, found = 0, []
    for step in change:
        total += step
        found.append(total)
    return found
