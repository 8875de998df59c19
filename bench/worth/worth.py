"""What the memory buys: for each program and allocator the fastest configuration that fits in the card, and its speed.

    python bench/worth/worth.py lora experts --card 79G --json worth.json     # one GPU, one allocator after the other
    python bench/worth/worth.py fsdp2-packed --devices 0,1 --json worth.json  # again with the file: rows in it are kept
    python bench/worth/worth.py lora --devices 0,1,2 --json worth.json        # allocators side by side
    python bench/worth/worth.py --size toy --device cpu --card 60M            # on a CPU: nothing runs out of memory

Each program is traced twice, the second time with half the tokens; from these `stalloc fit` proposes what would be
fastest under an allocator, which is attempted in a fresh process (search.py: the same for native, expandable_segments
and stalloc, which is traced, planned and run from its plan). What is fastest under any of them is then attempted under
the others, too. All make the same steps, with the same rows. The JSON is written anew after each attempt: a run that
was ended goes on where it was. Megatron-LM's row is what bench/megatron/fit.py --card has left (--megatron fit.json).
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import statistics
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path
from typing import Any, Optional

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from card import parse_bytes
from kinds import KINDS, rows_of
from known import Configuration, Known
from launch import EXIT_OUT_OF_MEMORY, Process, failed, outcome_of, warm_up
from paired_steps import median_interval
from search import Attempt, Outcome, best_of, first_assumption, search
from table import ALLOCATORS, GIB, megatron_row, table

from stalloc.fitting import choose, document
from stalloc.fitting.replayed import TracedRun

_LEFT = 256 << 20  # bytes of a card that are left beside what was found to be no allocator's
_TRACED_STEPS, _FREE_STEPS = 4, 4  # of the traces for `stalloc fit`; the free ones tell how long steps take untraced
_ORDER = ("stalloc", "expandable", "native")  # of attempts: where time runs out, the last has none
_UNIT = 256  # tokens of a unit of a sequence's length
_PLANNED_STEPS = 4  # of the trace that stalloc is planned from
MODES = {"native": {}, "expandable": {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}}


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", nargs="*", metavar="PROGRAM", help=f"of {', '.join(KINDS)} (default: all)")
    parser.add_argument("--size", choices=["real", "toy"], default="real")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument(
        "--devices", default="0", help="GPUs, as 0,1,2: allocators run side by side where there are enough"
    )
    parser.add_argument("--card", type=parse_bytes, default=79 << 30, help="its memory (default 79G: an 80 GB card's)")
    parser.add_argument("--allocators", nargs="+", choices=ALLOCATORS, default=list(ALLOCATORS))
    parser.add_argument("--attempts", type=int, default=2, help="of each allocator's proposals, at most")
    parser.add_argument("--steps", type=int, default=8, help="of an attempt; the first three do not count")
    parser.add_argument("--rounds", type=int, default=0, help="in which the best of all train once more, in turns")
    parser.add_argument("--time-limit", type=float, default=150, help="seconds of a process")
    parser.add_argument("--row-seconds", type=float, default=300, help="after which a program gets no more attempts")
    parser.add_argument("--directory", type=Path, help="for traces and plans (default: a temporary one)")
    parser.add_argument("--megatron", type=Path, metavar="FIT_JSON", help="bench/megatron/fit.py's, as one more row")
    parser.add_argument("--json", type=Path, help="write all results here")
    arguments = parser.parse_args()
    unknown = sorted(set(arguments.programs) - set(KINDS))
    if unknown:
        parser.error(f"there is no program {', '.join(unknown)}; there are {', '.join(KINDS)}")
    return arguments


@dataclasses.dataclass
class Proposals:
    """What `stalloc fit` would choose, from one pair of traces for all allocators."""

    chosen: argparse.Namespace
    program: str
    run: TracedRun
    _prepared: dict[tuple[str, int], Optional[Configuration]] = dataclasses.field(default_factory=dict)

    def __call__(self, allocator: str, memory: int) -> Optional[Configuration]:
        if (allocator, memory) in self._prepared:
            return self._prepared[allocator, memory]
        wish = self._wish(allocator, memory)
        begin = time.monotonic()
        choice = choose.choose(self.run, wish)
        seconds = time.monotonic() - begin
        print(f"{self.program}, {allocator}: a proposal for {memory / GIB:.2f} GiB in {seconds:.0f} s", flush=True)
        if not choice.fits:
            return None
        told = document.document_of(choice, wish, "torch", 0, self.program)
        chosen = told["chosen"]
        changes = tuple(chosen["recompute"]), tuple(chosen["offload"])
        return Configuration(chosen["micro_batch"], *changes, json.dumps(told))

    def prepare(self, allocators: list[str], memory: int) -> None:
        """The first ones, side by side."""
        with ThreadPoolExecutor(len(allocators)) as pool:
            found = pool.map(lambda name: self(name, memory), allocators)
            self._prepared.update({(name, memory): one for name, one in zip(allocators, found)})

    def _wish(self, allocator: str, memory: int) -> choose.Wish:
        kind, rows = KINDS[self.program], rows_of(self.program, self.chosen.size)
        counted = rows is not None and rows.count > 0  # else rows are as many as micro-batches make, all alike
        steps = [rows.step(number) for number in range(self.chosen.steps)] if rows is not None and counted else []
        return choose.Wish(
            memory=memory,
            micro_batch=kind.traced.micro_batch,
            accumulation=1 if rows is None else rows.traced,
            allocator=allocator,
            bus=0.0,  # pinned memory of the host would be a knob of its own
            longest=kind.longest,
            sequence_unit=_UNIT if kind.longest else 0,
            keep_accumulation=not counted,
            rows=rows.count if rows is not None and counted else None,
            divides=kind.divides,
            lengths=tuple(length for step in steps for length in step),
            packed=rows is not None and rows.packed,
            in_order=True,
            timed=tuple(length for step in steps[warm_up(self.chosen.steps) :] for length in step),
        )


class Row:
    """One program: traced, searched under each allocator, the fastest of any tried under all, measured in turns."""

    def __init__(self, chosen: argparse.Namespace, program: str, directory: Path, known: Known) -> None:
        self.chosen, self.program, self.kind, self.known = chosen, program, KINDS[program], known
        self.directory = directory / program
        self.directory.mkdir(parents=True, exist_ok=True)
        devices = chosen.devices.split(",") if chosen.device == "cuda" else []
        self._groups = [devices[i : i + self.kind.ranks] for i in range(0, len(devices), self.kind.ranks)] or [[]]
        if chosen.device == "cuda" and chosen.size == "real":
            self._groups = [group for group in self._groups if len(group) == self.kind.ranks]
        if not self._groups:
            raise RuntimeError(f"{program} needs {self.kind.ranks} GPUs: --devices {chosen.devices}")
        self._size = _micro_batch if self.kind.longest else None
        self._deadline = time.monotonic() + chosen.row_seconds
        self._processes = 0

    def measure(self) -> dict[str, Any]:
        begin = time.monotonic()
        run, outside = self._trace()
        traced = time.monotonic() - begin
        room = self.chosen.card - outside - (_LEFT if self.chosen.device == "cuda" else 0)
        proposals = Proposals(self.chosen, self.program, run)
        names = sorted(self.chosen.allocators, key=_ORDER.index)
        proposals.prepare(names, first_assumption(room))
        attempts = self._side_by_side(lambda name, devices: self._search(room, proposals, name, devices), names)
        self._side_by_side(lambda name, devices: self._try_the_best(attempts, name, devices), names)
        best = {name: best_of(tried, self._size) for name, tried in attempts.items()}
        rounds = self._turns({name: one for name, one in best.items() if one is not None})
        return {
            "program": self.program,
            "longest": self.kind.longest,
            "room_bytes": room,
            "allocators": {name: told(name, attempts[name], best[name], rounds.get(name)) for name in attempts},
            "trace_seconds": traced,
            "wall_seconds": time.monotonic() - begin,
            "processes": self._processes,
        }

    def _side_by_side(self, work: Callable[[str, list[str]], Any], names: list[str]) -> dict[str, Any]:
        """Each allocator on GPUs of its own, as far as there are enough."""
        with ThreadPoolExecutor(len(self._groups)) as pool:
            groups = [self._groups[i % len(self._groups)] for i in range(len(names))]
            return dict(zip(names, pool.map(work, names, groups)))

    # -- What is traced

    def _trace(self) -> tuple[TracedRun, int]:
        """Once and with half the tokens; and what of the card is no allocator's."""
        variables = {"STALLOC_TRACE_MODULES": "1", "STALLOC_TRACE_TIMES": "1", "STALLOC_TRACE_FAST_MODE": "1"}
        variables["STALLOC_TRACE_STEPS"] = str(_TRACED_STEPS)
        traces, outside = [], 0
        for name, traced in (("traced", self.kind.traced), ("beside", self.kind.beside)):
            info, begin = self.directory / name, time.monotonic()
            mode = {"STALLOC_MODE": "Trace", "STALLOC_MODEL_INFO_PATH": str(info), **variables}
            words = [*traced.words(), "--steps", str(_TRACED_STEPS + _FREE_STEPS)]
            code, results, said = self._run(self._groups[0], words, mode, True)
            if code:
                raise RuntimeError(f"{self.program} could not be traced with {' '.join(words)}: {code}\n{said}")
            outside = max(outside, *(rank["outside_bytes"] for rank in results))
            traces.append(info / "trace" / "rank00000.trace")
            spent = ", ".join(f"{what} {seconds:.0f}" for what, seconds in results[0]["spent"].items())
            print(f"{self.program}, {name}: {time.monotonic() - begin:.0f} s ({spent})", flush=True)
        tokens = [TracedRun(trace).most_tokens() for trace in traces]
        assert tokens[0] is not None, "programs tell their tokens"
        assert tokens[1] is not None
        return TracedRun(traces[0], traces[1], tokens[1] / tokens[0]), outside

    def _run(
        self, devices: list[str], words: list[str], mode: dict[str, str], launched: bool
    ) -> tuple[int, list[dict[str, Any]], str]:
        self._processes += 1
        return Process(self.chosen, self.program, devices).run(words, mode, launched)

    # -- What comes

    def _search(
        self, room: int, proposals: Proposals, allocator: str, devices: list[str]
    ) -> list[Attempt[Configuration]]:
        return search(
            room,
            lambda memory: proposals(allocator, memory),
            lambda configuration: self._attempt_in_time(configuration, allocator, devices),
            self.chosen.attempts,
        )

    def _try_the_best(
        self, attempts: dict[str, list[Attempt[Configuration]]], allocator: str, devices: list[str]
    ) -> None:
        """What was the best under any allocator, under this one."""
        every = [each for tried in list(attempts.values()) for each in list(tried)]
        best = best_of(every, self._size)
        if best is None or any(each.configuration == best.configuration for each in attempts[allocator]):
            return
        outcome = self._attempt_in_time(best.configuration, allocator, devices)
        if outcome is not None:
            attempts[allocator].append(Attempt(best.assumed, best.configuration, outcome))

    def _attempt_in_time(self, configuration: Configuration, allocator: str, devices: list[str]) -> Optional[Outcome]:
        known = self.known.get(self.program, allocator, configuration)
        if known is not None:
            return known
        if time.monotonic() > self._deadline:
            print(f"{self.program}, {allocator}: no time left (--row-seconds)", flush=True)
            return None
        outcome = self._attempt(configuration, allocator, devices)
        self.known.add(self.program, allocator, configuration, outcome)
        return outcome

    def _attempt(self, configuration: Configuration, allocator: str, devices: list[str]) -> Outcome:
        directory = self.directory / allocator / configuration.key()
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "fit.json").write_text(configuration.document)
        begin = time.monotonic()
        outcome = self._train(configuration, allocator, devices, directory)
        seconds = time.monotonic() - begin
        told = f"{self.program}, {allocator}, {configuration.told()}: {_outcome_text(outcome)}"
        print(f"{told}; {seconds:.0f} s", flush=True)
        return outcome

    def _train(self, configuration: Configuration, allocator: str, devices: list[str], directory: Path) -> Outcome:
        words = ["--micro-batch", str(configuration.micro_batch), "--fit", str(directory / "fit.json")]
        mode = MODES.get(allocator)
        if mode is None:
            mode = {"STALLOC_MODEL_INFO_PATH": str(directory / "info")}
            if not (directory / "info" / "output" / "plan").is_dir():
                traced = {**mode, "STALLOC_MODE": "Trace", "STALLOC_TRACE_STEPS": str(_PLANNED_STEPS)}
                code, results, said = self._run(devices, [*words, "--steps", str(_PLANNED_STEPS)], traced, True)
                if code:
                    return failed(code, results, said)
                planned = [sys.executable, "-m", "stalloc", "plan", str(directory / "info")]
                subprocess.run(planned, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            mode = {**mode, "STALLOC_MODE": "Alloc"}
        steps = ["--steps", str(self.chosen.steps)]
        code, results, said = self._run(devices, [*words, *steps], mode, allocator == "stalloc")
        if code:
            return failed(code, results, said)
        outcome = outcome_of(results, self.chosen.steps)
        if allocator == "stalloc" and outcome.figures is not None:
            outcome.figures["served"] = served(directory / "info")
        return outcome

    def _turns(self, best: dict[str, Attempt[Configuration]]) -> dict[str, list[list[float]]]:
        """Seconds and tokens of the steps, of all rounds; each allocator has each GPU and each place in turn."""
        found = {name: [_steps(one.outcome)] for name, one in best.items()}
        names = list(best)
        for number in range(self.chosen.rounds):
            order = names[number % len(names) :] + names[: number % len(names)] if names else []
            for place, name in enumerate(order):
                devices = self._groups[(number + place) % len(self._groups)]
                outcome = self._attempt(best[name].configuration, name, devices)
                if outcome.fits:
                    found[name].append(_steps(outcome))
        return {name: [[*chain(*figures)] for figures in zip(*own)] for name, own in found.items()}


def served(info: Path) -> dict[str, Any]:
    """From rank 0's summary: requests by who served them, and what changing the arena has taken."""
    path = info / "log_output" / "rank00000.summary.json"
    found = json.loads(path.read_text()) if path.is_file() else {}
    names = ("requests", "planned_hits", "dynamic_hits", "heap_hits", "upstream", "misses", "steady")
    return {name: value for name, value in found.items() if name in names or name.startswith("arena_")}


def _micro_batch(configuration: Configuration) -> int:
    return configuration.micro_batch


def _steps(outcome: Outcome) -> tuple[list[float], list[float]]:
    figures = outcome.figures or {}
    return figures["seconds"], figures["tokens"]


def told(
    allocator: str,
    attempts: list[Attempt[Configuration]],
    best: Optional[Attempt[Configuration]],
    steps: Optional[list[list[float]]],
) -> dict[str, Any]:
    tried = [
        {"assumed": each.assumed, "configuration": each.configuration.told(), "fits": each.outcome.fits,
         "tokens_per_second": each.outcome.tokens_per_second, "held_bytes": each.outcome.held,
         "alloc_retries": (each.outcome.figures or {}).get("alloc_retries")}
        for each in attempts
    ]  # fmt: skip
    if best is None or steps is None:
        return {"attempts": tried, "best": None}
    predicted = json.loads(best.configuration.document)["predicted"]
    figures = best.outcome.figures or {}
    seconds, tokens = steps
    return {
        "attempts": tried,
        "best": best.configuration.told(),
        "micro_batch": best.configuration.micro_batch,
        "first_try": attempts[0].outcome.fits,
        "tokens_per_second": {
            "mean": sum(tokens) / sum(seconds),
            "interval": median_interval([count / second for count, second in zip(tokens, seconds)]),
            "steps": len(seconds),
        },
        "seconds": seconds,
        "tokens": tokens,
        "held_bytes": best.outcome.held,
        "live_bytes": figures.get("live_bytes", 0),
        "predicted": {
            "live_bytes": predicted["peak_live_bytes"],
            "held_bytes": predicted["held_bytes"].get(allocator),
            "step_seconds": predicted["step_seconds"],
        },
        "step_seconds": statistics.fmean(figures["seconds"]),
    }


def _outcome_text(outcome: Outcome) -> str:
    if not outcome.fits:
        return "does not fit" if (outcome.figures or {}).get("exit_code") == EXIT_OUT_OF_MEMORY else "failed"
    return f"{outcome.tokens_per_second:.0f} tokens/s, held {outcome.held / GIB:.2f} GiB"


def main() -> int:
    chosen = parse_arguments()
    conditions = {"size": chosen.size, "device": chosen.device, "card_bytes": chosen.card, "steps": chosen.steps}
    known = Known(chosen.json, conditions)
    if chosen.megatron:
        known.add_row(megatron_row(json.loads(chosen.megatron.read_text())))
    failed = False
    with tempfile.TemporaryDirectory(prefix="stalloc-worth-") as temporary:
        for program in chosen.programs or list(KINDS):
            if known.row(program) is None:
                try:
                    known.add_row(
                        Row(chosen, program, (chosen.directory or Path(temporary)).resolve(), known).measure()
                    )
                except Exception as error:  # the other rows are made all the same
                    traceback.print_exc()
                    failed = True
                    known.add_row({"program": program, "error": str(error)})
                    print(f"worth: {program}: {error}", file=sys.stderr, flush=True)
            print(table(known.rows()), flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
