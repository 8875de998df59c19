"""What the memory buys: for each program and allocator the fastest configuration that fits in the card, and its speed.

    python bench/worth/worth.py --card 80G --json worth.json                  # all programs, one allocator at a time
    python bench/worth/worth.py lora experts --devices 0,1,2 --json worth.json     # allocators side by side
    python bench/worth/worth.py --size toy --device cpu --card 60M            # on a CPU: nothing runs out of memory

Each program is traced twice, with a small micro-batch and twice that; `stalloc fit` then proposes what would be fastest
under an allocator, which is attempted in a fresh process (search.py: the same for native, expandable_segments and
stalloc, which is traced, planned and run from its plan). Then the best of each trains in turns, in changing order.
Tokens a second are medians over steps, with the interval that the median is in with 95 % confidence. The JSON is
written anew after each program. Megatron-LM's row is what bench/megatron/fit.py --card has left (--megatron fit.json).
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Optional

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from card import parse_bytes  # noqa: E402
from paired_steps import median_interval  # noqa: E402
from search import Attempt, Outcome, best_of, search  # noqa: E402

from stalloc.fitting import choose, document  # noqa: E402
from stalloc.fitting.replayed import TracedRun  # noqa: E402

EXIT_OUT_OF_MEMORY = 3  # of train.py
ALLOCATORS = ("native", "expandable", "stalloc")
CONTEXT = 1 << 30  # bytes of a card that are no allocator's
GIB = float(1 << 30)
MODES = {"native": {}, "expandable": {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}}


@dataclasses.dataclass(frozen=True)
class Kind:
    """Of a program: processes, micro-batches of a step, the micro-batch that is traced, and whether speed counts."""

    ranks: int = 1
    accumulation: int = 1
    traced: int = 1
    longest: bool = False


KINDS = {
    "fsdp2-packed": Kind(ranks=2, accumulation=2),
    "lora": Kind(),
    "trainer": Kind(),
    "experts": Kind(accumulation=4),
    "rollout": Kind(traced=8),
    "long": Kind(traced=8, longest=True),
}


@dataclasses.dataclass(frozen=True)
class Configuration:
    """What is attempted; the same choice is attempted once."""

    micro_batch: int
    recompute: tuple[str, ...]
    offload: tuple[str, ...]
    document: str = dataclasses.field(compare=False, repr=False)  # fit.json

    def told(self) -> str:
        changed = f", {len(self.recompute)} layers recomputed" if self.recompute else ""
        return f"{self.micro_batch}{changed}" + (f", {len(self.offload)} offloaded" if self.offload else "")


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
    parser.add_argument("--attempts", type=int, default=4, help="of each allocator, at most")
    parser.add_argument("--steps", type=int, default=6, help="of an attempt")
    parser.add_argument("--rounds", type=int, default=1, help="in which the best of all train in turns")
    parser.add_argument("--time-limit", type=float, default=180, help="seconds of a process")
    parser.add_argument("--directory", type=Path, help="for traces and plans (default: a temporary one)")
    parser.add_argument("--megatron", type=Path, metavar="FIT_JSON", help="bench/megatron/fit.py's, as one more row")
    parser.add_argument("--json", type=Path, help="write all results here")
    arguments = parser.parse_args()
    unknown = sorted(set(arguments.programs) - set(KINDS))
    if unknown:
        parser.error(f"there is no program {', '.join(unknown)}; there are {', '.join(KINDS)}")
    return arguments


class Process:
    """Runs train.py, on its GPUs, to the end."""

    def __init__(self, chosen: argparse.Namespace, program: str, devices: list[str]) -> None:
        self._chosen, self._program, self._devices = chosen, program, devices
        self._port = 29600 + int(devices[0]) if devices else 29600

    def run(self, words: list[str], mode: dict[str, str], launched: bool) -> tuple[int, list[dict[str, Any]], str]:
        """Exit code, results of the ranks, and what they said. `launched`: under `stalloc run`."""
        script = [str(HERE / "train.py"), self._program, "--size", self._chosen.size, "--device", self._chosen.device]
        script += ["--card", str(self._chosen.card), *words]
        command = [sys.executable, *(["-m", "stalloc", "run"] if launched else []), *script]
        # A toy is one process: a CPU's collectives are nobody's concern here.
        ranks = KINDS[self._program].ranks if self._chosen.size == "real" else 1
        started = [
            subprocess.Popen(
                command,
                env=self._environment(rank, ranks, mode),
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for rank in range(ranks)
        ]
        return self._wait(started)

    def _wait(self, started: list[subprocess.Popen[str]]) -> tuple[int, list[dict[str, Any]], str]:
        deadline = time.monotonic() + self._chosen.time_limit
        with ThreadPoolExecutor(len(started)) as pool:
            outputs = list(pool.map(lambda process: _communicate(process, started, deadline), started))
        codes = [process.returncode for process in started]
        code = EXIT_OUT_OF_MEMORY if EXIT_OUT_OF_MEMORY in codes else next((c for c in codes if c), 0)
        lines = [line for out, _ in outputs for line in out.splitlines() if line.startswith("RESULT ")]
        return code, [json.loads(line.removeprefix("RESULT ")) for line in lines], outputs[0][1][-2000:]

    def _environment(self, rank: int, ranks: int, mode: dict[str, str]) -> dict[str, str]:
        kept = {key: value for key, value in os.environ.items() if key != "PYTORCH_CUDA_ALLOC_CONF"}
        kept = {
            key: value for key, value in kept.items() if not key.startswith("STALLOC_") or key == "STALLOC_LIB_PATH"
        }
        if self._devices:
            kept["CUDA_VISIBLE_DEVICES"] = ",".join(self._devices)
        if ranks > 1:
            place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": ranks, "MASTER_PORT": self._port}
            kept |= {key: str(value) for key, value in place.items()} | {"MASTER_ADDR": "127.0.0.1"}
        return {**kept, "STALLOC_DEVICE": self._chosen.device, **mode}


def _communicate(
    process: subprocess.Popen[str], others: list[subprocess.Popen[str]], deadline: float
) -> tuple[str, str]:
    """A rank that fails ends the others, which would wait for it; so does the time limit."""
    try:
        found = process.communicate(timeout=max(1.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        process.kill()
        found = process.communicate()
    if process.returncode:
        for other in others:
            if other.poll() is None:
                other.kill()
    return found


class Row:
    """One program: traced, searched under each allocator, and measured in turns."""

    def __init__(self, chosen: argparse.Namespace, program: str, directory: Path) -> None:
        self.chosen, self.program, self.kind = chosen, program, KINDS[program]
        self.directory = directory / program
        self.directory.mkdir(parents=True, exist_ok=True)
        devices = chosen.devices.split(",") if chosen.device == "cuda" else []
        self._groups = [devices[i : i + self.kind.ranks] for i in range(0, len(devices), self.kind.ranks)] or [[]]
        if chosen.device == "cuda" and chosen.size == "real":
            self._groups = [group for group in self._groups if len(group) == self.kind.ranks]
        if not self._groups:
            raise RuntimeError(f"{program} needs {self.kind.ranks} GPUs: --devices {chosen.devices}")
        self.room = chosen.card - (CONTEXT if chosen.device == "cuda" else 0)

    def measure(self) -> dict[str, Any]:
        begin = time.monotonic()
        run = self._trace()
        with ThreadPoolExecutor(len(self._groups)) as pool:
            groups = [self._groups[i % len(self._groups)] for i in range(len(self.chosen.allocators))]
            found = list(pool.map(lambda pair: self._search(run, *pair), zip(self.chosen.allocators, groups)))
        attempts = dict(zip(self.chosen.allocators, found))
        best = {name: best_of(tried, self.kind.longest) for name, tried in attempts.items()}
        rows = self._turns({name: one for name, one in best.items() if one is not None})
        return {
            "program": self.program,
            "longest": self.kind.longest,
            "allocators": {name: self._told(name, attempts[name], best[name], rows.get(name)) for name in attempts},
            "wall_seconds": time.monotonic() - begin,
        }

    # -- What is proposed

    def _trace(self) -> TracedRun:
        """With a small micro-batch, and with twice that."""
        counts = (self.kind.traced, 2 * self.kind.traced)
        variables = {"STALLOC_TRACE_MODULES": "1", "STALLOC_TRACE_TIMES": "1", "STALLOC_TRACE_FAST_MODE": "1"}
        traces = []
        for count in counts:
            info = self.directory / f"traced{count}"
            mode = {"STALLOC_MODE": "Trace", "STALLOC_MODEL_INFO_PATH": str(info), **variables}
            process = Process(self.chosen, self.program, self._groups[0])
            code, _, said = process.run(["--micro-batch", str(count), "--steps", "4"], mode, True)
            if code:
                raise RuntimeError(f"{self.program} could not be traced with micro-batches of {count}: {code}\n{said}")
            traces.append(info / "trace" / "rank00000.trace")
        return TracedRun(traces[0], traces[1], counts[1] / counts[0])

    def _propose(self, run: TracedRun, allocator: str, memory: int) -> Optional[Configuration]:
        wish = choose.Wish(
            memory=memory,
            micro_batch=self.kind.traced,
            accumulation=self.kind.accumulation,
            allocator=allocator,
            longest=self.kind.longest,
            keep_accumulation=True,
        )
        choice = choose.choose(run, wish)
        if not choice.fits:
            return None
        told = document.document_of(choice, wish, "torch", 0, self.program)
        chosen = told["chosen"]
        return Configuration(
            chosen["micro_batch"], tuple(chosen["recompute"]), tuple(chosen["offload"]), json.dumps(told)
        )

    # -- What comes

    def _search(self, run: TracedRun, allocator: str, devices: list[str]) -> list[Attempt[Configuration]]:
        return search(
            self.room,
            lambda memory: self._propose(run, allocator, memory),
            lambda configuration: self._attempt(configuration, allocator, devices),
            self.chosen.attempts,
        )

    def _attempt(self, configuration: Configuration, allocator: str, devices: list[str]) -> Outcome:
        directory = self.directory / allocator / f"{configuration.micro_batch}-{abs(hash(configuration)) % 10**8}"
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "fit.json").write_text(configuration.document)
        outcome = self._train(configuration, allocator, devices, directory)
        print(f"{self.program}, {allocator}, {configuration.told()}: {_outcome_text(outcome)}", flush=True)
        return outcome

    def _train(self, configuration: Configuration, allocator: str, devices: list[str], directory: Path) -> Outcome:
        process = Process(self.chosen, self.program, devices)
        words = ["--micro-batch", str(configuration.micro_batch), "--fit", str(directory / "fit.json")]
        mode = MODES.get(allocator)
        if mode is None:
            mode = {"STALLOC_MODEL_INFO_PATH": str(directory / "info")}
            if not (directory / "info" / "output" / "plan").is_dir():
                code, results, said = process.run([*words, "--steps", "4"], {**mode, "STALLOC_MODE": "Trace"}, True)
                if code:
                    return _failed(code, results, said)
                planned = [sys.executable, "-m", "stalloc", "plan", str(directory / "info")]
                subprocess.run(planned, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            mode = {**mode, "STALLOC_MODE": "Alloc"}
        code, results, said = process.run([*words, "--steps", str(self.chosen.steps)], mode, allocator == "stalloc")
        return _failed(code, results, said) if code else _outcome(results)

    def _turns(self, best: dict[str, Attempt[Configuration]]) -> dict[str, dict[str, Any]]:
        """Tokens a second by step, of all rounds; each allocator has each GPU, and each place in the order, in turn."""
        speeds: dict[str, list[float]] = {
            name: list((one.outcome.figures or {}).get("tokens_per_second", [])) for name, one in best.items()
        }
        names = list(best)
        for number in range(self.chosen.rounds):
            order = names[number % len(names) :] + names[: number % len(names)] if names else []
            for place, name in enumerate(order):
                devices = self._groups[(number + place) % len(self._groups)]
                outcome = self._attempt(best[name].configuration, name, devices)
                if outcome.fits:
                    speeds[name] += (outcome.figures or {})["tokens_per_second"]
        return {
            name: {"median": statistics.median(own), "interval": median_interval(own), "steps": len(own)}
            for name, own in speeds.items()
            if own
        }

    def _told(
        self,
        allocator: str,
        attempts: list[Attempt[Configuration]],
        best: Optional[Attempt[Configuration]],
        speed: Optional[dict[str, Any]],
    ) -> dict[str, Any]:
        tried = [
            {"assumed": each.assumed, "configuration": each.configuration.told(), "fits": each.outcome.fits,
             "tokens_per_second": each.outcome.tokens_per_second, "held_bytes": each.outcome.held}
            for each in attempts
        ]  # fmt: skip
        if best is None:
            return {"attempts": tried, "best": None}
        predicted = json.loads(best.configuration.document)["predicted"]
        figures = best.outcome.figures or {}
        return {
            "attempts": tried,
            "best": best.configuration.told(),
            "micro_batch": best.configuration.micro_batch,
            "first_try": attempts[0].outcome.fits,
            "tokens_per_second": speed,
            "held_bytes": best.outcome.held,
            "live_bytes": figures.get("live_bytes", 0),
            "predicted": {
                "live_bytes": predicted["peak_live_bytes"],
                "held_bytes": predicted["held_bytes"][allocator],
                "step_seconds": predicted["step_seconds"],
            },
            "step_seconds": figures.get("step_seconds"),
        }


def _failed(code: int, results: list[dict[str, Any]], said: str) -> Outcome:
    """Out of memory is an outcome; anything else is an error, which is told."""
    if code != EXIT_OUT_OF_MEMORY:
        print(f"worth: a process ended with {code}: {said}", file=sys.stderr, flush=True)
    return Outcome(False, figures={"exit_code": code, "ranks": results})


def _outcome(results: list[dict[str, Any]]) -> Outcome:
    """All ranks' tokens in the time of the slowest; the first third of the steps warms up."""
    steps = len(results[0]["seconds"])
    first = max(1, steps // 3)
    seconds = [max(rank["seconds"][i] for rank in results) for i in range(first, steps)]
    tokens = [sum(rank["tokens"][i] for rank in results) for i in range(first, steps)]
    speeds = [count / second for count, second in zip(tokens, seconds)]
    figures = {
        "tokens_per_second": speeds,
        # Of the steps that were traced for the prediction: with other lengths they take another time.
        "step_seconds": statistics.median_low(
            max(rank["seconds"][i] for rank in results) for i in range(1, min(4, steps))
        ),
        "live_bytes": results[0].get("live_bytes", 0),
        "alloc_retries": [rank.get("alloc_retries") for rank in results],
    }
    return Outcome(True, statistics.median(speeds), max(rank.get("held_bytes", 0) for rank in results), figures)


def _outcome_text(outcome: Outcome) -> str:
    if not outcome.fits:
        return "does not fit" if (outcome.figures or {}).get("exit_code") == EXIT_OUT_OF_MEMORY else "failed"
    return f"{outcome.tokens_per_second:.0f} tokens/s, held {outcome.held / GIB:.2f} GiB"


# -- The table


def table(rows: list[dict[str, Any]]) -> str:
    """As Markdown: one row a program; tokens a second with what was chosen for them."""
    lines = [
        "| program | native | expandable_segments | stalloc | stalloc / expandable | predicted live, step |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        if "error" in row:
            lines.append(f"| {row['program']} | {row['error'].splitlines()[0]} | | | | |")
            continue
        found = row["allocators"]
        cells = [_cell(found.get(name), row["longest"]) for name in ALLOCATORS]
        lines.append(f"| {row['program']} | {' | '.join(cells)} | {_ratio(row)} | {_off(found.get('stalloc'))} |")
    return "\n".join(lines) + "\n"


def _cell(one: Optional[dict[str, Any]], longest: bool) -> str:
    if not one or not one["best"] or not one["tokens_per_second"]:
        return "nothing fits" if one else ""
    speed = one["tokens_per_second"]
    low, high = speed["interval"]
    unit = " x 1024 tokens" if longest else ""
    return f"{one['best']}{unit}: {speed['median']:.0f} ({low:.0f} to {high:.0f}), {one['held_bytes'] / GIB:.1f} GiB"


def _ratio(row: dict[str, Any]) -> str:
    ours, peers = (row["allocators"].get(name) for name in ("stalloc", "expandable"))
    if not ours or not peers or not ours["best"] or not peers["best"]:
        return ""
    if row["longest"]:
        return f"{ours['micro_batch'] / peers['micro_batch']:.3f} (length)"
    return f"{ours['tokens_per_second']['median'] / peers['tokens_per_second']['median']:.3f}"


def _off(one: Optional[dict[str, Any]]) -> str:
    if not one or not one["best"] or not one["live_bytes"] or not one["step_seconds"]:
        return ""
    live = one["predicted"]["live_bytes"] / one["live_bytes"] - 1
    step = one["predicted"]["step_seconds"] / one["step_seconds"] - 1
    return f"{100 * live:+.1f} %, {100 * step:+.1f} %"


def megatron_row(document: dict[str, Any]) -> dict[str, Any]:
    """From bench/megatron/fit.py: the fastest that trained under each allocator, with what it recomputed."""
    names = {"native": "native", "expandable": "expandable", "alloc": "stalloc"}
    found: dict[str, Any] = {}
    for mode, name in names.items():
        runs = [run for run in document["runs"] if run["mode"] == mode and run["trained"] and run["tokens_per_second"]]
        if not runs:
            found[name] = {"attempts": [], "best": None}
            continue
        best = max(runs, key=lambda run: run["tokens_per_second"])
        speed = best["tokens_per_second"]
        layers = best["recomputed_layers_of_a_chunk"]
        found[name] = {
            "attempts": runs,
            "best": f"{layers} layers of a chunk recomputed" if layers else "nothing recomputed",
            "tokens_per_second": {"median": speed, "interval": [speed, speed], "steps": 1},
            "held_bytes": max(best["held_bytes"]),
            "live_bytes": 0,
            "step_seconds": None,
        }
    return {"program": f"Megatron-LM {document['workload']}", "longest": False, "allocators": found}


def write_json(path: Path, content: Any) -> None:
    partial = path.with_suffix(".tmp")
    partial.write_text(json.dumps(content, indent=1))
    partial.replace(path)


def main() -> int:
    chosen = parse_arguments()
    rows = [megatron_row(json.loads(chosen.megatron.read_text()))] if chosen.megatron else []
    with tempfile.TemporaryDirectory(prefix="stalloc-worth-") as temporary:
        for program in chosen.programs or list(KINDS):
            try:
                rows.append(Row(chosen, program, (chosen.directory or Path(temporary)).resolve()).measure())
            except (RuntimeError, subprocess.CalledProcessError, ValueError) as error:
                rows.append({"program": program, "error": str(error)})
                print(f"worth: {program}: {error}", file=sys.stderr, flush=True)
            if chosen.json:
                write_json(chosen.json, {"command": sys.argv, "card_bytes": chosen.card, "rows": rows})
            print(table(rows), flush=True)
    return 0 if all("error" not in row for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
