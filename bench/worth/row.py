"""One program: traced, searched under each allocator, the fastest of any tried under all, measured in turns."""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path
from typing import Any, Optional

from attempts import MODES, Attempts
from kinds import KINDS
from known import Configuration, Known
from launch import Launcher
from proposals import Proposals
from search import Attempt, Outcome, best_of, first_assumption, search
from step_ratios import median_interval
from traces import Traces

_LEFT = 256 << 20  # bytes of a card that are left beside what was found to be no allocator's
# Of attempts: stalloc's plan is made while expandable_segments trains. Where time runs out, the last has none.
_ORDER = ("expandable", "stalloc", "native")


class Row:
    """`trace`, `propose` (needs no GPU), `measure`, in this order."""

    def __init__(
        self, chosen: argparse.Namespace, program: str, directory: Path, known: Known, launcher: Launcher
    ) -> None:
        self.chosen, self.program, self.kind, self.launcher = chosen, program, KINDS[program], launcher
        self.directory = directory / program
        self.directory.mkdir(parents=True, exist_ok=True)
        self.attempts = Attempts(chosen, program, self.directory, known, launcher)
        devices = chosen.devices.split(",") if chosen.device == "cuda" else []
        self._groups = [devices[i : i + self.kind.ranks] for i in range(0, len(devices), self.kind.ranks)] or [[]]
        if chosen.device == "cuda" and chosen.size == "real":
            self._groups = [group for group in self._groups if len(group) == self.kind.ranks]
        if not self._groups:
            raise RuntimeError(f"{program} needs {self.kind.ranks} GPUs: --devices {chosen.devices}")
        self._size = _micro_batch if self.kind.longest else None
        self._names = sorted(chosen.allocators, key=_ORDER.index)
        self._traced_seconds = 0.0

    def prepare(self) -> None:
        """Processes that will trace start, and import."""
        self.launcher.prepare(self.program, self._groups[0])

    def trace(self) -> None:
        begin = time.monotonic()

        def run(words: list[str], mode: dict[str, str]) -> tuple[int, list[dict[str, Any]], str]:
            found = self.launcher.run(self.program, self._groups[0], words, mode)
            self.prepare()  # the other trace, or an attempt
            return found

        self._traces = Traces(self.program, self.directory, run)
        self._traced_seconds = time.monotonic() - begin
        left = self._traces.outside + (_LEFT if self.chosen.device == "cuda" else 0)
        self._room = self.chosen.card - left
        self._proposals = Proposals(self.chosen, self.program, self._traces.traced_run())

    def propose(self) -> None:
        """The first configuration of each allocator."""
        self._proposals.prepare(self._names, first_assumption(self._room))

    def measure(self) -> dict[str, Any]:
        begin = time.monotonic()
        self.attempts.begin()
        for name in self._names:
            self.launcher.prepare(self.program, self._group_of(name), _allocation(name))
        if "stalloc" in self._names:
            first = self._proposals("stalloc", first_assumption(self._room))
            if first is not None:
                self.attempts.plan_ahead(first, self._group_of("stalloc"))
        attempts = self._side_by_side(self._search)
        self._side_by_side(lambda name, devices: self._try_the_best(attempts, name, devices))
        best = {name: best_of(tried, self._size) for name, tried in attempts.items()}
        runs = self._turns({name: one for name, one in best.items() if one is not None})
        return {
            "program": self.program,
            "longest": self.kind.longest,
            "room_bytes": self._room,
            "allocators": {name: told(name, attempts[name], best[name], runs.get(name, [])) for name in attempts},
            "traces": self._traces.told,
            "trace_seconds": self._traced_seconds,
            "wall_seconds": time.monotonic() - begin,
            "processes": self.launcher.processes,
        }

    def _group_of(self, name: str) -> list[str]:
        return self._groups[self._names.index(name) % len(self._groups)]

    def _side_by_side(self, work: Callable[[str, list[str]], Any]) -> dict[str, Any]:
        """Each allocator on GPUs of its own, as far as there are enough."""
        with ThreadPoolExecutor(len(self._groups)) as pool:
            return dict(zip(self._names, pool.map(lambda name: work(name, self._group_of(name)), self._names)))

    def _search(self, allocator: str, devices: list[str]) -> list[Attempt[Configuration]]:
        return search(
            self._room,
            lambda memory: self._proposals(allocator, memory),
            lambda configuration: self._attempt(configuration, allocator, devices),
            self.chosen.attempts,
        )

    def _attempt(self, configuration: Configuration, allocator: str, devices: list[str]) -> Optional[Outcome]:
        found = self.attempts.in_time(configuration, allocator, devices)
        self.launcher.prepare(self.program, devices, _allocation(allocator))  # one more may come
        return found

    def _try_the_best(
        self, attempts: dict[str, list[Attempt[Configuration]]], allocator: str, devices: list[str]
    ) -> None:
        """What was the best under any allocator, under this one."""
        every = [each for tried in list(attempts.values()) for each in list(tried)]
        best = best_of(every, self._size)
        if best is None or any(each.configuration == best.configuration for each in attempts[allocator]):
            return
        outcome = self._attempt(best.configuration, allocator, devices)
        if outcome is not None:
            attempts[allocator].append(Attempt(best.assumed, best.configuration, outcome))

    def _turns(self, best: dict[str, Attempt[Configuration]]) -> dict[str, list[Outcome]]:
        """The best attempts and their repetitions; each allocator has each GPU and each place in turn."""
        found = {name: [one.outcome] for name, one in best.items()}
        names = list(best)
        for number in range(self.chosen.rounds):
            order = names[number % len(names) :] + names[: number % len(names)] if names else []
            for place, name in enumerate(order):
                devices = self._groups[(number + place) % len(self._groups)]
                outcome = self.attempts.made(best[name].configuration, name, devices)
                if outcome.fits:
                    found[name].append(outcome)
        return found


def _allocation(name: str) -> str:
    return MODES.get(name, {}).get("PYTORCH_CUDA_ALLOC_CONF", "")


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


def told(
    allocator: str,
    attempts: list[Attempt[Configuration]],
    best: Optional[Attempt[Configuration]],
    runs: list[Outcome],
) -> dict[str, Any]:
    """For the JSON: what was attempted, and the best with its figures, of all its `runs`. Bytes, seconds."""
    tried = [
        {"assumed": each.assumed, "configuration": each.configuration.told(), "fits": each.outcome.fits,
         "tokens_per_second": each.outcome.tokens_per_second, "held_bytes": each.outcome.held,
         "alloc_retries": (each.outcome.figures or {}).get("alloc_retries")}
        for each in attempts
    ]  # fmt: skip
    if best is None:
        return {"attempts": tried, "best": None}
    configuration, figures = best.configuration, best.outcome.figures or {}
    document = json.loads(configuration.document)
    predicted = document["predicted"]
    seconds, tokens = _steps(runs, "seconds"), _steps(runs, "tokens")
    return {
        "attempts": tried,
        "best": configuration.told(),
        "micro_batch": configuration.micro_batch,
        "recomputed": list(configuration.recompute),
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
        "predicted": {
            "live_bytes": predicted["peak_live_bytes"],
            "held_bytes": predicted["held_bytes"].get(allocator),
            "step_seconds": predicted["step_seconds"],
            "step_at_least": predicted["step_at_least"],
            "bound": document["bound"],
        },
        "step_seconds": statistics.fmean(seconds),
    }
