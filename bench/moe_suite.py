"""All comparisons of what a plan cannot know, one after the other: mixtures of experts, sequences of varying length.

    python bench/moe_suite.py --output results --time-limit 580      # again, to go on where time ran out
    python bench/moe_suite.py --output results --toy                 # toy models, seconds each, on a CPU

Each comparison is a run of bench/compare_modes.py that writes OUTPUT/WORKLOAD.json after each of its modes. One that is
complete there is not run again; one that would not end in what is left of the time limit is not begun. The table is
written to OUTPUT/table.md after each comparison and printed at the end. Exit codes: 0 all are complete and reach what
is asked of them, 1 one does not, 3 not all are complete.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Optional

HERE = Path(__file__).resolve().parent
GIB = float(1 << 30)
EXIT_INCOMPLETE = 3


@dataclasses.dataclass(frozen=True)
class Workload:
    """A preset of train_gpt.py, what is asked of it, and how long the whole comparison takes on an H200."""

    name: str
    toy: str
    seconds: float
    checks: tuple[str, ...]


EVERY = ("--every-iteration", "--max-window-ratio", "1.02")
WORKLOADS = [
    Workload("moe-16x12", "toy-moe", 160, ("--min-efficiency", "99.5", "--max-step-ratio", "1.01")),
    Workload("moe-recompute", "toy-moe-recompute", 200, EVERY),
    Workload("varlen-1b", "toy-varlen", 110, ("--min-efficiency", "98")),
    Workload("moe-drift", "toy-moe-drift", 170, EVERY),
    Workload("moe-collapse", "toy-moe-collapse", 170, EVERY),
]


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--workloads", nargs="+", choices=[w.name for w in WORKLOADS], help="only these")
    parser.add_argument("--time-limit", type=float, default=float("inf"), help="seconds for all together")
    parser.add_argument("--iterations", type=int, default=30)
    parser.add_argument("--modes", nargs="+", default=["native", "expandable", "trace-fast", "alloc"])
    parser.add_argument("--toy", action="store_true", help="toy models; only losses are checked")
    parser.add_argument("--again", action="store_true", help="also those that are complete in the output")
    parser.add_argument("compare", nargs="*", help="arguments for compare_modes.py, after --")
    return parser.parse_args()


class Suite:
    """The comparisons and their time."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.arguments = arguments
        self.deadline = time.monotonic() + arguments.time_limit
        chosen = arguments.workloads or [workload.name for workload in WORKLOADS]
        self.workloads = [workload for workload in WORKLOADS if workload.name in chosen]

    def path(self, workload: Workload) -> Path:
        return Path(self.arguments.output) / f"{workload.toy if self.arguments.toy else workload.name}.json"

    def result(self, workload: Workload) -> Optional[dict[str, Any]]:
        """What there is of it; None: nothing."""
        path = self.path(workload)
        return json.loads(path.read_text()) if path.exists() else None

    def is_complete(self, workload: Workload) -> bool:
        result = self.result(workload)
        return result is not None and bool(result["complete"])

    def command(self, workload: Workload) -> list[str]:
        own = [] if self.arguments.toy else list(workload.checks)
        command = [sys.executable, str(HERE / "compare_modes.py")]
        command += [
            "--preset",
            workload.toy if self.arguments.toy else workload.name,
            "--check",
            "--min-hits",
            "0",
            *own,
        ]
        command += ["--iterations", str(self.arguments.iterations), "--modes", *self.arguments.modes]
        return [*command, "--json", str(self.path(workload)), *self.arguments.compare, "--", "--deterministic"]

    def run(self) -> None:
        for workload in self.workloads:
            if self.is_complete(workload) and not self.arguments.again:
                continue
            left = self.deadline - time.monotonic()
            if left <= (0 if self.arguments.toy else workload.seconds):
                print(f"== {workload.name}: not begun, {left:.0f} s left of the time limit", flush=True)
                continue
            print(f"== {workload.name}", flush=True)
            self.path(workload).unlink(missing_ok=True)
            run_for(self.command(workload), left)
            self.write_table()

    def write_table(self) -> str:
        lines = table([(self.path(w).stem, self.result(w)) for w in self.workloads])
        text = "\n".join(lines) + "\n"
        partial = Path(self.arguments.output) / "table.tmp"
        partial.write_text(text)
        partial.replace(Path(self.arguments.output) / "table.md")
        return text

    def exit_code(self) -> int:
        results = [self.result(workload) for workload in self.workloads]
        if any(result is None or not result["complete"] for result in results):
            return EXIT_INCOMPLETE
        return 1 if any(result["problems"] for result in results if result) else 0


def run_for(command: list[str], seconds: float) -> None:
    """Runs the command and ends it, with the processes that it started, when time is up or this process is ended."""
    process = subprocess.Popen(command, start_new_session=True)
    try:
        process.wait(timeout=None if seconds == float("inf") else seconds)
    except subprocess.TimeoutExpired:
        print("== time is up", flush=True)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def table(results: list[tuple[str, Optional[dict[str, Any]]]]) -> list[str]:
    """Markdown, a line for each workload; what is not there is a dash."""
    header = ["workload", "live GiB", "E native", "E expandable", "E alloc", "least E expandable", "least E alloc"]
    header += ["step ms native", "x native", "slowest five", "losses", "plan s", "verdict"]
    lines = ["| " + " | ".join(header) + " |", "|---" + "|---:" * (len(header) - 2) + "|---|"]
    for name, result in results:
        lines.append("| " + " | ".join([name, *cells_of(result, len(header) - 1)]) + " |")
    return lines


def cells_of(result: Optional[dict[str, Any]], count: int) -> list[str]:
    if result is None:
        return [*["-"] * (count - 1), "not run"]
    rows = {row["mode"]: row for row in result["rows"]}

    def cell(mode: str, key: str, scale: float, digits: int) -> str:
        value = rows.get(mode, {}).get(key)
        value = value[0] if isinstance(value, list) else value
        return "-" if value is None else f"{value * scale:.{digits}f}"

    equal = rows.get("alloc", {}).get("losses_equal")
    cells = [cell("alloc", "live_bytes", 1 / GIB, 2)]
    cells += [cell(mode, "efficiency", 100, 2) for mode in ("native", "expandable", "alloc")]
    cells += [cell(mode, "least_efficiency", 100, 2) for mode in ("expandable", "alloc")]
    cells += [cell("native", "step_seconds", 1e3, 1), cell("alloc", "step_ratio", 1, 4)]
    cells += [cell("alloc", "slowest_window", 1, 4), {True: "equal", False: "DIFFER", None: "-"}[equal]]
    cells.append(f"{result['plan']['wall_seconds']:.1f}" if result["plan"] else "-")
    verdict = "ok" if result["complete"] else f"broken off after {', '.join(rows) or 'nothing'}"
    return [*cells, "; ".join(result["problems"]) or verdict]


def main() -> int:
    arguments = parse_arguments()
    arguments.output.mkdir(parents=True, exist_ok=True)
    # A request to end must reach the comparison that runs, which is a session of its own.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(EXIT_INCOMPLETE))
    suite = Suite(arguments)
    try:
        suite.run()
    finally:
        print(suite.write_table(), end="", flush=True)
    return suite.exit_code()


if __name__ == "__main__":
    sys.exit(main())
