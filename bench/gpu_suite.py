"""All measurements that need a GPU, in one go: GPU tests, then the comparison of allocators on each workload.

    python bench/gpu_suite.py --output results --workloads dense-1b half-recompute-3b

Writes one JSON a workload and the tests' report to --output, prints the tables. Exits 1 if a test or run failed; a
workload that fails does not stop the others.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--workloads", nargs="*", default=["dense-1b", "half-recompute-3b"])
    parser.add_argument("--iterations", type=int, default=30)
    parser.add_argument("--modes", nargs="+", default=["native", "expandable", "trace-fast", "trace-exact", "alloc"])
    parser.add_argument("--no-tests", action="store_true")
    parser.add_argument("--test-binaries", nargs="*", type=Path, default=[], help="C++ GPU tests to run too")
    parser.add_argument("train", nargs="*", help="arguments for train_gpt.py, after --")
    return parser.parse_args()


def run(name: str, command: list[str]) -> bool:
    print(f"== {name}", flush=True)
    return subprocess.run(command, check=False).returncode == 0


def main() -> int:
    arguments = parse_arguments()
    arguments.output.mkdir(parents=True, exist_ok=True)
    failed = []
    if not arguments.no_tests:
        report = str(arguments.output / "gpu_tests.xml")
        folder = str(HERE.parent / "tests" / "gpu")
        if not run("GPU tests", [sys.executable, "-m", "pytest", "-q", "-rs", f"--junitxml={report}", folder]):
            failed.append("GPU tests")
    failed += [str(binary) for binary in arguments.test_binaries if not run(str(binary), [str(binary)])]
    for workload in arguments.workloads:
        command = [sys.executable, str(HERE / "compare_modes.py"), "--preset", workload]
        command += ["--iterations", str(arguments.iterations), "--modes", *arguments.modes]
        command += ["--json", str(arguments.output / f"{workload}.json"), "--", *arguments.train]
        if not run(workload, command):
            failed.append(workload)
    if failed:
        print("failed: " + ", ".join(failed), file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
