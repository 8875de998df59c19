"""Runs a training program under each allocator, each time in fresh processes: what it held, its speed, its losses.

    python bench/run.py -- bench/train_gpt.py --preset toy --iterations 20       # CPU or GPU, whatever torch finds
    python bench/run.py --ranks 2 --modes native expandable auto -- train_fsdp.py                   # with torchrun
    python bench/run.py --suite presets --output results               # of workloads/suites.json

Modes: see bench/modes.py. E is peak live bytes / peak held bytes; live bytes are those that stalloc counts (each
request rounded up to 512 B, from allocation to free), in the run or in that of its plan, else PyTorch's. Of auto it
counts from the iteration on that took the plan up. Steps end with those of the program's first optimizer
(bench/card/child.py); bench/card/card.py compares them alternately, and in less memory. Losses are compared where
the program prints a line of JSON a rank, which may follow the word RESULT, with its `losses` and `weights` (a digest).
The JSON is written anew after each mode. Exit code 1: --check has found a problem, or a run failed.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Optional

import table
from documents import machine, write_json
from modes import AUTO, MODES, TRACES, UNDER_STALLOC, Modes, PlanError, await_planners

HERE = Path(__file__).resolve().parent
EXIT_OUT_OF_MEMORY = 3  # of child.py, and of programs here


class RunError(Exception):
    """A run failed; says which."""


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--modes", nargs="+", choices=MODES, default=["native", "expandable", "trace-fast", "alloc"])
    parser.add_argument("--device", choices=["auto", "cuda", "cpu"], default="auto")
    parser.add_argument("--ranks", type=int, default=1, help="processes, one a GPU (default: 1, without torchrun)")
    parser.add_argument("--port", type=int, default=29611, help="of torchrun")
    parser.add_argument("--trace-steps", type=int, default=4, help="steps that are traced; 0: all (default: 4)")
    parser.add_argument("--set", nargs="+", default=[], metavar="NAME=VALUE", help="for all of stalloc's processes")
    parser.add_argument("--plan-options", type=shlex.split, default=[], help="for stalloc plan, as one word")
    parser.add_argument("--directory", type=Path, help="where traces and plans go (default: a temporary directory)")
    parser.add_argument("--json", type=Path, help="write all results here")
    parser.add_argument("--markdown", action="store_true", help="print the table as Markdown")
    parser.add_argument("--check", action="store_true", help="exit 1 unless losses are equal and the plan held")
    parser.add_argument("--min-efficiency", type=float, default=0.0, help="with --check: Alloc's least E, in percent")
    parser.add_argument("--min-hits", type=float, default=99.9, help="with --check: Alloc's least hit rate, percent")
    parser.add_argument("--max-step-ratio", type=float, help="with --check: Alloc's median step, in native's")
    parser.add_argument(
        "--suite", help="of bench/workloads/suites.json; each program's JSON goes into --output, and stays there"
    )
    parser.add_argument("--output", type=Path, help="of --suite")
    parser.add_argument("program", nargs=argparse.REMAINDER, help="a Python program and its arguments, after --")
    chosen = parser.parse_args()
    if chosen.program[:1] == ["--"]:
        del chosen.program[0]
    if bool(chosen.program) == bool(chosen.suite) or bool(chosen.suite) != bool(chosen.output):
        parser.error("expected a program after --, or --suite with --output")
    return chosen


class Comparison:
    """The runs of one program."""

    def __init__(self, chosen: argparse.Namespace, directory: Path) -> None:
        self._chosen, self._directory = chosen, directory
        trace = next((mode for mode in TRACES if mode in chosen.modes), TRACES[0])
        self.modes = Modes(directory, trace, chosen.device, chosen.set)
        self.plan: Optional[dict[str, Any]] = None
        self.runs: dict[str, list[dict[str, Any]]] = {}  # by mode, of each rank

    def run_all(self) -> None:
        directory = self._directory
        directory.mkdir(parents=True, exist_ok=True)
        for mode in self._chosen.modes:
            if mode == "alloc":
                if not any(trace in self.runs for trace in TRACES):
                    self.run("trace-fast")
                self.plan = self.modes.plan(self._chosen.plan_options)
            self.run(mode)
            self.write(complete=False)

    def run(self, mode: str) -> None:
        print(f"== {mode}", file=sys.stderr, flush=True)
        if mode == "auto":
            shutil.rmtree(self.modes.run_directory(mode), ignore_errors=True)  # else it is the next start
        reports = self._directory / f"{mode}.steps"
        shutil.rmtree(reports, ignore_errors=True)
        reports.mkdir()
        environment = self.modes.environment(mode)
        if mode in TRACES and self._chosen.trace_steps:
            environment["STALLOC_TRACE_STEPS"] = str(self._chosen.trace_steps)
        begin = time.perf_counter()
        done = subprocess.run(
            self._command(mode, reports), env=environment, stdout=subprocess.PIPE, text=True, check=False
        )
        seconds = time.perf_counter() - begin
        if mode in AUTO:
            await_planners(self.modes.run_directory(mode))
        ranks = [_figures(path) for path in sorted(reports.iterdir())]
        if any("out_of_memory" in rank for rank in ranks):
            done.returncode = EXIT_OUT_OF_MEMORY  # whatever the other ranks and torchrun made of it
        if done.returncode not in (0, EXIT_OUT_OF_MEMORY):
            raise RunError(f"the {mode} run failed with exit code {done.returncode}\n{done.stdout[-3000:]}")
        printed = printed_of(done.stdout)
        for rank, of_rank in enumerate(ranks):
            of_rank.update({"wall_seconds": seconds, "printed": printed[rank] if rank < len(printed) else {}})
            if mode in UNDER_STALLOC and done.returncode == 0:
                of_rank.update(self._summary(mode, rank))
        self.runs[mode] = ranks

    def _command(self, mode: str, reports: Path) -> list[str]:
        command, ranks = [sys.executable], self._chosen.ranks
        if ranks > 1:
            command += ["-m", "torch.distributed.run", f"--nproc-per-node={ranks}"]
            command += [f"--master-port={self._chosen.port}"]
        command += [*self.modes.launcher(mode), str(HERE / "card" / "child.py")]
        return [*command, "--report", f"{reports}/rank{{rank}}.jsonl", "--", *self._chosen.program]

    def _summary(self, mode: str, rank: int) -> dict[str, Any]:
        """What a run says of itself."""
        log = self.modes.run_directory(mode) / "log_output"
        found = {"summary": json.loads((log / f"rank{rank:05}.summary.json").read_text())}
        if mode in AUTO:
            found["stages"] = json.loads((log / f"rank{rank:05}.auto.json").read_text())["stages"]
        return found

    def rows(self) -> list[dict[str, Any]]:
        return table.rows_of(self.runs, self.plan)

    def write(self, complete: bool, problems: list[str] | None = None) -> None:
        if self._chosen.json is None:
            return
        document = {
            "command": [Path(sys.argv[0]).name, *sys.argv[1:]],
            "program": self._chosen.program,
            "ranks": self._chosen.ranks,
            "machine": machine(),
            "complete": complete,  # false: more modes were to come
            "problems": problems or [],
            "rows": self.rows(),
            "plan": self.plan,
            "runs": self.runs,
        }
        write_json(self._chosen.json, document)


def _figures(report: Path) -> dict[str, Any]:
    """Steps and memory of a rank, from what child.py has reported."""
    events = [json.loads(line) for line in report.read_text().splitlines()]
    end = events[-1] if events and events[-1]["event"] in ("end", "out_of_memory") else {}
    found = {"step_seconds": [event["seconds"] for event in events if event["event"] == "step"], **end}
    if found.pop("event", None) == "out_of_memory":
        found["out_of_memory"] = found["message"]
    return found


def printed_of(output: str) -> list[dict[str, Any]]:
    """The lines of JSON with losses, one a rank, in the order of ranks where they give it."""
    found = []
    for line in output.splitlines():
        text = line.strip().removeprefix("RESULT ")
        if text.startswith("{") and '"losses"' in text:
            found.append(json.loads(text))
    return sorted(found, key=lambda printed: int(printed.get("rank", 0)))


def compare(chosen: argparse.Namespace) -> int:
    """One program; exit code."""
    with tempfile.TemporaryDirectory(prefix="stalloc-run-") as temporary:
        comparison = Comparison(chosen, chosen.directory or Path(temporary))
        try:
            comparison.run_all()
        except (RunError, PlanError) as error:
            print(f"run: {error}", file=sys.stderr)
            return 1
        rows = comparison.rows()
        device = next((run[0].get("device") for run in comparison.runs.values()), None)
        print(f"{' '.join(chosen.program)} on {device}")
        print(f"{table.modes_table(rows, chosen.markdown)}\n{table.COLUMNS}")
        for line in table.remarks(rows, comparison.plan):
            print(line)
        if chosen.directory is not None and comparison.plan is not None:
            print_page(comparison.modes.run_directory("alloc"))
        problems = table.problems_of(rows, comparison.plan, chosen) if chosen.check else []
        comparison.write(complete=True, problems=problems)
    for problem in problems:
        print(f"run: {problem}", file=sys.stderr)
    return 1 if problems else 0


def print_page(run: Path) -> None:
    """Where plotly is there, the page of the plan."""
    if importlib.util.find_spec("plotly") is None:
        return
    found = subprocess.run(
        [sys.executable, "-m", "stalloc", "report", str(run)], capture_output=True, text=True, check=False
    )
    print(f"report: {found.stdout.strip()}" if found.returncode == 0 else found.stderr.strip())


def obstacle(entry: dict[str, Any], gpus: int) -> Optional[str]:
    """Why a program of a suite does not run here."""
    missing = [name for name in entry.get("needs", []) if importlib.util.find_spec(name) is None]
    if missing:
        return f"needs {', '.join(missing)}"
    wanted = max(entry.get("ranks", 1) if gpus else 0, entry.get("gpus", 0))
    return f"needs {wanted} GPU{'s' * (wanted > 1)}" if wanted > gpus else None


def run_suite(chosen: argparse.Namespace) -> int:
    """Exit code: 1 where a program failed. One that is complete in the output is not run again."""
    import torch

    gpus = int(torch.cuda.device_count()) if chosen.device != "cpu" else 0
    chosen.output.mkdir(parents=True, exist_ok=True)
    code = 0
    for entry in json.loads((HERE / "workloads" / "suites.json").read_text())[chosen.suite]:
        words = [entry["program"], *entry.get("gpu" if gpus else "cpu", [])]
        path = chosen.output / f"{entry.get('name') or Path(words[0]).stem}.json"
        if path.exists() and json.loads(path.read_text())["complete"]:
            continue
        if (why := obstacle(entry, gpus)) is not None:
            print(f"== {path.stem}: {why}", file=sys.stderr, flush=True)
            continue
        own = argparse.Namespace(**vars(chosen))
        own.program, own.ranks, own.json = words, entry.get("ranks", 1), path
        code = max(code, compare(own))
    print(table.programs_table([json.loads(path.read_text()) for path in sorted(chosen.output.glob("*.json"))]))
    return code


def main() -> int:
    chosen = parse_arguments()
    return run_suite(chosen) if chosen.suite else compare(chosen)


if __name__ == "__main__":
    sys.exit(main())
