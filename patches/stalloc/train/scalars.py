"""Memory figures of each iteration as TensorBoard scalars (STALLOC_TENSORBOARD=DIR): one run a rank, DIR/rank00000.

Needs torch.utils.tensorboard, which needs the package tensorboard; nothing else of stalloc does. Sizes are GiB.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Iterator, Mapping
from typing import Any, Callable

# Names and values of this moment.
Figures = Callable[[], Iterator[tuple[str, float]]]

_GIB = float(1 << 30)

# Of a device's figures (docs/summary.md): its key, and the scalar's name.
_SIZES = {
    "live_bytes": "live GiB",
    "peak_live_bytes": "peak live GiB",
    "held_peak_bytes": "peak held GiB",
    "arena_bytes": "arena GiB",
    "upstream_reserved_bytes": "held by the allocator below GiB",
}
_COUNTS = {"requests": "requests", "planned_hits": "planned", "dynamic_hits": "without a slot", "upstream": "below"}


def require() -> None:
    """RuntimeError with what to do where the package is missing; does not import it."""
    if importlib.util.find_spec("tensorboard") is None:
        raise RuntimeError("STALLOC_TENSORBOARD needs the package tensorboard: pip install tensorboard")


def of_stats(stats: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """Name and value of every scalar; with several devices each has its own."""
    devices = stats.get("devices", [])
    for device in devices:
        prefix = f"stalloc/device {device.get('device', 0)}/" if len(devices) > 1 else "stalloc/"
        for key, name in _SIZES.items():
            if key in device:
                yield prefix + name, device[key] / _GIB
        for key, name in _COUNTS.items():
            if key in device:
                yield prefix + name, float(device[key])
        if "efficiency" in device:
            yield prefix + "peak live of peak held", float(device["efficiency"])
        steady = device.get("steady", {})
        if steady.get("requests"):  # outside of fences, from the second iteration on
            yield prefix + "planned of steady requests", steady["hits"] / steady["requests"]


def of_torch(torch: Any) -> Iterator[tuple[str, float]]:
    """What torch's own allocator says, for mode Torch; nothing before CUDA is initialised."""
    if not torch.cuda.is_initialized():
        return
    for device in range(torch.cuda.device_count()):
        stats = torch.cuda.memory_stats(device)
        if not stats.get("reserved_bytes.all.peak", 0):
            continue
        prefix = f"stalloc/device {device}/" if torch.cuda.device_count() > 1 else "stalloc/"
        for kind in ("allocated", "reserved"):
            yield prefix + f"{kind} GiB", stats.get(f"{kind}_bytes.all.current", 0) / _GIB
            yield prefix + f"peak {kind} GiB", stats.get(f"{kind}_bytes.all.peak", 0) / _GIB


def report(directory: str, rank: str, figures: Figures) -> Callable[[int], None]:
    """Writes the scalars of each iteration; the files begin with the first. RuntimeError where that fails."""
    writer: Any = None

    def write(iteration: int) -> None:
        nonlocal writer
        try:
            if writer is None:
                module = importlib.import_module("torch.utils.tensorboard")
                writer = module.SummaryWriter(f"{directory}/rank{int(rank or 0):05d}")
            for name, value in figures():
                writer.add_scalar(name, value, iteration)
            writer.flush()
        except (ImportError, OSError) as error:
            raise RuntimeError(f"no scalars: {error}") from error

    return write
