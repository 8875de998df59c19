"""What the planner says of a run with changes: the search over its trace, and the edited trace, planned. Bytes."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Optional

from stalloc.core.json_files import read_object
from stalloc.tools.fitting.device_model import WatchedStep
from stalloc.tools.fitting.step_model import FreeStep
from stalloc.tools.fitting.work import Load, load_of
from stalloc.tools.report import collect

_PLAN_SECONDS = 1  # of work: the plan of the run itself is as good, or better
_PAGES = 0.01  # of what is live: parts of pages that are not used
ALLOCATORS = ("stalloc", "expandable", "native")


@dataclasses.dataclass(frozen=True)
class Change:
    """Of a traced run. Layers have the planner's names; `scale` is of the micro-batch, `first` that of a step's first
    one, over those behind it."""

    scale: float = 1.0
    recompute: tuple[str, ...] = ()
    offload: tuple[str, ...] = ()
    offload_state: bool = False
    accumulated: bool = False  # a traced step had one micro-batch, now there are several
    single: bool = False  # a traced step had several, now there is one
    first: float = 1.0


@dataclasses.dataclass(frozen=True)
class Outcome:
    """Of the run with a change: `held` is by allocator, "stalloc" where it was planned."""

    live: int
    held: dict[str, int]

    def needed(self, allocator: str) -> int:
        """With how much it trains. At the limit PyTorch gives pages of expandable segments back that are wholly free,
        and goes on: what is left is little more than what is live."""
        held = self.held[allocator]
        return min(held, int(self.live * (1 + _PAGES))) if allocator == "expandable" else held


@dataclasses.dataclass(frozen=True)
class TracedRun:
    """A trace, and the one of the same program with another micro-batch, `ratio` times as large, if there is one: of
    `rows` times as many rows, or of rows of another length."""

    trace: Path
    beside: Optional[Path] = None
    ratio: float = 0.0
    rows: float = 1.0

    def most_tokens(self) -> Optional[int]:
        """Of the traced micro-batches, padding included; None: the program told of none. CollectError."""
        return _most_tokens(self.trace)

    def free_steps(self, accumulation: int = 1) -> list[FreeStep]:
        """Of both traces: what ran behind them, untraced. CollectError. `accumulation`: micro-batches of a step, where
        the program told of no tokens."""
        most = self.most_tokens()
        found = _free_steps(self.trace, most, 1.0, accumulation)
        if self.beside is not None:
            found += _free_steps(self.beside, most, self.ratio, accumulation, self.rows)
        return found

    def watched_steps(self) -> list[WatchedStep]:
        """Of both traces: those in which the device was watched, where the program told of tokens. CollectError."""
        most = self.most_tokens()
        if most is None:
            return []
        found = _watched_steps(self.trace, most, 1.0)
        return found if self.beside is None else found + _watched_steps(self.beside, most, self.rows)

    def traced_loads(self) -> list[list[Load]]:
        """Of each trace its iterations; none where the program told of no tokens. CollectError."""
        most = self.most_tokens()
        if most is None:
            return []
        found = [_traced_loads(self.trace, most, 1.0)]
        return found if self.beside is None else [*found, _traced_loads(self.beside, most, self.rows)]


class Planner:
    """The planner's process for a traced run: `with Planner(run) as planner:`. CollectError."""

    def __init__(self, run: TracedRun) -> None:
        self._session = collect.Session(run.trace, run.beside, run.ratio)

    def __enter__(self) -> Planner:
        return self

    def __exit__(self, *_: object) -> None:
        self._session.close()

    def traced(self, bus: float = 0.0, candidates: bool = False) -> dict[str, list[dict[str, Any]]]:
        """What was traced, by device: of the run as `devices`, and of the one beside it as `beside`.

        Args:
            bus: bytes a second to the host; 0: nothing is offloaded.
            candidates: what choosing all layers of a kind would do, too.
        """
        found: dict[str, list[dict[str, Any]]] = self._session.ask("traced", bus=bus, candidates=candidates)
        return found

    def search(
        self, device: int, memory: int, sizes: Sequence[Change], bus: float, graphs: int = 0
    ) -> list[dict[str, Any]]:
        """The cheapest choice for so many live bytes, for each of `sizes` of micro-batches, with nothing chosen yet.
        `graphs`: bytes into which graphs of all passes have to fit; 0: there are none."""
        found: list[dict[str, Any]] = self._session.ask(
            "search",
            device=device,
            memory=max(0, memory),
            sizes=[_size(size) for size in sizes],
            bus=bus,
            graphs_memory=graphs,
        )["results"]
        return found

    def outcome(self, change: Change, device: int, plans: bool = True) -> Outcome:
        """The edited run goes through the planner; without `plans` only what PyTorch's allocators would hold is told,
        which takes a tenth of the time."""
        chosen = {"recompute": change.recompute, "offload": change.offload, "offload_state": change.offload_state}
        work = {"plans": plans, "time_limit": _PLAN_SECONDS}
        return Outcome(**self._session.ask("plan", device=device, **_size(change), **chosen, **work))


def _size(change: Change) -> dict[str, Any]:
    return {name: getattr(change, name) for name in ("scale", "first", "accumulated", "single")}


def _most_tokens(trace: Path) -> Optional[int]:
    most = _beside(trace, ".tokens.json").get("most", [])
    return max(most) if most else None


def _traced_loads(trace: Path, most: int, rows: float) -> list[Load]:
    told = _beside(trace, ".tokens.json").get("iterations", [])
    try:
        return [load_of([tokens / most for tokens in iteration], rows) for iteration in told]
    except TypeError as error:
        file = trace.with_suffix(".tokens.json")
        raise collect.CollectError(f"{file}: expected the tokens of iterations, found {told!r:.80}") from error


def _free_steps(trace: Path, most: Optional[int], size: float, count: int, rows: float = 1.0) -> list[FreeStep]:
    """`size`, `count`: of micro-batches whose tokens are not known."""
    told = _beside(trace, ".steps.json")
    seconds, tokens_of = told.get("seconds", []), told.get("tokens", [])
    later = len(seconds) // 2  # what is new to a program is loaded and compiled in the first of them
    return [
        FreeStep(seconds, len(tokens), sum(tokens) / most, tuple(each / most for each in tokens), rows)
        if tokens and most
        else FreeStep(seconds, count, count * size)
        for seconds, tokens in zip(seconds[later:], tokens_of[later:])
    ]


def _watched_steps(trace: Path, most: int, rows: float) -> list[WatchedStep]:
    """Of a trace's rank; where other ranks beside it did the same in less time, that counts."""
    steps = trace.parent.glob("rank*.steps.json")
    ranks = {path.with_name(path.name.replace(".steps.json", trace.suffix)) for path in steps} - {trace}
    others = [_of_rank(rank, most, rows) for rank in ranks]
    own = _of_rank(trace, most, rows)
    return [step.least([other[i] for other in others if i < len(other)]) for i, step in enumerate(own)]


def _of_rank(trace: Path, most: int, rows: float) -> list[WatchedStep]:
    try:
        return [
            WatchedStep.of(step, load_of([tokens / most for tokens in step["tokens"]], rows))
            for step in _beside(trace, ".steps.json").get("device", [])
        ]
    except (KeyError, TypeError, ValueError, IndexError) as error:
        file = trace.with_suffix(".steps.json")
        raise collect.CollectError(f"{file}: expected what the device did in a step, found {error!r}") from error


def _beside(trace: Path, suffix: str) -> dict[str, Any]:
    """What lies beside a trace; nothing where there is none."""
    path = trace.with_suffix(suffix)
    try:
        return read_object(path) if path.is_file() else {}
    except (OSError, ValueError) as error:
        raise collect.CollectError(str(error)) from error
