"""What the device does in an iteration, by torch's profiler: how long a step takes that the host does not bound.

The kernels and copies of a step, in the order of their begin, are cut into parts of equally many. Of each part it is
given how long it took, how long the device worked on kernels of each name, and on how many of them:

    {"kernels": ["gemm", "copy"], "parts": [{"seconds": 0.3, "busy": {"0": [0.1, 12], "1": [0.05, 3]}}]}

Two iterations of one program have about the same kernels, whatever their sizes, so that their parts correspond.
"""

from __future__ import annotations

import bisect
from typing import Any, Optional

PARTS = 16  # of a step
_COMMUNICATES = "nccl"  # such a kernel waits for other ranks: it counts where nothing else runs

Kernel = tuple[int, int, str]  # begin and end in nanoseconds, name


class DeviceWork:
    """Watches one step at a time. Called on the thread that runs the loop, while the device has nothing to do."""

    def __init__(self, torch: Any) -> None:
        """`torch`: None where nothing is to be watched."""
        self._torch = torch
        self._profile: Optional[Any] = None

    def begin(self) -> None:
        """Does nothing if the program is profiled already, or has no GPU."""
        torch = self._torch
        if torch is None or not torch.cuda.is_initialized() or torch.autograd._profiler_enabled():
            return
        self._profile = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA])
        self._profile.start()

    def end(self) -> Optional[dict[str, Any]]:
        """The work of the watched step; None: none was watched, or the profiler saw no work of the device."""
        if self._profile is None:
            return None
        profile, self._profile = self._profile, None
        profile.stop()
        return in_parts(_kernels(profile, self._torch.autograd.DeviceType.CUDA))


def _kernels(profile: Any, device: Any) -> list[Kernel]:
    """Every torch has a name of its own for what the profiler has found; where one is missing nothing is known."""
    try:
        return [
            (event.start_ns(), event.start_ns() + event.duration_ns(), event.name())
            for event in profile.profiler.kineto_results.events()
            if event.device_type() == device and not event.is_user_annotation()
        ]
    except AttributeError:
        return []


def in_parts(kernels: list[Kernel], most: int = PARTS) -> Optional[dict[str, Any]]:
    """None: there are none. Of kernels that run at a time, the first to begin counts, but one that computes before one
    that communicates."""
    if not kernels:
        return None
    kernels = sorted(kernels)
    worked = _worked(kernels)
    names = {name: i for i, name in enumerate(dict.fromkeys(name for _, _, name in kernels))}
    count = min(most, len(kernels))
    parts: list[dict[str, Any]] = []
    begin = kernels[0][0]
    for part in range(count):
        chosen = range(part * len(kernels) // count, (part + 1) * len(kernels) // count)
        busy: dict[str, list[float]] = {}
        for i in chosen:
            found = busy.setdefault(str(names[kernels[i][2]]), [0.0, 0])
            found[0] = round(found[0] + worked[i] / 1e9, 9)
            found[1] += 1
        end = max(begin, *(kernels[i][1] for i in chosen))
        parts.append({"seconds": (end - begin) / 1e9, "busy": busy})
        begin = end
    return {"kernels": list(names), "parts": parts}


def _worked(kernels: list[Kernel]) -> list[int]:
    """Nanoseconds of each, in which the device did nothing that counts before it."""
    worked = [0] * len(kernels)
    computed: list[tuple[int, int]] = []  # ascending, apart
    for i in (i for i, kernel in enumerate(kernels) if not _communicates(kernel)):
        begin, end, _ = kernels[i]
        last = computed[-1][1] if computed else begin
        worked[i] = max(0, end - max(begin, last))
        if computed and begin <= last:
            computed[-1] = (computed[-1][0], max(last, end))
        else:
            computed.append((begin, end))
    communicated = 0  # up to then
    begins = [begin for begin, _ in computed]
    for i in (i for i, kernel in enumerate(kernels) if _communicates(kernel)):
        begin, end = max(kernels[i][0], communicated), kernels[i][1]
        first = max(0, bisect.bisect_right(begins, begin) - 1)
        overlapping = computed[first : bisect.bisect_left(begins, end)]
        hidden = sum(max(0, min(end, other[1]) - max(begin, other[0])) for other in overlapping)
        worked[i] = max(0, end - begin - hidden)
        communicated = max(communicated, end)
    return worked


def _communicates(kernel: Kernel) -> bool:
    return _COMMUNICATES in kernel[2].lower()
