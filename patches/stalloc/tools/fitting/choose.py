"""Chooses the fastest micro-batch, and what to recompute or offload for it, in the given memory. Bytes, seconds.

A step has the requested rows (`Work.rows`), else about as many as before: a smaller micro-batch comes more
often, with gradients of those before it there, a larger one less often, but once at least (work.py). How long it takes
is the planner's (step_cost.h): passes, recomputed layers forward once more, copies of what is offloaded where nothing
hides them. The fastest by rows a second is chosen among those that fit. Of those that are as fast, it is the one with
the fewest micro-batches a step, then the largest, the smallest change, the least memory. What is chosen is planned;
where the plan reserves more than fits, the search runs again with less memory.
"""

from __future__ import annotations

import dataclasses
import enum
import sys
from collections.abc import Sequence
from typing import Any, Callable, Optional

from stalloc.tools.fitting.replayed import Change, Outcome, Planner, TracedRun
from stalloc.tools.fitting.ways import Way
from stalloc.tools.fitting.work import Lengths, Work
from stalloc.tools.report import certainty, findings
from stalloc.tools.report.certainty import Certainty

_AS_FAST = 0.01  # what is predicted to be faster by less is as fast
_ROUNDS = 6
_MUCH = 0.01  # of the memory: what a choice holds beyond it is found by small steps
_CLOSE = 16  # micro-batches that differ by one in so many are next to each other
_MOST_SCALES = 12
_CLOSER = 2  # rounds in which micro-batches next to the fastest are tried


class FitError(ValueError):
    """No choice is possible. The text is one line for the user."""


class Goal(enum.Enum):
    """How to choose among the micro-batches that fit."""

    FASTEST = "by rows a second"
    LONGEST = "the largest, however slow"
    TRACED = "the one that was traced"


@dataclasses.dataclass(frozen=True)
class Wish:
    """The user's request."""

    memory: int  # bytes that may be held
    # As requested: the traces give its `usual`, and the `traced` and `together` of its lengths.
    work: Work = dataclasses.field(default_factory=Work)
    goal: Goal = Goal.FASTEST
    bus: float = 25e9
    allocator: str = "stalloc"
    graphs: bool = False  # graphs of all passes have to fit, in one pool that is theirs for good
    way: Optional[Way] = None  # with graphs where the traced run has none, or without: searched as well
    host: Optional[int] = None  # bytes of the host for what is offloaded; None: whatever it takes
    sequence_unit: int = 0  # tokens: a micro-batch is a length in these units, and its rows stay


@dataclasses.dataclass(frozen=True)
class Tried:
    """One micro-batch, with the least change that was found for it."""

    micro_batch: int
    accumulation: int
    change: Change
    fits: bool
    live: int
    step_seconds: float
    tokens: float  # a second, over those of the traced run
    bound: str
    graph_bytes: int  # if graphs of all passes lay in one pool
    host_share: Optional[float] = None  # of a step with nothing changed, that the host bounds; None: not known
    at_least: bool = False  # a step may take longer: the host bounds those that were traced
    host_bytes: int = 0  # pinned memory of the host for what is offloaded
    host_bound: bool = False  # the host has too little for a choice that was left out
    graphs: Optional[bool] = None  # whether it has captured ones; None: one way is known
    outcome: Optional[Outcome] = None  # planned


@dataclasses.dataclass(frozen=True)
class Choice:
    device: int
    traced_live: int
    traced_step_seconds: float
    best: Tried  # with its outcome
    fits: bool
    tried: list[Tried]
    candidates: list[dict[str, Any]]
    layers: dict[str, dict[str, Any]]  # by the planner's name
    graph_pools: Optional[dict[str, int]]  # of graphs that the traced run captured: pools, bytes, held
    truncation: str  # where the trace was broken off, else empty
    certainty: Certainty  # of what is said of another micro-batch


def choose(run: TracedRun, wish: Wish, report: Callable[[str], object] = lambda line: None) -> Choice:
    """Chooses for the device that reserves most. FitError, CollectError.

    Args:
        run: the traced run.
        wish: the user's request.
        report: receives lines of progress.
    """
    report("reading the trace")
    with Planner(run) as planner:
        return _Chooser(run, planner, wish, report).choose()


def progress(line: str) -> None:
    """On a terminal one line that changes, else nothing."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\033[K{line}")
        sys.stderr.flush()


class _Chooser:
    def __init__(self, run: TracedRun, planner: Planner, wish: Wish, report: Callable[[str], object]) -> None:
        self._run = run
        self._planner = planner
        self._wish = wish
        self._report = report
        traced = planner.traced(wish.bus, candidates=True)
        self._truncation = str(traced["truncation"])
        if not traced["devices"]:
            raise FitError("the traced run took no memory of the device: it has to train there")
        self._first = max(traced["devices"], key=lambda device: int(device["peak"]))
        self._device = int(self._first["device"])
        work, lengths = wish.work, wish.work.lengths
        of_time = planner.cost(self._device, work.accumulation, work.longer, lengths is not None and lengths.packed)
        self._work = dataclasses.replace(
            work, usual=of_time["usual"], lengths=self._traced_lengths(lengths, of_time["together"])
        )
        # Of a step with nothing changed, as it was traced, by micro-batch; and the host's share of it.
        self._known_seconds: dict[int, tuple[float, Optional[float]]] = {}
        self._way: Optional[Way] = None  # in which it is searched; None: as it was traced
        self._limit = wish.memory  # bytes that may be live: less where the allocator reserves much more than that

    def choose(self) -> Choice:
        best, tried = self._fastest()
        if self._wish.way is not None:
            best, tried = self._with_other_way(self._wish.way, best, tried)
        self._report("")
        first = self._first
        return Choice(
            device=self._device,
            traced_live=first["peak"],
            traced_step_seconds=first["step_ns"] / 1e9,
            best=best,
            fits=best.fits,
            tried=tried,
            candidates=first["candidates"],
            layers={layer["name"]: layer for layer in first["layers"]},
            graph_pools=first["graph_pools"],
            truncation=self._truncation,
            certainty=certainty.of_traces(first["scaling"], self._run.ratio, first["other_peak"], self._work.longer),
        )

    def _with_other_way(self, way: Way, best: Tried, tried: list[Tried]) -> tuple[Tried, list[Tried]]:
        self._way, self._limit = way, self._wish.memory
        other, others = self._fastest()
        fitting = [each for each in (best, other) if each.fits]
        first = self._first_of(fitting) if fitting else min(best, other, key=lambda each: each.live)
        return first, [*tried, *others]

    def _traced_lengths(self, lengths: Optional[Lengths], together: bool) -> Optional[Lengths]:
        if lengths is None or not lengths.tokens:
            return None
        most = self._run.most_tokens()
        if most is None:
            raise FitError(
                "the lengths of rows need the tokens of the traced micro-batches: the traced program reports them by "
                "stalloc.tokens(n), padding included"
            )
        return dataclasses.replace(lengths, traced=most, together=together)

    def _count(self, micro_batch: int) -> int:
        return self._work.count(micro_batch)

    def _seconds(self, micro_batches: Sequence[int]) -> list[float]:
        """Seconds of a step with nothing changed."""
        unknown = [each for each in micro_batches if each not in self._known_seconds]
        if unknown:
            found = self._planner.seconds(self._device, [self._work.load(each) for each in unknown])
            self._known_seconds.update(
                (each, (one["step_seconds"], one.get("host_share"))) for each, one in zip(unknown, found)
            )
        return [self._in_way(each, *self._known_seconds[each]) for each in micro_batches]

    def _in_way(self, micro_batch: int, seconds: float, host_share: Optional[float]) -> float:
        """Of a step that takes so long as it was traced."""
        if self._way is None:
            return seconds
        return seconds + self._way.seconds_at(self._count(micro_batch) / self._work.accumulation, seconds, host_share)

    @property
    def _graphs(self) -> Optional[bool]:
        """Whether the way in which it is searched has them."""
        other = self._wish.way
        return None if other is None else other.graphs == (self._way is not None)

    def _more_bytes(self, change: Change) -> int:
        return 0 if self._way is None else self._way.bytes_at(change.scale * max(1.0, change.first))

    def _tokens(self, micro_batch: int, seconds: float) -> float:
        """Tokens a second, over those of the traced micro-batch."""
        traced = self._work.traced
        rows = self._work.rows_of_step(micro_batch) / self._work.rows_of_step(traced)
        self._seconds([traced])
        return rows * self._known_seconds[traced][0] / seconds if seconds > 0 else rows

    # -- Which micro-batches

    def _largest_untouched(self) -> int:
        """The largest micro-batch whose live bytes fit with nothing changed; 0: none."""
        try:
            limit = max(0, self._limit - self._more_bytes(Change()))
            scale = findings.largest_scale(self._first["scaling"], limit)
        except ValueError as error:
            raise FitError(str(error)) from error
        sizes = self._work.sizes()
        lengths = self._work.lengths
        if sizes is not None or lengths is not None:
            allowed = sizes if sizes is not None or lengths is None else range(1, 1 + len(lengths.tokens))
            assert allowed is not None
            return max((size for size in allowed if self._work.largest(size) <= scale + 1e-9), default=0)
        return int(scale * self._work.traced + 1e-9)

    def _size(self, micro_batch: int) -> Change:
        """The size of micro-batches. Where traced steps have one, all are taken to have the gradients of others, so
        that it makes no difference which comes first."""
        several, traced = self._count(micro_batch) > 1, self._work.accumulation
        first, later = self._work.largest_of_step(micro_batch)
        if several and traced > 1:
            return Change(later, first=first / later)
        return Change(max(first, later), accumulated=several, single=not several and traced > 1)

    def _search(self, memory: int, micro_batches: Sequence[int]) -> list[Tried]:
        if self._way is not None and len(micro_batches) > 1:
            return [one for each in micro_batches for one in self._search(memory, [each])]
        sizes = [(self._size(each), self._work.load(each)) for each in micro_batches]
        memory -= max((self._more_bytes(size) for size, _ in sizes), default=0)
        graphs = self._wish.memory if self._wish.graphs else 0
        found = self._planner.search(self._device, memory, sizes, self._wish.bus, graphs=graphs, host=self._wish.host)
        return [self._tried(*each) for each in zip(micro_batches, found)]

    def _try_all(self) -> list[Tried]:
        """Larger ones only where they could be faster than the best so far if nothing had to be changed for them."""
        traced = self._work.traced
        if self._wish.goal is Goal.TRACED:
            return self._reported_search([traced])
        if self._wish.goal is Goal.LONGEST:
            return self._longest()
        sizes = self._work.sizes()
        if sizes is not None:
            return self._promising(sizes)
        largest = self._largest_untouched()
        smaller = {largest - 1, largest // 2} if largest < traced else set()
        known = self._reported_search(sorted({max(1, largest), traced, *smaller} - {0, -1}))
        best = max((each.tokens for each in known if each.fits), default=0.0)
        larger = [each for each in _larger(max(1, largest)) if each != traced]
        self._seconds(larger)
        known += self._reported_search([each for each in larger if self._most_tokens(each) > best * (1 + _AS_FAST)])
        for _ in range(_CLOSER):
            known += self._reported_search(
                _next_to_the_best([(each.micro_batch, each.tokens * each.fits) for each in known])
            )
        return sorted(known, key=lambda each: each.micro_batch)

    def _promising(self, sizes: list[int]) -> list[Tried]:
        """Those that could be the first, by what they would be if nothing had to be changed for them."""
        known: list[Tried] = []
        self._seconds(sizes)
        for size in sorted(sizes, key=self._most_tokens, reverse=True):
            fitting = [each for each in known if each.fits]
            best = max((each.tokens for each in fitting), default=0.0)
            if self._most_tokens(size) < best * (1 - _AS_FAST):
                break
            larger = any(each.micro_batch > size for each in fitting if each.tokens >= best * (1 - _AS_FAST))
            if not larger or self._most_tokens(size) > best * (1 + _AS_FAST):
                known += self._reported_search([size])
        return sorted(known, key=lambda each: each.micro_batch)

    def _longest(self) -> list[Tried]:
        """The largest that fits with any change, and the next one."""
        known: dict[int, Tried] = {}

        def fits(size: int) -> bool:
            if size not in known:
                (known[size],) = self._reported_search([size])
            return known[size].fits

        least = most = max(1, self._largest_untouched())
        while fits(most):
            least, most = most, 2 * most
        while least > 1 and not fits(least):  # rows at the limit: a byte more than it is one too many
            least, most = least // 2, least
        while most - least > 1:
            middle = (least + most) // 2
            least, most = (middle, most) if fits(middle) else (least, middle)
        return [known[size] for size in sorted(known)]

    def _reported_search(self, micro_batches: Sequence[int]) -> list[Tried]:
        if not micro_batches:
            return []
        self._report(f"micro-batch {', '.join(map(str, micro_batches))}: what to recompute for it")
        return self._search(self._limit, micro_batches)

    def _most_tokens(self, micro_batch: int) -> float:
        return self._tokens(micro_batch, *self._seconds([micro_batch]))

    # -- The fastest

    def _fastest(self) -> tuple[Tried, list[Tried]]:
        tried = self._tried_within_limit()
        failed: set[int] = set()  # plans of these, as they were found, hold too much
        while True:
            left = [each for each in tried.values() if each.fits]
            if not left:
                lowest = min(tried.values(), key=lambda each: each.live)
                return self._with_outcome(lowest), list(tried.values())
            first = self._first_of(left)
            if first.outcome is None:
                planned = tried[first.micro_batch] = self._planned(first)
                if planned.fits and planned.change == first.change:
                    continue
                failed.add(first.micro_batch)
                following = self._less(planned)
            else:
                following = self._between(first.micro_batch, failed, tried)
                if following is None or following in tried:
                    return first, list(tried.values())
            if following is not None and following not in tried:
                (tried[following],) = self._reported_search([following])

    def _tried_within_limit(self) -> dict[int, Tried]:
        """Tries all micro-batches, with a limit that allows for the allocator's waste in the first choice."""
        tried = {each.micro_batch: each for each in self._try_all()}
        for _ in range(_ROUNDS):
            left = [each for each in tried.values() if each.fits]
            if not left:
                return tried
            first = self._with_outcome(self._first_of(left))
            assert first.outcome is not None
            held = first.outcome.needed(self._wish.allocator)
            if held <= self._wish.memory:
                return {**tried, first.micro_batch: first}
            if held <= self._wish.memory * (1 + _MUCH):
                return tried
            self._limit = min(int(self._wish.memory * first.live / held), self._limit - 1)
            tried = {each.micro_batch: each for each in self._try_all()}
        return tried

    def _less(self, planned: Tried) -> Optional[int]:
        """A smaller micro-batch: smaller by the part that this plan reserves too much."""
        if self._wish.goal is Goal.TRACED or planned.outcome is None:
            return None
        held = planned.outcome.needed(self._wish.allocator)
        less = min(planned.micro_batch - 1, planned.micro_batch * self._wish.memory // max(1, held))
        sizes = self._work.sizes()
        if sizes is not None:
            return max((size for size in sizes if size <= less), default=None)
        return less if less >= 1 else None

    def _between(self, fits: int, failed: set[int], tried: dict[int, Tried]) -> Optional[int]:
        """Half way to the next size that failed, if that is far."""
        if self._work.sizes() is not None:  # all that matter have been tried
            return None
        too_large = failed | {each for each, one in tried.items() if not one.fits}
        above = [each for each in too_large if each > fits]
        nearest = min(above, default=fits)
        return (fits + nearest) // 2 if nearest - fits > max(1, nearest // _CLOSE) else None

    def _first_of(self, fitting: list[Tried]) -> Tried:
        if self._wish.goal is Goal.LONGEST:
            return max(fitting, key=lambda each: each.micro_batch)
        least = max(each.tokens for each in fitting) * (1 - _AS_FAST)
        alike = [each for each in fitting if each.tokens >= least]
        return min(alike, key=lambda each: (each.accumulation, -each.micro_batch, self._changes(each), each.live))

    def _changes(self, one: Tried) -> int:
        other = self._wish.way is not None and one.graphs == self._wish.way.graphs
        return len(one.change.recompute) + len(one.change.offload) + (one.micro_batch != self._work.traced) + other

    def _tried(self, micro_batch: int, result: dict[str, Any]) -> Tried:
        recompute, offload = tuple(result["recompute"]), tuple(result["offload"])
        state = result["offload_state"]
        size = self._size(micro_batch)
        seconds = self._in_way(micro_batch, result["step_seconds"], result["host_share"])
        return Tried(
            micro_batch=micro_batch,
            accumulation=self._count(micro_batch),
            change=dataclasses.replace(size, recompute=recompute, offload=offload, offload_state=state),
            fits=result["fits"],
            live=result["peak"] + self._more_bytes(size),
            step_seconds=seconds,
            tokens=self._tokens(micro_batch, seconds),
            bound=result["bound"],
            graph_bytes=result["pool"] + result["outside_pool"],
            at_least=result["at_least"],
            host_share=result["host_share"],
            graphs=self._graphs,
            host_bytes=result["host_bytes"],
            host_bound=result["host_bound"],
        )

    def _planned(self, one: Tried) -> Tried:
        """The candidate with its plan; where the plan reserves too much, a new search with a lower limit."""
        live, best, outcome = self._limit, one, self._outcome(one)
        for turn in range(_ROUNDS):
            held = outcome.needed(self._wish.allocator)
            if held <= self._wish.memory:
                return dataclasses.replace(best, outcome=outcome)
            # Twice as much less each time: the memory that is held grows by pages, and may stay for a while.
            live = min(live, best.live) - max(1, held - self._wish.memory) * 2**turn
            (again,) = self._search(live, [best.micro_batch])
            if not again.fits:
                break
            best, outcome = again, self._outcome(again)
        return dataclasses.replace(best, fits=False, outcome=outcome)

    def _with_outcome(self, one: Tried) -> Tried:
        return one if one.outcome is not None else dataclasses.replace(one, outcome=self._outcome(one))

    def _outcome(self, one: Tried) -> Outcome:
        recomputed = len(one.change.recompute)
        self._report(f"micro-batch {one.micro_batch}, {recomputed} layers recomputed: planned")
        found = self._planner.outcome(one.change, self._device, plans=self._wish.allocator == "stalloc")
        more = self._more_bytes(one.change)
        return Outcome(found.live + more, {name: held + more for name, held in found.held.items()})


def _next_to_the_best(known: list[tuple[int, float]]) -> list[int]:
    """Half way from the fastest micro-batch to those next to it. `known`: micro-batches, and how fast each is; 0: it
    does not fit."""
    known = sorted(known)
    best = max(range(len(known)), key=lambda i: known[i][1])
    if known[best][1] <= 0:
        return []
    size = known[best][0]
    nearest = [known[i][0] for i in (best - 1, best + 1) if 0 <= i < len(known)]
    return [(size + other) // 2 for other in nearest if abs(size - other) > 1]


def _larger(largest: int) -> list[int]:
    """Sizes above the largest that fits untouched, up to four times as large."""
    found: list[int] = []
    size = largest
    while size < 4 * largest and len(found) < _MOST_SCALES:
        size = max(size + 1, round(size * 1.25))
        found.append(size)
    return found
