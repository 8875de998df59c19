"""The planner's answers for a run with changes: a search over its trace, and the plan of the edited trace. Bytes."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Optional

from stalloc.core.json_files import read_object
from stalloc.tools.fitting.work import Load
from stalloc.tools.report import collect

_PLAN_SECONDS = 1  # of work: the run's own plan is at least as good
_PAGES = 0.01  # of the live bytes: unused parts of pages
ALLOCATORS = ("stalloc", "expandable", "native")


@dataclasses.dataclass(frozen=True)
class Change:
    """A change of a traced run. Layers have the planner's names; `scale` is of the micro-batch, `first` that of a
    step's first one, over the later ones."""

    scale: float = 1.0
    recompute: tuple[str, ...] = ()
    offload: tuple[str, ...] = ()
    offload_state: bool = False
    accumulated: bool = False  # a traced step had one micro-batch, now there are several
    single: bool = False  # a traced step had several, now there is one
    first: float = 1.0


@dataclasses.dataclass(frozen=True)
class Outcome:
    """The result of a change: `held` is by allocator, "stalloc" where it was planned."""

    live: int
    held: dict[str, int]

    def needed(self, allocator: str) -> int:
        """The bytes that it needs to train. At the limit PyTorch returns the wholly free pages of expandable segments
        and continues: little more than the live bytes is left."""
        held = self.held[allocator]
        return min(held, int(self.live * (1 + _PAGES))) if allocator == "expandable" else held


@dataclasses.dataclass(frozen=True)
class Bus:
    """Between a GPU and the host, one way."""

    bytes_per_second: float = 25e9  # what PCIe 4.0 x16 moves in practice
    measured: bool = False
    host_bytes: Optional[int] = None  # that the host had for copies of this process; None: not known

    @classmethod
    def measured_with(cls, trace: Path) -> Bus:
        """The slower direction of what was measured after the trace (rank00000.bus.json). CollectError."""
        path = trace.with_suffix(".bus.json")
        if not path.is_file():
            return cls()
        try:
            content = read_object(path)
            speed = min(float(content[direction]) for direction in ("to_host", "to_device"))
            host = content.get("host_bytes")
            host = None if host is None else int(host)
        except (OSError, KeyError, TypeError, ValueError) as error:
            raise collect.CollectError(f"{path}: expected bytes a second, to_host and to_device: {error!r}") from error
        if not 0 < speed < float("inf"):
            raise collect.CollectError(f"{path}: expected more than 0 bytes a second, found {speed}")
        return cls(speed, measured=True, host_bytes=host)


@dataclasses.dataclass(frozen=True)
class TracedRun:
    """A trace, and optionally one of the same program with a micro-batch `ratio` times as large: it has `rows` times as
    many rows, or rows of another length."""

    trace: Path
    beside: Optional[Path] = None
    ratio: float = 0.0
    rows: float = 1.0

    def most_tokens(self) -> Optional[int]:
        """The most tokens of a traced micro-batch, padding included; None: the program reported none. CollectError."""
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
        """The traced facts by device: `devices` for the run, `beside` for the second trace.

        Args:
            bus: bytes a second to the host; 0: nothing is offloaded.
            candidates: also the effect of choosing all layers of a kind.
        """
        found: dict[str, Any] = self._session.query("traced", bus=bus, candidates=candidates)
        return found

    def cost(self, device: int, micro_batches: int, of_length: bool = False, packed: bool = False) -> dict[str, Any]:
        """Learns how long steps take from both traces and the steps that ran untraced after them, for `seconds` and
        `search`. Returns `usual`, the mean micro-batch over the largest, and whether attention
        takes their packed rows `together` for one.

        Args:
            micro_batches: the number in a traced step.
            of_length: sizes are lengths of sequences.
            packed: rows lie one after the other, without padding.
        """
        rows = {"rows": self._rows, "packed": packed}
        found: dict[str, Any] = self._session.query(
            "cost", device=device, micro_batches=micro_batches, of_length=of_length, **rows
        )
        return found

    def seconds(self, device: int, loads: Sequence[Load], recompute: Sequence[str] = ()) -> list[dict[str, Any]]:
        """`step_seconds` of steps with these loads; `at_least`: it may be more. REQUIRES: cost."""
        wanted = [load.as_json() for load in loads]
        found: list[dict[str, Any]] = self._session.query("seconds", device=device, loads=wanted, recompute=recompute)[
            "steps"
        ]
        return found

    def search(
        self,
        device: int,
        memory: int,
        sizes: Sequence[tuple[Change, Load]],
        bus: float,
        *,
        graphs: int = 0,
        host: Optional[int] = None,
    ) -> list[dict[str, Any]]:
        """The cheapest choice for so many live bytes, for each of `sizes` of micro-batches, with nothing chosen yet;
        and what its step takes, as `seconds`. `graphs`: bytes into which graphs of all passes have to fit; 0: there
        are none. `host`: bytes of the host for what is offloaded; None: whatever it takes."""
        found: list[dict[str, Any]] = self._session.query(
            "search",
            device=device,
            memory=max(0, memory),
            sizes=[{**_size(size), "load": load.as_json()} for size, load in sizes],
            bus=bus,
            graphs_memory=graphs,
            host_memory=0 if host is None else max(1, host),
        )["results"]
        return found

    def outcome(self, change: Change, device: int, plans: bool = True) -> Outcome:
        """The edited run goes through the planner; without `plans` it gives only the bytes that PyTorch's allocators
        would reserve, which takes a tenth of the time."""
        chosen = {"recompute": change.recompute, "offload": change.offload, "offload_state": change.offload_state}
        work = {"plans": plans, "time_limit": _PLAN_SECONDS}
        return Outcome(**self._session.query("plan", device=device, **_size(change), **chosen, **work))


def _size(change: Change) -> dict[str, Any]:
    return {name: getattr(change, name) for name in ("scale", "first", "accumulated", "single")}


def _most_tokens(trace: Path) -> Optional[int]:
    path = trace.with_suffix(".tokens.json")
    try:
        most = read_object(path).get("most", []) if path.is_file() else []
    except (OSError, ValueError) as error:
        raise collect.CollectError(str(error)) from error
    return max(most) if most else None
