"""The second figure: the least memory in which a program trains, for each allocator.

A cap is what the allocator may hold: bytes that it has taken from the driver for tensors, PyTorch's "reserved" bytes
(under stalloc with its arena). What else the process uses of the GPU, `outside`, is left to it besides: CUDA's context,
kernels, libraries' and communicators' own memory. It is measured in a run alone on the free card as total - free -
reserved, the largest of all steps; that of the native run (else of the first allocator) is granted to all of them, so
that who needs more for itself has less for tensors. The rest of the GPU, total - cap - outside, is taken before the
program begins. Nothing else may use the GPU.

The live peak is that of PyTorch's allocated bytes on the free card, the least of all allocators' (blocks that are not
split count whole, and not all allocators split alike).
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Mapping, Sequence
from typing import Any, Callable, Optional

from allocators import Allocators, CardError, say
from card_document import Document
from documents import GIB, aligned, cell
from program_process import FAILED, OUT_OF_MEMORY, TOO_SLOW, TRAINED, Run
from step_ratios import arena_changes, compare


def least(low: int, high: int, resolution: int, trains: Callable[[int], bool]) -> int:
    """By bisection, in bytes: the least cap above `low`, in which nothing trains, that was found to do, or `high`, in
    which the program trains. What trains in a cap is taken to train in any larger one."""
    while high - low > max(resolution, 1):
        middle = (low + high) // 2
        if trains(middle):
            high = middle
        else:
            low = middle
    return high


def mean_ratio(own: Sequence[float], free: Sequence[float], warm_up: int) -> Optional[float]:
    """Mean step over the mean of the same steps on the free card. None: none that counts was made."""
    found = compare(own, free, warm_up)
    return None if found is None else float(found["ratio_of_sums"])


def is_too_slow(own: Sequence[float], free: Sequence[float], warm_up: int, most: float) -> bool:
    """Whatever steps are still to come: those so far took longer than all may."""
    return sum(own[warm_up:]) > most * sum(free[warm_up:])


class Least:
    """Runs on the free card, then attempts in less memory."""

    def __init__(self, chosen: argparse.Namespace, allocators: Allocators, document: Document) -> None:
        self._chosen, self._allocators, self._document = chosen, allocators, document
        self._free: dict[str, Run] = {}
        self._attempts: list[dict[str, Any]] = []
        self._found: dict[str, dict[str, Any]] = {}
        self._began = time.monotonic()

    def measure(self) -> int:
        """Exit code."""
        if "stalloc" in self._chosen.allocators:
            self._allocators.prepare()
        self._run_free()
        if self._chosen.caps:
            self._try_caps()
        else:
            self._bisect()
        self._write(complete=True)
        self._print()
        return 0

    def _run_free(self) -> None:
        for name in self._chosen.allocators:
            say(f"{name} on the free card")
            with self._allocators.running(name) as process:
                run = process.finish()
            if run.outcome not in (TRAINED, OUT_OF_MEMORY):
                raise CardError(f"{name} on the free card: {run.outcome}: {run.message}")
            if run.outcome == TRAINED and len(run.seconds) <= self._chosen.warm_up:
                raise CardError(f"{len(run.seconds)} steps leave nothing after --warm-up {self._chosen.warm_up}")
            self._free[name] = run
            say(f"{name} on the free card: {run.outcome}, held {(run.held or 0) / GIB:.3f} GiB")
            self._write(complete=False)
        if not self._trained():
            raise CardError("the program does not fit the free card under any allocator")
        if not self._live():
            raise CardError("the program has used no memory of the GPU")

    def _trained(self) -> dict[str, Run]:
        return {name: run for name, run in self._free.items() if run.outcome == TRAINED}

    def _live(self) -> int:
        """Bytes."""
        return min(run.live or 0 for run in self._trained().values())

    def _outside(self) -> int:
        """Bytes that every allocator's process has besides its cap."""
        trained = self._trained()
        chosen = trained.get("native", next(iter(trained.values())))
        return int(chosen.end["outside_bytes"])

    def _bisect(self) -> None:
        live = self._live()
        for name, run in self._trained().items():
            held = run.held or 0

            def trains(cap: int, name: str = name) -> bool:
                return self._attempt(name, cap, stops=True)["trains"]

            cap = least(live, held, round(live * self._chosen.resolution / 100), trains)
            self._found[name] = {
                **{"least_bytes": cap, "least_over_live": cap / live},
                **{"held_bytes": held, "held_over_live": held / live},
            }
            say(f"{name}: {cap / live:.4f} x live")
            self._write(complete=False)

    def _try_caps(self) -> None:
        full: set[str] = set()  # those that ran out of memory, where caps get smaller and smaller
        for share in self._chosen.caps:
            for name in [each for each in self._trained() if each not in full]:
                if self._is_over():
                    break
                done = self._attempt(name, round(share * self._live()), stops=False)
                if done["outcome"] == OUT_OF_MEMORY and self._chosen.of_card is not None:
                    full.add(name)
            self._compare_at(share)
            self._write(complete=False)

    def _is_over(self) -> bool:
        budget = self._chosen.budget_s
        return budget is not None and time.monotonic() - self._began > budget

    def _compare_at(self, share: float) -> None:
        """Fills in the ratios to expandable_segments in the same cap."""
        cap = round(share * self._live())
        here = [each for each in self._attempts if each["cap_bytes"] == cap]
        peer = next((each for each in here if each["allocator"] == "expandable"), None)
        for each in here:
            pair = (each, peer) if peer and peer["outcome"] == each["outcome"] == TRAINED else None
            each["over_expandable"] = (
                None if pair is None else compare(*(one["step_seconds"] for one in pair), self._chosen.warm_up)
            )

    def _attempt(self, name: str, cap: int, stops: bool) -> dict[str, Any]:
        chosen, free = self._chosen, self._free[name].seconds
        slow = (lambda own: is_too_slow(own, free, chosen.warm_up, chosen.step_ratio)) if stops else (lambda _: False)
        with self._allocators.running(name, card=cap + self._outside()) as process:
            run = process.finish(slow)
        attempt = {**attempt_of(name, cap, run, free, chosen), "cap_over_live": cap / self._live()}
        self._attempts.append(attempt)
        ratio = attempt["mean_step_ratio"]
        say(
            f"{name} in {attempt['cap_over_live']:.4f} x live: {attempt['outcome']}"
            f"{'' if ratio is None else f', {ratio:.3f} x its own steps'}, {run.retries} retries"
        )
        if attempt["outcome"] == FAILED:
            say(attempt["message"])
        self._write(complete=False)
        return attempt

    def _write(self, complete: bool) -> None:
        free = {name: run.document() for name, run in self._free.items()}
        known = {"live_bytes": self._live(), "outside_bytes": self._outside()} if self._trained() else {}
        figures = {"free": free, **known, "least": self._found, "attempts": self._attempts}
        self._document.write(**figures, complete=complete)

    def _print(self) -> None:
        device = next(iter(self._trained().values())).end["device"]
        print(f"{' '.join(self._chosen.program)} on {device}: live peak {self._live() / GIB:.3f} GiB")
        print(aligned(cap_rows(self._attempts) if self._chosen.caps else self._least_rows()))

    def _least_rows(self) -> list[list[str]]:
        lines = [
            [
                "allocator",
                "held free / live",
                "least / live",
                "attempts",
                "trained",
                "out of memory",
                "too slow",
                "failed",
            ]
        ]
        for name in self._free:
            found = self._found.get(name)
            if found is None:
                lines.append([name, "out of memory", *["-"] * (len(lines[0]) - 2)])
                continue
            outcomes = [each["outcome"] for each in self._attempts if each["allocator"] == name]
            line = [name, cell(found["held_over_live"], 1, 4), cell(found["least_over_live"], 1, 4)]
            counts = [outcomes.count(each) for each in (TRAINED, OUT_OF_MEMORY, TOO_SLOW)]
            counts = [len(outcomes), *counts, len(outcomes) - sum(counts)]
            lines.append([*line, *(str(count) for count in counts)])
        return lines


def outcome_of(run: Run, free: Sequence[float], chosen: argparse.Namespace) -> str:
    """Of an attempt. With --caps no step is too slow."""
    if run.outcome == TRAINED and len(run.seconds) < len(free):
        return FAILED  # the program has ended by itself, and calls that well
    ratio = mean_ratio(run.seconds, free, chosen.warm_up)
    too_slow = ratio is None or ratio > chosen.step_ratio
    return TOO_SLOW if run.outcome == TRAINED and too_slow and not chosen.caps else run.outcome


def attempt_of(name: str, cap: int, run: Run, free: Sequence[float], chosen: argparse.Namespace) -> dict[str, Any]:
    """`mean_step_ratio`: to the own steps on the free card; where it was ended as too slow, of those that it made."""
    warm_up, outcome = chosen.warm_up, outcome_of(run, free, chosen)
    message = run.message or (f"ended after {len(run.seconds)} of {len(free)} steps" if outcome == FAILED else "")
    return {
        **{"allocator": name, "cap_bytes": cap, "trains": outcome == TRAINED, "outcome": outcome},
        **{"mean_step_ratio": mean_ratio(run.seconds, free, warm_up), "over_free": compare(run.seconds, free, warm_up)},
        **{"num_alloc_retries": run.retries, "num_ooms": run.end.get("ooms"), "steps": len(run.seconds)},
        **{"mean_step_seconds": _mean(run.seconds[warm_up:]), "step_seconds": run.seconds},
        **{"held_bytes": run.held, "outside_bytes": run.end.get("outside_bytes"), "message": message},
        "arena_changes": arena_changes(run.end, run.seconds, warm_up) if name == "stalloc" else None,
    }


def _mean(values: Sequence[float]) -> Optional[float]:
    return statistics.mean(values) if values else None


def cap_rows(attempts: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """Of --caps, with a header."""
    lines = [["cap / live", "allocator", "", "step ms", "x own free", "x expandable", "95 %", "retries", "% of steps"]]
    for each in attempts:
        peer = each.get("over_expandable")
        low, high = peer["interval"] if peer else (None, None)
        lines.append(
            [
                cell(each["cap_over_live"], 1, 4),
                each["allocator"],
                each["outcome"],
                cell(each["mean_step_seconds"], 1e3, 1),
                cell(each["mean_step_ratio"], 1, 4),
                cell(peer and peer["ratio_of_sums"], 1, 4),
                "-" if low is None else f"{low:.4f} to {high:.4f}",
                str(each["num_alloc_retries"]),
                cell((each["arena_changes"] or {}).get("share_of_steps"), 100, 2),
            ]
        )
    return lines
