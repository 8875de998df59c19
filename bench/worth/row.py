"""One program: traced, searched under each allocator, the fastest of any tried under all, measured alternately."""

from __future__ import annotations

import argparse
import dataclasses
import json
import statistics
import time
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import Any, Optional

from attempts import GRAPHS, OFFLOAD, Attempts
from by_hand import BUDGET, BY_HAND, EXPANDABLE, NATIVE, search_by_hand
from kinds import KINDS
from known import Configuration, Known
from launch import Launcher
from proposals import Proposals
from search import Attempt, Outcome, best_of, search
from step_ratios import median_interval
from traces import Traces

_LEFT = 256 << 20  # bytes of a card that are left in addition to those of no allocator
# Where time runs out, the last ones have no attempts.
CONTENDERS = (EXPANDABLE, "stalloc", OFFLOAD, GRAPHS, "expandable", NATIVE, BUDGET, "native")
OURS = {OFFLOAD: "stalloc", GRAPHS: "stalloc"}  # their allocator
_SEARCHED = ("native", "expandable", "stalloc")  # by one search, with the same knobs: the best of one is tried by all


class Row:
    def __init__(
        self, chosen: argparse.Namespace, program: str, directory: Path, known: Known, launcher: Launcher
    ) -> None:
        self._chosen, self._program, self._launcher = chosen, program, launcher
        self._directory, self._known = directory / program, known
        self._directory.mkdir(parents=True, exist_ok=True)
        ranks = launcher.ranks(program)
        if chosen.device == "cuda" and ranks > len(chosen.devices.split(",")):
            raise RuntimeError(f"{program} needs {ranks} GPUs: --devices {chosen.devices}")
        self._size = _micro_batch if KINDS[program].longest else None

    def measure(self) -> dict[str, Any]:
        begin = time.monotonic()
        traces = Traces(
            self._program, self._directory, lambda words, mode: self._launcher.run(self._program, words, mode)
        )
        traced_seconds = time.monotonic() - begin
        limit = self._chosen.card - traces.outside - (_LEFT if self._chosen.device == "cuda" else 0)
        self._proposals = Proposals(self._chosen, self._program, traces.traced_run())
        self._searches = {
            OFFLOAD: dataclasses.replace(self._proposals, bus=traces.bus, _known={}),
            GRAPHS: dataclasses.replace(self._proposals, way=traces.way(limit), _known={}),
        }
        made = Attempts(self._chosen, self._program, self._directory, self._known, self._launcher)
        attempts: dict[str, list[Attempt[Configuration]]] = {}
        for name in sorted(self._chosen.allocators, key=CONTENDERS.index):
            attempts[name] = self._searched(name, limit, lambda one, name=name: made.in_time(one, name))  # type: ignore[misc]
        same = {name: tried for name, tried in attempts.items() if name in _SEARCHED}
        for name in same:
            self._try_the_best(same, name, made)
        best = {name: best_of(tried, self._size) for name, tried in attempts.items()}
        runs = self._rounds({name: one for name, one in best.items() if one is not None}, made)
        return {
            "program": self._program,
            "longest": KINDS[self._program].longest,
            "room_bytes": limit,
            "allocators": {name: summary(name, attempts[name], best[name], runs.get(name, [])) for name in attempts},
            "traces": traces.measured,
            "trace_seconds": traced_seconds,
            "wall_seconds": time.monotonic() - begin,
            "processes": self._launcher.processes,
        }

    def _searched(
        self, name: str, limit: int, attempt: Callable[[Configuration], Optional[Outcome]]
    ) -> list[Attempt[Configuration]]:
        if name in BY_HAND:
            return search_by_hand(name, self._program, self._chosen.size, attempt)
        if name == GRAPHS and self._searches[GRAPHS].way is None:
            return []
        proposals, allocator = self._searches.get(name, self._proposals), OURS.get(name, name)
        return search(limit, lambda memory: proposals(allocator, memory), attempt, self._chosen.attempts)

    def _try_the_best(self, attempts: dict[str, list[Attempt[Configuration]]], allocator: str, made: Attempts) -> None:
        """What was the best under any allocator, under this one."""
        best = best_of([each for tried in attempts.values() for each in tried], self._size)
        if best is None or any(each.configuration == best.configuration for each in attempts[allocator]):
            return
        outcome = made.in_time(best.configuration, allocator)
        if outcome is not None:
            attempts[allocator].append(Attempt(best.assumed, best.configuration, outcome))

    def _rounds(self, best: dict[str, Attempt[Configuration]], made: Attempts) -> dict[str, list[Outcome]]:
        """The best attempts and their repetitions; each allocator has each place once."""
        found = {name: [one.outcome] for name, one in best.items()}
        names = list(best)
        for number in range(self._chosen.rounds if names else 0):
            first = number % len(names)
            for name in names[first:] + names[:first]:
                outcome = made.made(best[name].configuration, name)
                if outcome.fits:
                    found[name].append(outcome)
        return found


def _micro_batch(configuration: Configuration) -> int:
    return configuration.micro_batch


def _steps(runs: list[Outcome], name: str) -> list[float]:
    return [*chain.from_iterable((run.figures or {})[name] for run in runs)]


def _counted(runs: list[Outcome]) -> dict[str, list[float]]:
    """Of the steps that count, in the order of their seconds."""
    found: dict[str, list[float]] = {}
    for run in runs:
        figures = run.figures or {}
        for name, counts in (figures.get("counted") or {}).items():
            found.setdefault(name, []).extend(counts[-len(figures["seconds"]) :])
    return found


def summary(
    allocator: str,
    attempts: list[Attempt[Configuration]],
    best: Optional[Attempt[Configuration]],
    runs: list[Outcome],
) -> dict[str, Any]:
    """For the JSON: what was attempted, and the best with its figures, of all its `runs`. Bytes, seconds."""
    tried = [
        {"assumed": each.assumed, "configuration": each.configuration.worded(), "fits": each.outcome.fits,
         "tokens_per_second": each.outcome.tokens_per_second, "held_bytes": each.outcome.held,
         "alloc_retries": (each.outcome.figures or {}).get("alloc_retries")}
        for each in attempts
    ]  # fmt: skip
    if best is None:
        return {"attempts": tried, "best": None}
    configuration, figures = best.configuration, best.outcome.figures or {}
    document = json.loads(configuration.document)
    seconds, tokens = _steps(runs, "seconds"), _steps(runs, "tokens")
    return {
        "attempts": tried,
        "best": configuration.worded(),
        "micro_batch": configuration.micro_batch,
        "recomputed": list(configuration.recompute),
        "offloaded": list(configuration.offload),
        "first_try": attempts[0].outcome.fits,
        "tokens_per_second": {
            "mean": sum(tokens) / sum(seconds),
            "interval": median_interval([count / second for count, second in zip(tokens, seconds)]),
            "steps": len(seconds),
        },
        "seconds": seconds,
        "tokens": tokens,
        "counted": _counted(runs),
        "held_bytes": best.outcome.held,
        "live_bytes": figures.get("live_bytes", 0),
        "predicted": _predicted(allocator, document) if "predicted" in document else None,
        "step_seconds": statistics.fmean(seconds),
    }


def _predicted(allocator: str, document: dict[str, Any]) -> dict[str, Any]:
    """Of a fit.json."""
    found = document["predicted"]
    return {
        "live_bytes": found["peak_live_bytes"],
        "held_bytes": found["held_bytes"].get(OURS.get(allocator, allocator)),
        **{name: found.get(name) for name in ("step_seconds", "step_at_least", "step_bound", "host_share")},
        "bound": document["bound"],
    }
