"""Training with several threads under a plan, many times over: results as natively, on a device that is full as well.

    python tests/gpu/threads_suite.py --output results              # after a release build; one GPU
    python tests/gpu/threads_suite.py --output results --cases loops-2 captures --runs 4 --moves-s 0

For each case of programs/threaded_training.py: native runs, a trace and its plan, then runs in Alloc. Half of these may
hold no more than 1.02 times what native runs, or others in Alloc, held; one runs alone on a device that is filled up
to that; one each under compute-sanitizer's memcheck and under torch's CUDA sanitizer; and, for --moves-s seconds, runs
in which memory moves at every mark. `results/threads.json` has every run that was not as it should be, and figures.
Exits 1 if there was one.
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

sys.path.insert(0, str(Path(__file__).resolve().parent / "python"))
import checkers

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PROGRAM = HERE / "python" / "programs" / "threaded_training.py"
CASES = ["loops-2", "loops-4", "loops-8", "loader", "checkpoint", "optimizers", "backward", "captures"]
ROOM = 1.02
OUTSIDE = 128 << 20  # bytes that no allocator has: libraries' handles, graphs, kernels that are loaded late
NATIVE_RUNS = 3
LIMIT_S = 240.0


@dataclasses.dataclass(frozen=True)
class Run:
    """One process: what it is for, its mode (None: native), further arguments and environment, a command before it."""

    case: str
    kind: str
    mode: Optional[str]
    arguments: tuple[str, ...] = ()
    variables: tuple[tuple[str, str], ...] = ()
    under: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Ended:
    run: Run
    result: Optional[dict[str, Any]]  # None: it failed
    seconds: float
    error: str


class Suite:
    def __init__(self, arguments: argparse.Namespace, work: Path) -> None:
        self.arguments = arguments
        self.work = work
        self.reference: dict[tuple[str, tuple[str, ...]], dict[str, Any]] = {}  # by case and size
        self.held: dict[str, dict[str, int]] = {}  # by case and kind: the most, bytes
        self.wrong: list[dict[str, Any]] = []
        self.runs: dict[str, dict[str, Any]] = {}

    def directory(self, case: str) -> Path:
        return self.work / case

    def environment(self, run: Run) -> dict[str, str]:
        build = str(self.arguments.build.resolve())
        inherited = {key: value for key, value in os.environ.items() if not key.startswith("STALLOC_")}
        return (
            inherited
            | {
                "STALLOC_LIB_PATH": build,
                "PYTHONPATH": str(ROOT / "patches"),
                "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
                "STALLOC_MODEL_INFO_PATH": str(self.directory(run.case)),
            }
            | ({"STALLOC_MODE": run.mode} if run.mode is not None else {})
            | dict(run.variables)
        )

    def execute(self, run: Run) -> Ended:
        begin = time.monotonic()
        launcher = ["-m", "stalloc", "run"] if run.mode is not None else []
        command = [*run.under, sys.executable, *launcher, str(PROGRAM), run.case, *run.arguments]
        if "--iterations" not in run.arguments:
            command += ["--iterations", str(self.arguments.iterations)]
        try:
            done = subprocess.run(
                command, env=self.environment(run), capture_output=True, text=True, timeout=LIMIT_S, check=False
            )
        except subprocess.TimeoutExpired:
            return Ended(run, None, LIMIT_S, "its time was up")
        seconds = time.monotonic() - begin
        if done.returncode != 0:
            return Ended(run, None, seconds, f"exit {done.returncode}: {done.stderr[-1500:]}")
        found = "CSAN detected" in done.stderr
        return Ended(run, json.loads(done.stdout.splitlines()[-1]), seconds, done.stderr[-1500:] if found else "")

    def all(self, runs: list[Run], jobs: Optional[int] = None) -> list[Ended]:
        with ThreadPoolExecutor(jobs or self.arguments.jobs) as pool:
            ended = list(pool.map(self.execute, runs))
        for one in ended:
            self.judge(one)
        return ended

    def judge(self, ended: Ended) -> None:
        run, result = ended.run, ended.result
        row = self.runs.setdefault(f"{run.case} {run.kind}", {"runs": 0, "right": 0, "seconds": [], "efficiency": []})
        row["runs"] += 1
        row["seconds"].append(round(ended.seconds, 1))
        why = ended.error
        if result is not None:
            expected = self.reference.setdefault((run.case, run.arguments[:2]), result)
            same = all(result[key] == expected[key] for key in ("losses", "digest"))
            if not same and not why:
                why = f"digest {result['digest']}, natively {expected['digest']}"
            if "peak_reserved" in result:
                held = self.held.setdefault(run.case, {})
                held[run.kind] = max(held.get(run.kind, 0), result["peak_reserved"])
                row["efficiency"].append(round(100 * result["peak_allocated"] / result["peak_reserved"], 2))
        if why or result is None:
            self.wrong.append({"case": run.case, "kind": run.kind, "why": why})
            print(f"WRONG {run.case} {run.kind}: {why[-300:]}", flush=True)
        else:
            row["right"] += 1

    def natively(self) -> None:
        size = self.size()
        self.all([Run(case, "native", None, size) for case in self.arguments.cases for _ in range(NATIVE_RUNS)])
        small = ("--iterations", "5", "--width", "256")
        self.all([Run(case, "native small", None, small) for case in self.arguments.cases])

    def size(self) -> tuple[str, ...]:
        return ("--width", str(self.arguments.width))

    def plan(self) -> None:
        fast = (("STALLOC_TRACE_FAST_MODE", "1"),)
        short = (*self.size(), "--iterations", "4")
        with ThreadPoolExecutor(self.arguments.jobs) as pool:
            ended = list(
                pool.map(self.execute, [Run(case, "trace", "Trace", short, fast) for case in self.arguments.cases])
            )
        for one in ended:
            if one.result is None:
                self.wrong.append({"case": one.run.case, "kind": "trace", "why": one.error})
                print(f"WRONG {one.run.case} trace: {one.error[-300:]}", flush=True)
        planner = str(self.arguments.build.resolve() / "stalloc-planner")
        for case in self.arguments.cases:
            subprocess.run([planner, "plan", str(self.directory(case))], check=False, capture_output=True)

    def planned(self) -> None:
        size, half = self.size(), self.arguments.runs // 2
        cases = self.arguments.cases
        self.all([Run(case, "alloc", "Alloc", size) for case in cases for _ in range(self.arguments.runs - half)])
        if not self.held:
            return  # no device: nothing is limited or full
        limited = []
        for case in cases:
            for index in range(half):
                whose = "native" if index % 2 == 0 else "alloc"
                limit = str(int(ROOM * self.held[case].get(whose, self.held[case]["native"])))
                limited.append(Run(case, f"alloc, limited to {whose}'s", "Alloc", (*size, "--limit", limit)))
        self.all(limited)
        if self.arguments.no_full:
            return
        # One after the other, each mode on the same device: what ends natively may end here.
        for case in cases:
            left = str(int(ROOM * self.held[case]["native"]) + OUTSIDE)
            for kind, mode in (("native, device full", None), ("alloc, device full", "Alloc")):
                ended = self.execute(Run(case, kind, mode, (*size, "--fill", left)))
                if mode is None and ended.result is None:  # native's own end says nothing about stalloc
                    print(f"native ended on a full device: {case}", flush=True)
                    continue
                self.judge(ended)

    def checked(self) -> None:
        small = ("--iterations", "5", "--width", "256")
        runs = [
            Run(case, "CSAN", "Alloc", small, (("TORCH_CUDA_SANITIZER", "1"), ("STALLOC_TEST_MOVES", "1")))
            for case in self.arguments.cases
        ]
        sanitizer = checkers.compute_sanitizer()
        logs = {}
        if sanitizer is not None:
            for case in self.arguments.cases:
                logs[case] = self.work / f"{case}.memcheck"
                under = tuple(checkers.command(sanitizer, "memcheck", logs[case]))
                moves = (("STALLOC_TEST_MOVES", "1"),)
                runs.append(Run(case, "memcheck", "Alloc", small, moves, under))
        self.all(runs)
        for case, log in logs.items():
            try:
                findings = checkers.findings("memcheck", log)
            except AssertionError as error:
                self.wrong.append({"case": case, "kind": "memcheck", "why": str(error)})
                continue
            if findings.count > 0:
                self.wrong.append({"case": case, "kind": "memcheck", "why": str(sorted(findings.kinds))})

    def moving(self) -> None:
        end = time.monotonic() + self.arguments.moves_s
        spent = 0.0
        while time.monotonic() < end:
            variables = (("STALLOC_TEST_MOVES", "1"),)
            cases = self.arguments.cases
            ended = self.all([Run(case, "memory moves at marks", "Alloc", self.size(), variables) for case in cases])
            spent += sum(one.seconds for one in ended)
        self.runs["all memory moves at marks"] = {"process seconds": round(spent)}

    def write(self) -> None:
        runs = {name: {key: spread(value) for key, value in row.items()} for name, row in self.runs.items()}
        summary = {"wrong": self.wrong, "held": self.held, "runs": runs, "iterations": self.arguments.iterations}
        path = self.arguments.output / "threads.json"
        partial = path.with_suffix(".tmp")
        partial.write_text(json.dumps(summary, indent=1) + "\n")
        partial.replace(path)


def spread(value: Any) -> Any:
    """Of a list its least, median and most; anything else as it is."""
    if not isinstance(value, list) or not value:
        return value
    return {"least": min(value), "median": round(statistics.median(value), 2), "most": max(value)}


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, required=True, help="directory of threads.json")
    parser.add_argument("--cases", nargs="+", default=CASES, choices=CASES)
    parser.add_argument("--runs", type=int, default=20, help="in Alloc, of each case")
    parser.add_argument("--iterations", type=int, default=16)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--jobs", type=int, default=8, help="processes at a time")
    parser.add_argument("--moves-s", type=float, default=60, help="seconds for runs in which memory moves at marks")
    parser.add_argument("--no-checkers", action="store_true")
    parser.add_argument("--no-full", action="store_true", help="no runs alone on a filled device")
    parser.add_argument("--build", type=Path, default=ROOT / "build" / "release", help="build directory")
    return parser.parse_args()


def main() -> int:
    arguments = parse_arguments()
    arguments.output = arguments.output.resolve()
    arguments.output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="stalloc-threads-") as work:
        suite = Suite(arguments, Path(work))
        steps = [suite.natively, suite.plan, suite.planned, suite.moving]
        if not arguments.no_checkers:
            steps.append(suite.checked)
        for step in steps:
            begin = time.monotonic()
            step()
            suite.write()
            print(f"{step.__name__}: {time.monotonic() - begin:.0f} s", flush=True)

    for name, row in sorted(suite.runs.items()):
        print(name, json.dumps({key: spread(value) for key, value in row.items()}))
    print(f"{len(suite.wrong)} runs were not as they should be")
    return 1 if suite.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
