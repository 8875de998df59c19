"""PyTorch's own allocator tests under several allocators, side by side.

    git clone --depth 1 --branch v2.11.0 URL-OF-PYTORCH pytorch       # the tests of the torch that is installed
    python tests/gpu/pytorch_suite.py pytorch/test/test_cuda.py --output suite.json \\
        --expected tests/gpu/pytorch_suite_expected.json

Needs a GPU, pytest, pytest-timeout, expecttest and an installed stalloc (or STALLOC_LIB_PATH and PYTHONPATH); with two
GPUs, pytorch/test/test_cuda_multigpu.py can be named beside test_cuda.py, and the tests that need a GPU for themselves
run at the same time as the others. Runs the test classes under torch's native allocator first, for the baseline, then
under a plain CUDAPluggableAllocator and stalloc's modes. A test's outcome is its worst in all passes. With --limit a
mode that takes longer is cut off, and what it did not reach is listed; an interrupt cuts off the mode that runs and
leaves out the rest. Exits 1 when a test fails under stalloc that
passes natively and is not listed in --expected, a JSON object of test names and reasons; 2 when there is no GPU.
"""

from __future__ import annotations

import argparse
import json
import math
import signal
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from gpu_devices import visible_devices
from pytorch_suite_shards import OURS, PROCESSES, assign, execute

CLASSES = (
    "TestCuda TestCudaMallocAsync TestCudaAllocator TestBlockStateAbsorption TestMemPool TestCudaMultiGPU TestCudaComm"
)
# They ask for half of the device or look at what is free on it.
ALONE = (
    r"out_of_memory|oom|memory_fraction|mem_get_info|large|64bit|huge|garbage_collect|Absorption.*resnet"
    r"|device_memory_used|repeat_graph_capture_cublas"
)
MULTIPLE = r"multigpu\.py::"
MODES = ("native", "pluggable", "torch", "trace-exact", "trace-fast", "alloc")
COUNTED = ("requests", "planned_hits", "heap_hits")
COUNTS = ("passed", "failed", "crashed", "skipped")
WORST = ("crashed", "failed", "passed", "skipped")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path, help="PyTorch's test files")
    parser.add_argument(
        "--output", type=Path, required=True, help="JSON with every test's outcome under each allocator"
    )
    parser.add_argument("--modes", nargs="+", choices=MODES, default=["native", "pluggable", "torch", "alloc"])
    parser.add_argument("--classes", default=CLASSES)
    parser.add_argument("--alone", default=ALONE, help="regular expression: tests that need a GPU for themselves")
    parser.add_argument("--multiple", default=MULTIPLE, help="regular expression: tests of several GPUs")
    parser.add_argument("--workers", type=int, default=6, help="processes that share the device")
    parser.add_argument("--passes", type=int, default=3, help="over all tests, in each process")
    parser.add_argument("--timeout", type=int, default=60, help="seconds for one test")
    parser.add_argument("--limit", type=float, default=math.inf, help="seconds for one mode")
    parser.add_argument("--work", type=Path, default=Path("pytorch_suite_run"), help="traces, plans and records")
    parser.add_argument(
        "--baseline", type=Path, help="earlier output, from the same machine: its modes are not run again"
    )
    parser.add_argument("--expected", type=Path, help="JSON: tests that may fail under stalloc, with the reason")
    return parser.parse_args()


def make_plans(arguments: argparse.Namespace) -> None:
    """All at once: each stops searching after its time limit."""
    runs = sorted(path for path in arguments.work.iterdir() if path.is_dir())
    command = [sys.executable, "-m", "stalloc", "plan", "--threads", "2"]
    with ThreadPoolExecutor(max(1, len(runs))) as pool:
        list(pool.map(lambda run: subprocess.run([*command, str(run)], check=False), runs))


def run_mode(arguments: argparse.Namespace, mode: str, devices: list[str], native: dict[str, Any]) -> dict[str, Any]:
    """Every test's worst outcome, what stalloc counted, and which tests of `native` were not reached."""
    begin = time.monotonic()
    seconds = {test: outcome.get("seconds", 0.0) for test, outcome in native.items()}
    (arguments.work / "assigned.json").write_text(json.dumps(assign(seconds, arguments.workers)))
    tests: dict[str, dict[str, Any]] = {}
    stats: dict[tuple[str, int], dict[str, int]] = {}  # the last of each process
    for shard in execute(arguments, mode, devices, begin + arguments.limit):
        for event in shard.events():
            if event["event"] == "stats":
                stats[str(shard.run), event["process"]] = event["stats"]
            elif event["event"] == "end":
                keep_worst(tests, event)
    return {
        "seconds": round(time.monotonic() - begin, 1),
        "passes": arguments.passes,
        "counts": Counter(test["outcome"] for test in tests.values()),
        "stalloc": {key: sum(each.get(key) or 0 for each in stats.values()) for key in COUNTED},
        "not_reached": sorted(set(native) - set(tests)),
        "tests": tests,
    }


def keep_worst(tests: dict[str, dict[str, Any]], event: dict[str, Any]) -> None:
    """The test's worst outcome, and the longest that it took."""
    seen = tests.setdefault(event["test"], {"outcome": "skipped", "seconds": 0.0})
    if WORST.index(event["outcome"]) < WORST.index(seen["outcome"]):
        seen |= {"outcome": event["outcome"], "message": event.get("message", "")}
    seen["seconds"] = max(seen["seconds"], event.get("seconds", 0.0))


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
    signal.signal(signal.SIGTERM, PROCESSES.stop)
    signal.signal(signal.SIGINT, PROCESSES.interrupt)
    devices = visible_devices()
    if not devices:
        print("no GPU to run PyTorch's tests on", file=sys.stderr)
        return 2
    expected = json.loads(arguments.expected.read_text()) if arguments.expected else {}
    arguments.work.mkdir(parents=True, exist_ok=True)
    modes = list(dict.fromkeys(["native", *arguments.modes]))
    if "alloc" in modes and not {"trace-exact", "trace-fast"} & set(modes):
        modes.insert(modes.index("alloc"), "trace-fast")
    results: dict[str, Any] = json.loads(arguments.baseline.read_text()) if arguments.baseline else {}
    modes = [mode for mode in modes if mode not in results]
    status = 0
    print(f"{'mode':>12} " + " ".join(f"{name:>12}" for name in [*COUNTS, "not reached", "new failures", "seconds"]))
    for mode in modes:
        if PROCESSES.interrupted:
            break
        if mode == "alloc":
            make_plans(arguments)
        result = results[mode] = run_mode(arguments, mode, devices, results.get("native", {}).get("tests", {}))
        result["new_failures"] = new_failures(results, mode, expected if mode in OURS else {})
        if mode in OURS and result["new_failures"]:
            status = 1
        columns = [result["counts"].get(outcome, 0) for outcome in COUNTS]
        columns += [len(result["not_reached"]), len(result["new_failures"]), result["seconds"]]
        print(f"{mode:>12} " + " ".join(f"{column:12}" for column in columns), flush=True)
        for test in result["new_failures"] if mode in OURS else []:
            print(f"             {test}: {result['tests'][test]['message'].splitlines()[-1:]}")
        arguments.output.write_text(json.dumps(results, indent=1) + "\n")
    return 1 if PROCESSES.interrupted else status


if __name__ == "__main__":
    sys.exit(main())
