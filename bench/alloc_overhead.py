"""What one allocation and its free cost under each allocator, at the median and at the 99th percentile.

    python bench/alloc_overhead.py --threads 1 4 --json overhead.json

In each round every thread allocates its blocks, then all are freed; each call is timed, the clock's own cost is taken
off. Allocators: native, expandable (expandable_segments:True), pluggable (libstalloc.so as a plain
CUDAPluggableAllocator over the driver's pool), planned (Alloc mode, requests in the plan) and fallback (Alloc mode,
every fourth request not in the plan; only those are timed). Each in a fresh process. Needs a build of this repository
(STALLOC_LIB_PATH, or --library) for stalloc_allocation_times.
"""

from __future__ import annotations

import argparse
import ctypes
import datetime
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ALLOCATORS = ["native", "expandable", "pluggable", "planned", "fallback"]
WARM_UP = 5  # rounds
TRACED = 4


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--allocators", nargs="+", choices=ALLOCATORS, default=ALLOCATORS)
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 4])
    parser.add_argument("--blocks", type=int, default=64, help="of each thread in a round")
    parser.add_argument("--bytes", type=int, default=2 << 20, help="of a block")
    parser.add_argument("--rounds", type=int, default=400)
    parser.add_argument("--device", choices=["auto", "cuda", "cpu"], default="auto")
    parser.add_argument("--library", type=Path, help="libstalloc_allocation_times.so")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    return parser.parse_args()


def find_library(arguments: argparse.Namespace) -> Path:
    name = "libstalloc_allocation_times.so"
    path = arguments.library or Path(os.environ.get("STALLOC_LIB_PATH", "build/release")) / name
    if not path.exists():
        sys.exit(f"error: {path}: not there; build the target stalloc_allocation_times or name it with --library")
    return Path(path)


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """In the child: all rounds; nanoseconds of the calls that are asked for."""
    allocator, rounds = arguments.child, arguments.rounds
    import torch

    cuda = arguments.device == "cuda" or (arguments.device == "auto" and torch.cuda.is_available())
    stalloc = None
    if os.environ.get("STALLOC_MODE") in ("Trace", "Alloc"):
        import stalloc

        rounds = TRACED if os.environ["STALLOC_MODE"] == "Trace" else rounds
    if allocator == "pluggable":
        from stalloc.core import library as _library

        pluggable = str(_library.find_or_raise("libstalloc.so"))
        plain = torch.cuda.memory.CUDAPluggableAllocator(pluggable, "stalloc_malloc", "stalloc_free")
        torch.cuda.memory.change_current_allocator(plain)
    if cuda:
        torch.cuda.init()
        torch.cuda.synchronize()
    library = ctypes.CDLL(str(find_library(arguments)))
    library.stalloc_bench_clock.restype = ctypes.c_double
    (threads,) = arguments.threads
    total = threads * arguments.blocks
    unplanned = allocator == "fallback" and os.environ.get("STALLOC_MODE") == "Alloc"
    sizes = [arguments.bytes + (65536 if unplanned and i % 4 == 3 else 0) for i in range(arguments.blocks)]
    asked = [i for i in range(total) if not unplanned or i % arguments.blocks % 4 == 3]
    bytes_ = (ctypes.c_size_t * arguments.blocks)(*sizes)
    allocate, free = (ctypes.c_double * total)(), (ctypes.c_double * total)()
    clock = library.stalloc_bench_clock()
    times: dict[str, list[float]] = {"allocate": [], "free": [], "pair": []}
    for number in range(rounds):
        if stalloc is not None:
            stalloc.iteration(number)
        if library.stalloc_bench_round(int(cuda), threads, arguments.blocks, bytes_, allocate, free):
            sys.exit("error: the library was built without CUDA")
        if number < WARM_UP:
            continue
        times["allocate"] += [allocate[i] - clock for i in asked]
        times["free"] += [free[i] - clock for i in asked]
        times["pair"] += [allocate[i] + free[i] - 2 * clock for i in asked]
    result: dict[str, Any] = {"device": torch.cuda.get_device_name() if cuda else "cpu", "torch": torch.__version__}
    if times["pair"]:
        result |= {name: quantiles(values) for name, values in times.items()}
    if stalloc is not None:
        stats = stalloc.stats()
        result |= {key: stats[key] for key in ("requests", "planned_hits")}
    return result


def quantiles(values: list[float]) -> dict[str, float]:
    cuts = statistics.quantiles(values, n=100)
    return {"p50_ns": round(cuts[49], 1), "p99_ns": round(cuts[98], 1)}


def child(arguments: argparse.Namespace, allocator: str, threads: int, mode: str, directory: str) -> dict[str, Any]:
    environment = {
        key: value for key, value in os.environ.items() if key not in ("STALLOC_MODE", "PYTORCH_CUDA_ALLOC_CONF")
    }
    environment |= {
        "STALLOC_MODEL_INFO_PATH": directory,
        "STALLOC_TRACE_FAST_MODE": "1",
        "STALLOC_DEVICE": arguments.device,
        "STALLOC_DYNAMIC": "0",  # what has no slot is the native allocator's
    }
    if mode:
        environment["STALLOC_MODE"] = mode
    if allocator == "expandable":
        environment["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
    command = [sys.executable, __file__, "--child", allocator, "--threads", str(threads), "--device", arguments.device]
    command += ["--blocks", str(arguments.blocks), "--bytes", str(arguments.bytes), "--rounds", str(arguments.rounds)]
    command += ["--library", str(find_library(arguments).resolve())]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"error: {allocator} with {threads} threads: exit {done.returncode}\n{done.stdout}{done.stderr}")
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def run(arguments: argparse.Namespace, allocator: str, threads: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as directory:
        if allocator not in ("planned", "fallback"):
            return child(arguments, allocator, threads, "", directory)
        child(arguments, allocator, threads, "Trace", directory)
        subprocess.run([sys.executable, "-m", "stalloc", "plan", directory], check=True, capture_output=True)
        return child(arguments, allocator, threads, "Alloc", directory)


def main() -> int:
    arguments = parse_arguments()
    if arguments.child:
        print(json.dumps(measure(arguments)))
        return 0
    results = []
    print(
        f"{'threads':>7} {'allocator':>10} {'pair p50':>9} {'p99':>8}  {'allocate p50':>12} {'p99':>8}  "
        f"{'free p50':>8} {'p99':>8}  planned"
    )
    for threads in arguments.threads:
        for allocator in arguments.allocators:
            result = {"threads": threads, "allocator": allocator} | run(arguments, allocator, threads)
            results.append(result)
            columns = [result[name][key] for name in ("pair", "allocate", "free") for key in ("p50_ns", "p99_ns")]
            share = f"{100 * result['planned_hits'] / result['requests']:.1f} %" if result.get("requests") else "-"
            print(
                "{:7} {:>10} {:9.0f} {:8.0f}  {:12.0f} {:8.0f}  {:8.0f} {:8.0f}  {}".format(
                    threads, allocator, *columns, share
                ),
                flush=True,
            )
    if arguments.json:
        machine = {
            "date": datetime.date.today().isoformat(),
            "python": platform.python_version(),
            "command": " ".join(sys.argv),
        }
        temporary = arguments.json.with_suffix(".tmp")
        temporary.write_text(json.dumps(machine | {"unit": "ns", "results": results}, indent=1) + "\n")
        temporary.rename(arguments.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
