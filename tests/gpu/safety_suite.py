"""Everything that shows the adapter to be safe on GPUs, in one run: tests, checkers, two GPUs, PyTorch's own tests.

    python tests/gpu/safety_suite.py --output results                    # after a release build; one GPU, or more
    python tests/gpu/safety_suite.py --output results --only memcheck racecheck
    python tests/gpu/safety_suite.py --output results --budget-s 600 --pytorch-tests pytorch/test

Parts run side by side, each with a time limit; what needs a GPU for itself has one. `results/summary.json` is written
anew whenever a part has ended: its outcome, failures with the ends of their tracebacks, why tests were skipped, and
figures. `results/logs.txt` has the last lines of the parts that did not pass. A part that needs more GPUs than there
are is skipped, and says so. Exits 1 if a part failed or its time was up.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import os
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Callable

import gpu_reports
from gpu_devices import visible_devices
from gpu_schedule import Ended, Program, run_all

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
LOG_LINES = 60
# What is tested needs no NVLink multicast, and a process that dies in it can leave it broken for others.
NO_MULTICAST = {"NCCL_NVLS_ENABLE": "0", "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1", "NVSHMEM_DISABLE_NVLS": "1"}
CHECKERS = "test_checkers_cuda.py"
# pytest-benchmark takes xdist's presence for a warning, and warnings are errors here.
PLUGINS_OFF = ["-p", "no:cacheprovider", "-p", "no:benchmark"]
TEST_SECONDS = 290  # for one test
WORKERS = max(2, min(8, (os.cpu_count() or 2) // 4))  # several parts run at a time, each test starts processes
PYTORCH_WORKERS, PYTORCH_SECONDS = 8, 330  # PyTorch's tests: processes on a device, seconds for one mode

Report = Callable[[Path], dict[str, Any]]


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, required=True, help="directory of summary.json and logs.txt")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="parts to run (default: all); see --list")
    parser.add_argument("--budget-s", type=float, default=math.inf, help="seconds for all parts together")
    parser.add_argument("--build", type=Path, default=ROOT / "build" / "release", help="build directory")
    parser.add_argument("--work", type=Path, help="reports and logs (default: a temporary directory)")
    parser.add_argument("--workers", type=int, default=WORKERS, help="processes of each part with tests in parallel")
    parser.add_argument(
        "--pytorch-tests", type=Path, help="directory with PyTorch's test_cuda.py (and ..._multigpu.py)"
    )
    parser.add_argument("--pytorch-modes", nargs="+", default=["native", "torch", "trace-fast", "alloc"])
    parser.add_argument("--list", action="store_true", help="list the parts and exit")
    return parser.parse_args()


def is_inherited(variable: str) -> bool:
    """Not the settings of the process that runs the suite; but where frameworks are is for the tests to know."""
    return not variable.startswith("STALLOC_") or variable.startswith("STALLOC_FRAMEWORKS_")


class Suite:
    """The parts, and what came of them."""

    def __init__(self, arguments: argparse.Namespace, work: Path) -> None:
        self.arguments = arguments
        self.work = work
        self.programs: list[Program] = []
        self.reports: dict[str, tuple[Report, Path]] = {}
        self.summary: dict[str, Any] = {"devices": visible_devices(), "parts": {}}
        self.begin = time.monotonic()
        self._add_parts()

    def _add_parts(self) -> None:
        """In the order of gpu_schedule: what needs a device alone first, what needs all of them last."""
        neither = "not two_gpus and not whole_gpu"
        self._add_gtest("cuda_driver_test", devices=2, alone=True)  # of seconds; it looks at what is free on the device
        self._add_pytest("whole-gpu", ["-m", "whole_gpu"], 400, workers=0, alone=True)
        self._add_gtest("cuda_stream_reuse_test", alone=True)
        self._add_pytest("two-gpus", ["-m", "two_gpus"], 300, devices=2, least=2)
        self._add_pytest("python", ["-m", neither, f"--ignore={HERE / 'python' / CHECKERS}"], 300)
        for tool in ("racecheck", "memcheck"):
            self._add_pytest(tool, ["-k", tool], 300, file=CHECKERS)
        self._add_pytest("torch-sanitizer", ["-k", "torchs_sanitizer"], 300, file=CHECKERS)
        self._add_gtest("cuda_arena_test", alone=True)  # it looks, too
        for test in ("cuda_events_test", "cuda_memory_gpu_test"):
            self._add_gtest(test)
        if self.arguments.pytorch_tests is not None:
            self._add_pytorch(self.arguments.pytorch_tests)

    def _add(self, name: str, report: Report, file: Path, command: list[str], limit_s: float, **needs: Any) -> None:
        self.reports[name] = (report, file)
        self.programs.append(Program(name, command, self.work / f"{name}.log", limit_s, **needs))

    def _add_pytest(
        self, name: str, selection: list[str], limit_s: float, workers: int | None = None, file: str = "", **needs: Any
    ) -> None:
        report = self.work / f"{name}.xml"
        workers = self.arguments.workers if workers is None else workers
        command = [sys.executable, "-m", "pytest", "-q", "-rs", *PLUGINS_OFF, f"--junitxml={report}"]
        command += ["-o", "junit_logging=no", f"--rootdir={ROOT}", "-c", str(ROOT / "pyproject.toml")]
        if importlib.util.find_spec("xdist") is not None:
            command += ["-n", str(workers)]
        if importlib.util.find_spec("pytest_timeout") is not None:
            command += ["--timeout", str(TEST_SECONDS)]
        self._add(
            name, gpu_reports.junit, report, [*command, *selection, str(HERE / "python" / file)], limit_s, **needs
        )

    def _add_gtest(self, test: str, **needs: Any) -> None:
        report = self.work / f"{test}.json"
        binary = self.arguments.build.resolve() / "tests" / test
        self._add(test, gpu_reports.gtest, report, [str(binary), f"--gtest_output=json:{report}"], 120, **needs)

    def _add_pytorch(self, tests: Path) -> None:
        report = self.arguments.output / "pytorch.json"
        files = [str(path) for name in ("test_cuda.py", "test_cuda_multigpu.py") if (path := tests / name).exists()]
        command = [sys.executable, str(HERE / "pytorch_suite.py"), *files, "--output", str(report)]
        command += ["--expected", str(HERE / "pytorch_suite_expected.json"), "--work", str(self.work / "pytorch")]
        command += ["--workers", str(PYTORCH_WORKERS), "--limit", str(PYTORCH_SECONDS)]
        command += ["--modes", *self.arguments.pytorch_modes]
        limit = (PYTORCH_SECONDS + 10.0) * (len(self.arguments.pytorch_modes) + 1)
        self._add("pytorch", gpu_reports.pytorch_suite, report, command, limit, devices=2, alone=True)

    def environment(self) -> dict[str, str]:
        build = str(self.arguments.build.resolve())
        inherited = {key: value for key, value in os.environ.items() if is_inherited(key)}
        return (
            NO_MULTICAST
            | inherited
            | {
                "STALLOC_BUILD_DIR": build,
                "STALLOC_LIB_PATH": build,
                "STALLOC_LIBRARY": f"{build}/libstalloc.so",
                "LD_LIBRARY_PATH": os.pathsep.join(filter(None, [build, os.environ.get("LD_LIBRARY_PATH", "")])),
                "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT / "patches"), os.environ.get("PYTHONPATH", "")])),
            }
        )

    def run(self) -> bool:
        """Whether nothing failed."""
        chosen = self.arguments.only or [program.name for program in self.programs]
        programs = [program for program in self.programs if program.name in chosen]
        good = True
        for ended in run_all(programs, self.summary["devices"], self.environment(), self.arguments.budget_s):
            part = self._part(ended)
            self.summary["parts"][ended.program.name] = part
            self.summary["seconds"] = round(time.monotonic() - self.begin, 1)
            write(self.arguments.output / "summary.json", json.dumps(self.summary, indent=1) + "\n")
            good = good and part["status"] in ("passed", "skipped")
            counts = ", ".join(f"{count} {what}" for what, count in sorted(part.get("counts", {}).items()))
            print(f"{ended.program.name}: {part['status']} in {ended.seconds} s {counts}", flush=True)
            if part["status"] not in ("passed", "skipped") and ended.started:
                self._keep_log(ended.program)
        return good

    def _part(self, ended: Ended) -> dict[str, Any]:
        program = ended.program
        if not ended.started:
            enough = len(self.summary["devices"]) >= program.least
            why = "no time was left" if enough else f"needs {program.least} GPUs: {len(self.summary['devices'])} here"
            return {"status": "not run" if enough else "skipped", "because": why}
        report, file = self.reports[program.name]
        part: dict[str, Any] = {"seconds": ended.seconds, "devices": ended.devices, "code": ended.code}
        try:
            part |= report(file)
        except Exception as error:  # a report that was cut off must not end the others
            part["report_error"] = f"{file.name}: {error}"
        if ended.code is None:
            part["status"] = "timed out"
        else:
            part["status"] = "passed" if ended.code == 0 and part.get("counts", part.get("modes")) else "failed"
        if part["status"] == "passed" and "counts" in part and not part["counts"].get("passed"):
            part["status"] = "skipped"
        return part

    def _keep_log(self, program: Program) -> None:
        lines = program.log.read_text(errors="replace").splitlines()[-LOG_LINES:]
        with (self.arguments.output / "logs.txt").open("a") as file:
            file.write("\n".join([f"== {program.name}: {' '.join(program.command)}", *lines, "", ""]))


def write(path: Path, text: str) -> None:
    partial = path.with_suffix(".tmp")
    partial.write_text(text)
    partial.replace(path)


def main() -> int:
    arguments = parse_arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # ends what runs, too
    arguments.output = arguments.output.resolve()
    with tempfile.TemporaryDirectory(prefix="stalloc-safety-") as temporary:
        work = (arguments.work or Path(temporary)).resolve()
        work.mkdir(parents=True, exist_ok=True)
        suite = Suite(arguments, work)
        names = [program.name for program in suite.programs]
        if arguments.list:
            print("\n".join(names))
            return 0
        unknown = sorted(set(arguments.only or []) - set(names))
        if unknown:
            print(f"safety_suite: no such part: {', '.join(unknown)}; there are {', '.join(names)}", file=sys.stderr)
            return 2
        arguments.output.mkdir(parents=True, exist_ok=True)
        (arguments.output / "logs.txt").unlink(missing_ok=True)
        return 0 if suite.run() else 1


if __name__ == "__main__":
    sys.exit(main())
