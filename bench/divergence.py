"""The divergence matrix: runs that depart from their plans, on the CPU, compared with the same runs under torch alone.

    python bench/divergence.py                                             # every case x dense, recompute, moe, outputs
    python bench/divergence.py --models dense --cases dropped resized --check
    python bench/divergence.py --build build/release --json out.json --markdown out.md

Each model is traced and planned once, undisturbed. Then each case (bench/divergence_cases.py) trains from the plan in a
process of its own. Its losses and weights must be those of the same case without stalloc, to the last bit, and every
guarded tensor must keep its bytes. Hits are shares of the requests that the plan was to serve (not those that it leaves
to upstream, nor those in a fence) and that got a slot, and in brackets of those that got a slot or idle room of the
arena: of the rest of the disturbed iteration, of the next one, and of the last two.
The outputs model keeps the outputs of its blocks in variables until the next iteration replaces them.
With --auto each case is one run under STALLOC_MODE=Auto, which takes its plan up before it is disturbed: losses and
weights are compared, and nothing else.
With --check the exit code is 1 where losses differ or a floor is not reached.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from compare_modes import machine
from divergence_cases import CASES
from divergence_report import Row, failures, is_equal, markdown, row_of

HERE = Path(__file__).resolve().parent
# By model: how divergence_train.py trains it.
FLAGS_OF = {
    "dense": ["--preset", "toy"],
    "recompute": ["--preset", "toy-recompute"],
    "moe": ["--preset", "toy-moe"],
    "outputs": ["--preset", "toy", "--keep-outputs"],
}
TRACED_ITERATIONS = 4
AUTO_TRACED_ITERATIONS = 3  # so that the plan is there before the disturbance
TIMEOUT_SECONDS = 600


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=list(FLAGS_OF), default=list(FLAGS_OF))
    parser.add_argument("--cases", nargs="+", choices=list(CASES), default=list(CASES), metavar="CASE")
    parser.add_argument("--marks", choices=["none", "iteration", "full"], default="full")
    parser.add_argument("--build", type=Path, help="build directory with the libraries (default: what is installed)")
    parser.add_argument("--auto", action="store_true", help="losses and weights of runs that plan for themselves")
    parser.add_argument("--json", type=Path, help="write all rows here")
    parser.add_argument("--markdown", type=Path, help="write the table here, too")
    parser.add_argument("--check", action="store_true", help="exit 1 unless losses are equal and floors are reached")
    parser.add_argument("--list", action="store_true", help="list the cases and exit")
    return parser.parse_args()


class Runner:
    """Starts the processes of one model. `directory` keeps its trace, its plan and what the runs wrote."""

    def __init__(self, arguments: argparse.Namespace, model: str, directory: Path) -> None:
        self.arguments = arguments
        self.model = model
        self.directory = directory
        directory.mkdir(parents=True)

    def environment(self, mode: str | None) -> dict[str, str]:
        chosen = {k: v for k, v in os.environ.items() if not k.startswith("STALLOC_") or k == "STALLOC_LIB_PATH"}
        chosen |= {"OMP_NUM_THREADS": "1", "STALLOC_MODEL_INFO_PATH": str(self.directory), "STALLOC_LOG_LEVEL": "1"}
        if self.arguments.build is not None:
            paths = [str(HERE.parent / "patches"), os.environ.get("PYTHONPATH", "")]
            chosen["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
            chosen["STALLOC_LIB_PATH"] = str(self.arguments.build.resolve())
        if mode is not None:
            chosen |= {"STALLOC_MODE": mode, "STALLOC_DEVICE": "cpu"}
        if mode == "Auto":
            chosen |= {"STALLOC_AUTO_WAIT": "1", "STALLOC_TRACE_STEPS": str(AUTO_TRACED_ITERATIONS)}
            chosen["STALLOC_MODEL_INFO_PATH"] = str(self.directory / "auto")
        return chosen

    def start(self, mode: str | None, *command: str) -> None:
        done = subprocess.run(
            [sys.executable, *command],
            env=self.environment(mode),
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SECONDS,
            check=False,
        )
        if done.returncode != 0:
            raise SystemExit(f"divergence: {' '.join(command)} ended with {done.returncode}:\n{done.stderr}")

    def train(self, mode: str | None, cases: list[str], *flags: str) -> dict[str, Any]:
        """The results by case, of one process that trains one after the other."""
        output = self.directory / f"{mode or 'plain'}.json"
        launcher = [] if mode is None else ["-m", "stalloc", "run"]
        command = [*launcher, str(HERE / "divergence_train.py"), *FLAGS_OF[self.model]]
        command += ["--marks", self.arguments.marks, "--json", str(output)]
        for case in cases:
            command += ["--case", case]
        self.start(mode, *command, *flags)
        results: dict[str, Any] = json.loads(output.read_text())
        return results

    def plan(self) -> None:
        self.train("Trace", ["none"], "--iterations", str(TRACED_ITERATIONS))
        self.start(None, "-m", "stalloc", "plan", str(self.directory))

    def rows(self) -> list[Row]:
        progress(f"{self.model}: trace and plan")
        self.plan()
        progress(f"{self.model}: {len(self.arguments.cases)} cases under torch's allocator")
        plain = self.train(None, self.arguments.cases)
        rows = []
        for number, case in enumerate(self.arguments.cases, 1):
            rows.append(row_of(self.model, case, self.train("Alloc", [case])[case], plain[case]))
            progress(f"{self.model}: {number}/{len(self.arguments.cases)} {rows[-1].line()}")
        return rows

    def auto_rows(self) -> list[dict[str, Any]]:
        plain = self.train(None, self.arguments.cases)
        rows: list[dict[str, Any]] = []
        for case in self.arguments.cases:
            shutil.rmtree(self.directory / "auto", ignore_errors=True)  # each traces for itself
            result = self.train("Auto", [case])[case]
            status = json.loads((self.directory / "auto" / "log_output" / "rank00000.auto.json").read_text())
            stages = [stage["stage"] for stage in status["stages"]]
            rows.append({"model": self.model, "case": case, "equal": is_equal(result, plain[case]), "stages": stages})
            progress(f"{self.model}: {case} {'equal' if rows[-1]['equal'] else 'DIFFERENT'}, {' '.join(stages)}")
        return rows


def progress(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def write(path: Path, text: str) -> None:
    partial = path.with_suffix(".tmp")
    partial.write_text(text)
    partial.replace(path)


def auto(arguments: argparse.Namespace) -> int:
    """The matrix of runs that plan for themselves."""
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="stalloc-divergence-") as temporary:
        for model in arguments.models:
            rows += Runner(arguments, model, Path(temporary) / model).auto_rows()
    if arguments.json:
        document = {"machine": machine(), "marks": arguments.marks, "auto": True, "rows": rows}
        write(arguments.json, json.dumps(document, indent=1) + "\n")
    wrong = [f"{row['model']}, {row['case']}" for row in rows if not row["equal"]]
    planned = sum(row["stages"][-1] == "planned" for row in rows)
    print(f"{len(rows) - len(wrong)} of {len(rows)} runs equal, {planned} with a plan")
    for name in wrong:
        print(f"divergence: {name}: losses or weights are not those of a run without stalloc", file=sys.stderr)
    return 1 if wrong and arguments.check else 0


def main() -> int:
    arguments = parse_arguments()
    if arguments.list:
        for name, make in CASES.items():
            print(f"{name:26} {make().text}")
        return 0
    if arguments.auto:
        return auto(arguments)
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="stalloc-divergence-") as temporary:
        for model in arguments.models:
            rows += Runner(arguments, model, Path(temporary) / model).rows()
    table = markdown(rows)
    print(table)
    if arguments.json:
        document = {"machine": machine(), "marks": arguments.marks, "rows": [row.as_json() for row in rows]}
        write(arguments.json, json.dumps(document, indent=1) + "\n")
    if arguments.markdown:
        write(arguments.markdown, table + "\n")
    problems = failures(rows)
    for problem in problems:
        print(f"divergence: {problem}", file=sys.stderr)
    return 1 if problems and arguments.check else 0


if __name__ == "__main__":
    sys.exit(main())
