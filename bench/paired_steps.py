"""Compares step times where the machine's own speed changes: processes of all allocators alive at once take turns.

    python bench/paired_steps.py --preset moe-16x12 --devices 0 1 --json paired.json     # two GPUs: half of them each
    python bench/paired_steps.py --preset toy-moe --iterations 20                         # on a CPU, too

One process for each mode; in every iteration each of them makes one step while the others wait, in changing order.
What makes a host slow for some seconds, a neighbour's load or a clock, then meets all of them. Reported are the median
over the iterations of the ratio to native's step of the same iteration, the interval that the true median is in with
95 % confidence, the quartiles, and the ratio of the sums; the median and its interval likewise of rounds, as many
iterations as there are modes, in which each mode has each place in the order once (whoever makes the step after its own
is faster by some percent). For Auto the steps before its plan and those with it are told apart; for Alloc also what
changing what backs its arena took of its steps by its own count, waits for the device apart. `--deterministic` after
`--` gives all modes the same work where sizes depend on the data. `native-again` is native once more: how far it is
from 1 is what the machine's noise comes to.
Traces and plans first. Modes and arguments after `--`: see bench/compare_modes.py.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from compare_modes import Comparison, machine

MODES = ["native", "native-again", "expandable", "alloc", "auto"]


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", default="toy", help="workload of bench/train_gpt.py")
    parser.add_argument("--iterations", type=int, default=20)
    parser.add_argument("--warm-up", type=int, default=3, help="iterations that do not count")
    parser.add_argument("--trace-iterations", type=int, default=4)
    parser.add_argument("--modes", nargs="+", choices=MODES, default=["native", "alloc"])
    parser.add_argument("--device", choices=["auto", "cuda", "cpu"], default="auto")
    parser.add_argument("--devices", nargs="+", help="CUDA devices that the modes get, one after the other")
    parser.add_argument("--directory", type=Path, help="where traces and plans go (default: a temporary directory)")
    parser.add_argument("--json", type=Path, help="write all step times here")
    parser.add_argument("train", nargs="*", help="arguments for train_gpt.py, after --")
    arguments = parser.parse_args()
    if "native" not in arguments.modes:
        parser.error("--modes: native is what the others are compared with")
    arguments.set, arguments.plan_options = [], []
    return arguments


class Runner:
    """One training process that waits for its turns."""

    def __init__(self, comparison: Comparison, mode: str, device: str | None) -> None:
        self.mode = mode
        environment = comparison.environment(mode)
        if device is not None:
            environment["CUDA_VISIBLE_DEVICES"] = device
        command = [*comparison.command(mode, comparison.directory / f"{mode}.json"), "--turns"]
        self.process = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def step(self) -> float:
        """Seconds of one step, which the process makes now."""
        given, answers = self.process.stdin, self.process.stdout
        assert given is not None
        assert answers is not None
        given.write("\n")
        given.flush()
        return float(self._answer(answers)["seconds"])

    def _answer(self, answers: IO[str]) -> dict[str, Any]:
        for line in answers:
            if line.startswith('{"iteration"'):
                answer: dict[str, Any] = json.loads(line)
                return answer
        raise SystemExit(f"paired_steps: the {self.mode} run ended with exit code {self.process.wait()}")

    def end(self) -> None:
        self.process.communicate()


def take_turns(steps: dict[str, Callable[[], float]], iterations: int) -> dict[str, list[float]]:
    """Seconds of the modes' steps, which `steps` makes one at a time; who goes first changes."""
    seconds: dict[str, list[float]] = {mode: [] for mode in steps}
    modes = list(steps)
    for iteration in range(iterations):
        first = iteration % len(modes)
        for mode in modes[first:] + modes[:first]:
            seconds[mode].append(steps[mode]())
        print(
            f"iteration {iteration}: " + ", ".join(f"{m} {s[-1] * 1e3:.1f} ms" for m, s in seconds.items()), flush=True
        )
    return seconds


def median_interval(values: list[float], confidence: float = 0.95) -> list[float]:
    """Two of the values, between which the true median is with at least this confidence, whatever the distribution (the
    sign test's interval); the extremes where there are too few values for it."""
    ordered = sorted(values)
    tail = (1 - confidence) / 2
    below, rank = 0.0, 0  # P(fewer than `rank` + 1 values lie below the median)
    while rank < len(ordered) // 2:
        below += math.comb(len(ordered), rank) / 2 ** len(ordered)
        if below > tail:
            break
        rank += 1
    outermost = max(rank - 1, 0)
    return [ordered[outermost], ordered[len(ordered) - 1 - outermost]]


def round_sums(values: list[float], length: int) -> list[float]:
    """Of each `length` values in a row; a rest is left out."""
    return [sum(values[i : i + length]) for i in range(0, len(values) - length + 1, length)]


def compare(seconds: dict[str, list[float]], warm_up: int) -> dict[str, dict[str, Any]]:
    """By mode: its ratios to native's steps of the same iterations."""
    native = seconds["native"][warm_up:]
    native_rounds = round_sums(native, len(seconds))
    rows = {}
    for mode, own in seconds.items():
        ratios = [a / b for a, b in zip(own[warm_up:], native)]
        low, middle, high = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else ratios * 3
        of_rounds = [a / b for a, b in zip(round_sums(own[warm_up:], len(seconds)), native_rounds)] or ratios
        rows[mode] = {
            "median_step_seconds": statistics.median(own[warm_up:]),
            "median_ratio": middle,
            "median_interval": median_interval(ratios),
            "quartiles": [low, high],
            "median_round_ratio": statistics.median(of_rounds),
            "median_round_interval": median_interval(of_rounds),
            "ratio_of_sums": sum(own[warm_up:]) / sum(native),
        }
    return rows


def parts_of_auto(seconds: dict[str, list[float]], warm_up: int, stages: list[dict[str, Any]]) -> dict[str, Any]:
    """Auto's ratios to native's steps before the iteration that took the plan up, that one's, and those after it."""
    taken = next((int(stage["iteration"]) for stage in stages if stage["stage"] == "planned"), None)
    ratios = [a / b for a, b in zip(seconds["auto"], seconds["native"])]
    if taken is None:
        return {"iteration": None}
    parts: dict[str, Any] = {"iteration": taken, "switch_seconds": seconds["auto"][taken]}
    for name, part in (("before", ratios[warm_up:taken]), ("after", ratios[taken + 1 :])):
        if part:
            parts[name] = {"median_ratio": statistics.median(part), "median_interval": median_interval(part)}
    return parts


def arena_changes(plan_directory: Path, steps_seconds: float, rank: int = 0) -> dict[str, Any]:
    """What a rank under Alloc says of moves and growth of its arena; seconds, and their share of all its steps."""
    summary = json.loads((plan_directory / "log_output" / f"rank{rank:05}.summary.json").read_text())
    names = ("moved_bytes", "times_moved", "times_waited", "move_seconds", "wait_seconds", "map_seconds")
    changes = {name: summary[f"arena_{name}"] for name in names}
    # A wait is for what the device has to do anyway: it costs the lead that the host had.
    spent = changes["move_seconds"] - changes["wait_seconds"] + changes["map_seconds"]
    return {**changes, "share_of_steps": spent / steps_seconds}


def describe(rows: dict[str, dict[str, Any]]) -> list[str]:
    """A line for each mode."""
    lines = []
    for mode, row in rows.items():
        least, most = row["median_interval"]
        low, high = row["quartiles"]
        least_round, most_round = row["median_round_interval"]
        lines.append(
            f"{mode}: median step {row['median_step_seconds'] * 1e3:.1f} ms, {row['median_ratio']:.4f} x native (95 %: "
            f"{least:.4f} to {most:.4f}; quartiles {low:.4f}, {high:.4f}), rounds {row['median_round_ratio']:.4f} x "
            f"({least_round:.4f} to {most_round:.4f}), all steps {row['ratio_of_sums']:.4f} x"
        )
        if (changes := row.get("arena_changes")) is not None:
            lines.append(
                f"{mode}: {changes['times_moved']} moves of {changes['moved_bytes'] / (1 << 30):.1f} GiB, "
                f"{changes['share_of_steps']:.2%} of the time of all steps in them and in growth, besides "
                f"{changes['times_waited']} waits of {changes['wait_seconds']:.2f} s for the device"
            )
        for name in ("before", "after"):
            if (part := row.get("parts", {}).get(name)) is not None:
                low, high = part["median_interval"]
                lines.append(f"{mode}, {name} its plan: {part['median_ratio']:.4f} x native ({low:.4f} to {high:.4f})")
    return lines


def main() -> int:
    arguments = parse_arguments()
    if arguments.iterations <= arguments.warm_up:
        sys.exit(
            f"paired_steps: --iterations {arguments.iterations} leaves nothing after --warm-up {arguments.warm_up}"
        )
    with tempfile.TemporaryDirectory(prefix="stalloc-paired-") as temporary:
        directory = arguments.directory or Path(temporary)
        directory.mkdir(parents=True, exist_ok=True)
        modes = list(arguments.modes)
        arguments.modes = ["trace-fast", *modes]
        comparison = Comparison(arguments, directory)
        if "alloc" in modes:
            comparison.run("trace-fast")
            comparison.make_plan()
        devices = arguments.devices or [None]
        runners = [Runner(comparison, mode, devices[i % len(devices)]) for i, mode in enumerate(modes)]
        try:
            seconds = take_turns({runner.mode: runner.step for runner in runners}, arguments.iterations)
        finally:
            for runner in runners:
                runner.end()
        rows = compare(seconds, arguments.warm_up)
        if "alloc" in modes:
            rows["alloc"]["arena_changes"] = arena_changes(comparison.run_directory("alloc"), sum(seconds["alloc"]))
        if "auto" in modes:
            status = comparison.run_directory("auto") / "log_output" / "rank00000.auto.json"
            rows["auto"]["parts"] = parts_of_auto(seconds, arguments.warm_up, json.loads(status.read_text())["stages"])
    print("\n".join(describe(rows)))
    if arguments.json:
        document = {
            "command": [Path(sys.argv[0]).name, *sys.argv[1:]],
            "machine": machine(),
            "devices": arguments.devices,
            "rows": rows,
            "step_seconds": seconds,
        }
        partial = arguments.json.with_suffix(".tmp")
        partial.write_text(json.dumps(document, indent=1))
        partial.replace(arguments.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
