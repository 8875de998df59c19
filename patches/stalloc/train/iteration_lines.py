"""One line of memory figures per iteration. Only reads: torch's peaks are never reset, no device memory is touched."""

from __future__ import annotations

import os
import resource
import sys
from pathlib import Path
from typing import Any, Callable, Optional

from stalloc.core import coordinates, log
from stalloc.core.outcome import planned
from stalloc.core.sizes import size


def percent(part: float, whole: float) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "n/a"


def _resident_bytes() -> Optional[int]:
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except (OSError, ValueError, IndexError):
        return None
    return pages * resource.getpagesize()


def host_figures() -> str:
    """The figure for a process without CUDA: the resident set. There are no reserved bytes to compare it with."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    resident = _resident_bytes()
    now = "" if resident is None else f"resident {size(resident)}, "
    return f"{now}peak resident {size(peak)} (CPU)"


def cuda_figures(torch: Any) -> list[str]:
    """One text per device that the process has used, with the peaks as torch has them at this moment."""
    texts: list[tuple[str, str]] = []
    for device in range(torch.cuda.device_count()):
        stats = torch.cuda.memory_stats(device)
        reserved = stats.get("reserved_bytes.all.peak", 0)
        if reserved:
            allocated = stats.get("allocated_bytes.all.peak", 0)
            figures = f"peak allocated {size(allocated)}, peak reserved {size(reserved)}"
            texts.append((f"cuda:{device} ", f"{figures}, utilisation {percent(allocated, reserved)}"))
    return [(name if len(texts) > 1 else "") + figures for name, figures in texts]


def _place() -> str:
    """The part of the model that this rank has, after the iteration's number."""
    found = coordinates.place(sys.argv[1:], os.environ, log.rank())
    return f" ({found})" if found else ""


def torch_report() -> Callable[[int], None]:
    """Mode Torch: how much of what PyTorch's allocator reserved was ever in use."""

    place = _place()

    def report(iteration: int) -> None:
        torch: Any = sys.modules.get("torch")
        on_cuda = torch is not None and torch.cuda.is_initialized()
        for text in cuda_figures(torch) if on_cuda else [host_figures()]:
            log.figures(f"iteration {iteration}{place}: {text}")

    return report


def stats_report(stats: Callable[[], dict[str, Any]]) -> Callable[[int], None]:
    """In modes Trace and Alloc, if the log level requests it: the line from our own ledger, with the plan's hits."""

    place = _place()

    def report(iteration: int) -> None:
        for device in stats().get("devices", []):
            live, held = device.get("peak_live_bytes", 0), device.get("held_peak_bytes", 0)
            log.figures(
                f"iteration {iteration}{place}: peak live {size(live)}, peak held {size(held)}, "
                f"utilisation {percent(live, held)}, planned {planned(device)}"
            )

    return report


def every(steps: int, report: Callable[[int], None]) -> Callable[[int], None]:
    """The report of each iteration that is the last of `steps` in a row."""
    seen = 0

    def counted(iteration: int) -> None:
        nonlocal seen
        seen += 1
        if seen % steps == 0:
            report(iteration)

    return counted


def harmless(report: Callable[[int], None]) -> Callable[[int], None]:
    """The same report, which ends with a warning instead of the training run when its figures cannot be read."""
    broken = False

    def guarded(iteration: int) -> None:
        nonlocal broken
        if broken:
            return
        try:
            report(iteration)
        except RuntimeError as error:
            broken = True
            log.warning(f"no memory figures from now on: {error}")

    return guarded
