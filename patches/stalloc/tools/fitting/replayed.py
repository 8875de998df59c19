"""What the planner says of a run with changes: the search over its trace, and the edited trace, planned. Bytes."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Optional

from stalloc.core.json_files import read_object
from stalloc.tools.fitting.work import Load
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


class Planner:
    """The planner's process for a traced run: `with Planner(run) as planner:`. CollectError."""

    def __init__(self, run: TracedRun) -> None:
        self._session = collect.Session(run.trace, run.beside, run.ratio)
        self._rows = run.rows

    def __enter__(self) -> Planner:
        return self

    def __exit__(self, *_: object) -> None:
        self._session.close()

    def traced(self, bus: float = 0.0, candidates: bool = False) -> dict[str, Any]:
        """What was traced, by device: of the run as `devices`, and of the one beside it as `beside`.

        Args:
            bus: bytes a second to the host; 0: nothing is offloaded.
            candidates: what choosing all layers of a kind would do, too.
        """
        found: dict[str, Any] = self._session.ask("traced", bus=bus, candidates=candidates)
        return found

    def cost(self, device: int, micro_batches: int, of_length: bool = False, packed: bool = False) -> dict[str, Any]:
        """Learns how long steps take from both traces and the steps that ran untraced after them, for `seconds` and
        `search`. Tells what it has found of micro-batches: `usual`, the mean over the largest, and whether attention
        takes their packed rows `together` for one.

        Args:
            micro_batches: of a traced step.
            of_length: sizes are lengths of sequences.
            packed: rows lie one after the other, without padding.
        """
        rows = {"rows": self._rows, "packed": packed}
        found: dict[str, Any] = self._session.ask(
            "cost", device=device, micro_batches=micro_batches, of_length=of_length, **rows
        )
        return found

    def seconds(self, device: int, loads: Sequence[Load], recompute: Sequence[str] = ()) -> list[dict[str, Any]]:
        """`step_seconds` of steps with these loads; `at_least`: it may be more. REQUIRES: cost."""
        told = [load.told() for load in loads]
        found: list[dict[str, Any]] = self._session.ask("seconds", device=device, loads=told, recompute=recompute)[
            "steps"
        ]
        return found

    def search(
        self, device: int, memory: int, sizes: Sequence[tuple[Change, Load]], bus: float, graphs: int = 0
    ) -> list[dict[str, Any]]:
        """The cheapest choice for so many live bytes, for each of `sizes` of micro-batches, with nothing chosen yet;
        and what its step takes, as `seconds`. `graphs`: bytes into which graphs of all passes have to fit; 0: there
        are none."""
        found: list[dict[str, Any]] = self._session.ask(
            "search",
            device=device,
            memory=max(0, memory),
            sizes=[{**_size(size), "load": load.told()} for size, load in sizes],
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
    path = trace.with_suffix(".tokens.json")
    try:
        most = read_object(path).get("most", []) if path.is_file() else []
    except (OSError, ValueError) as error:
        raise collect.CollectError(str(error)) from error
    return max(most) if most else None
