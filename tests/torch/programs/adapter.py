"""The adapter's library in a test process: install, marks and statistics, without the Python package."""

from __future__ import annotations

import ctypes
import json
import os
import sys
from typing import Any, Callable, Optional

import torch

ITERATION, FENCE, BEGIN, END = 2, 6, 1, 2  # MarkKind and MarkEdge of proto/trace.proto

library = ctypes.CDLL(os.environ["STALLOC_TORCH_LIB"])
library.stalloc_last_error.restype = ctypes.c_char_p
library.stalloc_torch_built_for.restype = ctypes.c_char_p
library.stalloc_stats_json.restype = ctypes.c_size_t
library.stalloc_stats_json.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
library.stalloc_graphs_json.restype = ctypes.c_size_t
library.stalloc_graphs_json.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
library.stalloc_graph_error.restype = ctypes.c_char_p
library.stalloc_mark.argtypes = [ctypes.c_int] * 5 + [ctypes.c_char_p, ctypes.c_int]


def try_install(device: str, version: Optional[str] = None) -> Optional[str]:
    """Installs for "cpu" or "cuda". The library's error, or None."""
    function = library.stalloc_torch_install_cuda if device == "cuda" else library.stalloc_torch_install_cpu
    if function((torch.__version__ if version is None else version).encode()) == 0:
        return None
    return str(library.stalloc_last_error().decode())


def install(device: str) -> None:
    """Installs, or ends the process with the library's error."""
    error = try_install(device)
    if error is not None:
        sys.exit(f"install failed: {error}")


def begin_iteration(index: int) -> None:
    library.stalloc_mark(ITERATION, BEGIN, 0, 0, index, None, 0)


def end_iteration(index: int) -> None:
    library.stalloc_mark(ITERATION, END, 0, 0, index, None, 0)


def begin_fence() -> None:
    library.stalloc_mark(FENCE, BEGIN, 0, 0, 0, b"eval", 0)


def end_fence() -> None:
    library.stalloc_mark(FENCE, END, 0, 0, 0, b"eval", 0)


def _parsed(write: Any) -> dict[str, Any]:
    size = write(None, 0) + 4096
    buffer = ctypes.create_string_buffer(size)
    write(buffer, size)
    parsed: dict[str, Any] = json.loads(buffer.value)
    return parsed


def stats() -> dict[str, Any]:
    """The session's statistics."""
    return _parsed(library.stalloc_stats_json)


def graphs() -> dict[str, Any]:
    """Which CUDA graphs' pools are followed."""
    return _parsed(library.stalloc_graphs_json)


def graph_error() -> str:
    """Why this thread's last launch of a graph was refused."""
    return str(library.stalloc_graph_error().decode())


def show(result: Any) -> None:
    """Prints what the test looks at, as the last line."""
    print(json.dumps(result))


def run_case(cases: dict[str, Any], installs: bool = True) -> None:
    """Installs for CUDA and shows the result of the case that the command line names."""
    if installs:
        install("cuda")
    result = cases[sys.argv[1]]()
    torch.cuda.synchronize()
    show(result)


def steps(count: int, step: Callable[[int], Any]) -> list[Any]:
    """What each iteration of a loop computes; marked where the command line has --install."""
    results = []
    for index in range(count):
        if "--install" in sys.argv:
            begin_iteration(index)
        results.append(step(index))
        if "--install" in sys.argv:
            end_iteration(index)
    return results
