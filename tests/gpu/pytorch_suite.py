"""PyTorch's own allocator tests under several allocators, side by side.

    git clone --depth 1 --branch v2.11.0 URL-OF-PYTORCH pytorch       # the tests of the torch that is installed
    python tests/gpu/pytorch_suite.py pytorch/test/test_cuda.py --output suite.json \\
        --expected tests/gpu/pytorch_suite_expected.json

Needs a GPU, pytest, pytest-timeout, expecttest and an installed stalloc (or STALLOC_LIB_PATH and PYTHONPATH). Runs the
test classes under torch's native allocator first, for the baseline, then under a plain CUDAPluggableAllocator and
stalloc's modes. A test's outcome is its worst in all passes. Exits 1 when a test fails under stalloc that passes
natively and is not listed in --expected, a JSON object of test names and reasons.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
CLASSES = "TestCuda TestCudaMallocAsync TestCudaAllocator TestBlockStateAbsorption TestMemPool"
# They ask for half of the device or look at what is free on it.
ALONE = r"out_of_memory|oom|memory_fraction|mem_get_info|large|64bit|garbage_collect|Absorption.*resnet"
MODES = ("native", "pluggable", "torch", "trace-exact", "trace-fast", "alloc")
OURS = ("torch", "trace-exact", "trace-fast", "alloc")
WORST = ("crashed", "failed", "passed", "skipped")
RUNNING: set[subprocess.Popen[bytes]] = set()


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path, help="PyTorch's test files")
    parser.add_argument(
        "--output", type=Path, required=True, help="JSON with every test's outcome under each allocator"
    )
    parser.add_argument("--modes", nargs="+", choices=MODES, default=["native", "pluggable", "torch", "alloc"])
    parser.add_argument("--classes", default=CLASSES)
    parser.add_argument("--alone", default=ALONE, help="regular expression: tests that run one at a time, at the end")
    parser.add_argument("--workers", type=int, default=6, help="processes that share the device")
    parser.add_argument("--passes", type=int, default=3, help="over all tests, in each process")
    parser.add_argument("--timeout", type=int, default=60, help="seconds for one test")
    parser.add_argument("--work", type=Path, default=Path("pytorch_suite_run"), help="traces, plans and records")
    parser.add_argument(
        "--baseline", type=Path, help="earlier output, from the same machine: its modes are not run again"
    )
    parser.add_argument("--expected", type=Path, help="JSON: tests that may fail under stalloc, with the reason")
    return parser.parse_args()


class Shard:
    """One worker's tests under one allocator: as many processes as it takes to get through them."""

    def __init__(self, arguments: argparse.Namespace, mode: str, number: int) -> None:
        self.arguments = arguments
        self.number = number
        name = "alone" if number < 0 else f"shard{number}"
        self.run = (arguments.work / name).resolve()  # trace and plan: the same folder in all modes
        self.record = self.run / f"{mode}.jsonl"
        self.log = self.run / f"{mode}.log"
        self.environment = {key: value for key, value in os.environ.items() if key != "STALLOC_MODE"}
        self.environment |= {
            "PYTHONPATH": f"{HERE}:{os.environ.get('PYTHONPATH', '')}",
            "SUITE_RECORD": str(self.record),
            "SUITE_ALLOCATOR": "stalloc" if mode in OURS else "native",
            "SUITE_CLASSES": arguments.classes,
            "SUITE_ALONE": arguments.alone,
            "SUITE_SHARD": str(number),
            "SUITE_SHARDS": str(arguments.workers),
            "SUITE_PASSES": str(arguments.passes),
            "STALLOC_MODEL_INFO_PATH": str(self.run),
            "OMP_NUM_THREADS": "2",
        }
        if mode == "pluggable":
            self.environment["SUITE_ALLOCATOR"] = pluggable_library()
        if mode in OURS:
            self.environment["STALLOC_MODE"] = mode.split("-", maxsplit=1)[0].capitalize()
            self.environment["STALLOC_TRACE_FAST_MODE"] = "1" if mode == "trace-fast" else "0"

    def execute(self) -> None:
        self.run.mkdir(parents=True, exist_ok=True)
        self.record.unlink(missing_ok=True)
        self.log.unlink(missing_ok=True)
        while True:
            done = sorted({event["test"] for event in self.events() if "test" in event})
            code = self.run_pytest(self.environment | {"SUITE_DONE": json.dumps(done)})
            if code in (0, 1, 5):  # all ran; some failed; none was left
                return
            if not self.note_crash(code, done):
                raise RuntimeError(f"pytest ended with {code} before any test: see {self.log}")

    def run_pytest(self, environment: dict[str, str]) -> int:
        with (
            self.log.open("a") as log,
            subprocess.Popen(self.command(), env=environment, stdout=log, stderr=log) as one,
        ):
            RUNNING.add(one)
            try:
                return one.wait()
            finally:
                RUNNING.discard(one)

    def command(self) -> list[str]:
        files = [str(path.resolve()) for path in self.arguments.files]
        options = ["-q", "-c", os.devnull, "-p", "pytorch_suite_plugin", "-p", "no:cacheprovider", "-p", "no:xdist"]
        options += [
            "--timeout",
            str(self.arguments.timeout),
            "--rootdir",
            str(self.arguments.files[0].resolve().parent),
        ]
        return [sys.executable, "-m", "pytest", *options, *files]

    def note_crash(self, code: int, before: list[str]) -> bool:
        """Writes down the test that was under way. False: none was."""
        started = [event for event in self.events() if event["event"] == "start" and event["test"] not in before]
        if not started:
            return False
        last = {"event": "end", "test": started[-1]["test"], "number": started[-1]["number"], "outcome": "crashed"}
        with self.record.open("a") as file:
            file.write(json.dumps(last | {"message": f"the process ended with {code}"}) + "\n")
        return True

    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.record.read_text().splitlines()] if self.record.exists() else []


def stop(*_: object) -> None:
    """At SIGTERM: tests that went on would keep their memory on the device."""
    for process in list(RUNNING):
        process.kill()
    os._exit(128 + signal.SIGTERM)


def pluggable_library() -> str:
    from stalloc import _library

    return str(_library.find_or_raise("libstalloc.so"))


def make_plans(arguments: argparse.Namespace) -> None:
    for run in sorted(path for path in arguments.work.iterdir() if path.is_dir()):
        subprocess.run([sys.executable, "-m", "stalloc", "plan", str(run)], check=False)


def run_mode(arguments: argparse.Namespace, mode: str) -> dict[str, Any]:
    """Every test's worst outcome, the message with it, and what stalloc counted."""
    begin = time.monotonic()
    shards = [Shard(arguments, mode, number) for number in range(arguments.workers)]
    with concurrent.futures.ThreadPoolExecutor(arguments.workers) as pool:
        list(pool.map(Shard.execute, shards))
    alone = Shard(arguments, mode, -1)
    alone.execute()
    tests: dict[str, dict[str, Any]] = {}
    stats = []
    for event in (event for shard in [*shards, alone] for event in shard.events()):
        if event["event"] == "stats":
            stats.append(event["stats"])
        elif event["event"] == "end":
            seen = tests.get(event["test"])
            if seen is None or WORST.index(event["outcome"]) < WORST.index(seen["outcome"]):
                tests[event["test"]] = {key: event[key] for key in ("outcome", "message", "seconds") if key in event}
    counts = Counter(test["outcome"] for test in tests.values())
    planned = {key: sum(each.get(key) or 0 for each in stats) for key in ("requests", "planned_hits", "heap_hits")}
    took = round(time.monotonic() - begin, 1)
    return {"seconds": took, "passes": arguments.passes, "counts": counts, "stalloc": planned, "tests": tests}


def new_failures(results: dict[str, Any], mode: str, expected: dict[str, str]) -> list[str]:
    """Tests that do not pass in this mode, pass natively and are not expected to fail."""
    native = results["native"]["tests"]
    return sorted(
        test
        for test, outcome in results[mode]["tests"].items()
        if outcome["outcome"] in ("failed", "crashed")
        and native.get(test, {}).get("outcome") == "passed"
        and test not in expected
    )


def main() -> int:
    arguments = parse_arguments()
    signal.signal(signal.SIGTERM, stop)
    expected = json.loads(arguments.expected.read_text()) if arguments.expected else {}
    arguments.work.mkdir(parents=True, exist_ok=True)
    modes = list(dict.fromkeys(["native", *arguments.modes]))
    if "alloc" in modes and not {"trace-exact", "trace-fast"} & set(modes):
        modes.insert(modes.index("alloc"), "trace-fast")
    results: dict[str, Any] = json.loads(arguments.baseline.read_text()) if arguments.baseline else {}
    modes = [mode for mode in modes if mode not in results]
    status = 0
    print(f"{'mode':>12} {'passed':>7} {'failed':>7} {'crashed':>8} {'skipped':>8} {'new':>4} {'seconds':>8}")
    for mode in modes:
        if mode == "alloc":
            make_plans(arguments)
        result = results[mode] = run_mode(arguments, mode)
        result["new_failures"] = new_failures(results, mode, expected if mode in OURS else {})
        if mode in OURS and result["new_failures"]:
            status = 1
        columns = [result["counts"].get(outcome, 0) for outcome in ("passed", "failed", "crashed", "skipped")]
        print(f"{mode:>12} {columns[0]:7} {columns[1]:7} {columns[2]:8} {columns[3]:8} {len(result['new_failures']):4} "
              f"{result['seconds']:8}", flush=True)  # fmt: skip
        for test in result["new_failures"] if mode in OURS else []:
            print(f"             {test}: {result['tests'][test]['message'].splitlines()[-1:]}")
        arguments.output.write_text(json.dumps(results, indent=1) + "\n")
    return status


if __name__ == "__main__":
    sys.exit(main())
