"""What the first sleep's host memory costs: to find its pages, and to lock them, by how many threads.

    python bench/sleep/pinning.py --gigabytes 16 --json pinning.json
    python bench/sleep/pinning.py --device cpu --gigabytes 1

Memory of `--gigabytes` is mapped in large pages, in segments of 1 GiB as a sleep takes it. `find`: seconds to fault all
pages in (MADV_POPULATE_WRITE); `lock`: to register them with CUDA after that (on the CPU: mlock, which a limit may
forbid); `both`: each thread finds and locks its segments in turn, as a sleep does. Of lock and find, what does not fall
with the number of threads is the kernel's or the driver's own. `library`: stalloc.reserve_host_memory, before and after
all that, under STALLOC_MODE=Auto. A virtual machine that has not touched so much memory yet finds its pages many times
more slowly: so the first row is measured again in the end.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Callable

from parts import write

_SEGMENT = 1 << 30
_PROT_READ_WRITE, _MAP_PRIVATE_ANONYMOUS_NORESERVE = 3, 0x4022
_MADV_HUGEPAGE, _MADV_POPULATE_WRITE = 14, 23

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
for _name in ("munmap", "mlock", "munlock"):
    getattr(_libc, _name).argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--gigabytes", type=int, default=16, metavar="GIB")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2, 4, 8, 16])
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


def check(code: int, what: str) -> None:
    if code != 0:
        sys.exit(f"pinning.py: {what} failed: {code}, {os.strerror(ctypes.get_errno())}")


def mapped() -> int:
    address = _libc.mmap(None, _SEGMENT, _PROT_READ_WRITE, _MAP_PRIVATE_ANONYMOUS_NORESERVE, -1, 0)
    assert isinstance(address, int)
    _libc.madvise(address, _SEGMENT, _MADV_HUGEPAGE)
    return address


def find(address: int) -> None:
    check(_libc.madvise(address, _SEGMENT, _MADV_POPULATE_WRITE), "MADV_POPULATE_WRITE")


def locks_of(device: str) -> tuple[Callable[[int], None], Callable[[int], None]]:
    """What locks a segment, and what lets it go."""
    if device == "cpu":
        return (
            lambda address: check(_libc.mlock(address, _SEGMENT), "mlock"),
            lambda address: check(_libc.munlock(address, _SEGMENT), "munlock"),
        )
    import torch

    torch.cuda.init()
    runtime = torch.cuda.cudart()
    return (
        lambda address: check(int(runtime.cudaHostRegister(address, _SEGMENT, 1)), "cudaHostRegister"),
        lambda address: check(int(runtime.cudaHostUnregister(address)), "cudaHostUnregister"),
    )


def seconds_of(pool: ThreadPoolExecutor, work: Callable[[int], None], addresses: list[int]) -> float:
    begin = time.perf_counter()
    list(pool.map(work, addresses))
    return time.perf_counter() - begin


def row(device: str, threads: int, segments: int) -> dict[str, Any]:
    lock, unlock = locks_of(device)

    def both(address: int) -> None:
        find(address)
        lock(address)

    result: dict[str, Any] = {"threads": threads}
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(lambda _: time.sleep(0.01), range(threads)))  # the threads are there
        for steps in ({"find": find, "lock": lock}, {"both": both}):
            addresses = [mapped() for _ in range(segments)]
            for name, work in steps.items():
                result[name] = seconds_of(pool, work, addresses)
            result["release"] = seconds_of(pool, unlock, addresses)
            for address in addresses:
                _libc.munmap(address, _SEGMENT)
    return result


def of_library(segments: int) -> Any:
    """Seconds; None without a mode."""
    if "STALLOC_MODE" not in os.environ:
        return None
    import torch

    import stalloc

    torch.ones(1 << 22, device=os.environ.get("STALLOC_DEVICE", "cuda"))
    begin = time.perf_counter()
    stalloc.reserve_host_memory(segments * _SEGMENT)
    seconds = time.perf_counter() - begin
    stalloc.release_host_memory()
    return seconds


def main() -> int:
    arguments = parse_arguments()
    library = [of_library(arguments.gigabytes)]
    counts = [*arguments.threads, arguments.threads[0]]
    rows = [row(arguments.device, threads, arguments.gigabytes) for threads in counts]
    library.append(of_library(arguments.gigabytes))
    write(
        arguments.json,
        {"device": arguments.device, "bytes": arguments.gigabytes * _SEGMENT, "library": library, "rows": rows},
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
