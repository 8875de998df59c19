"""Where every byte of a GPU is: what allocators hold, and what torch does not count."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Optional

from stalloc.core.sizes import size
from stalloc.tools.report.collect import CollectError

_ROWS = (
    ("held_bytes", "PyTorch's allocators and the arena"),
    ("context_bytes", "CUDA context"),
    ("communicator_bytes", "NCCL communicators"),
    ("graph_bytes", "CUDA graphs, after instantiation"),
    ("library_bytes", "kernels and libraries, loaded as they were needed"),
    ("others_bytes", "other processes"),
)
_WITH_OTHERS = "CUDA context and other processes"


def read(directory: Path, rank: int) -> dict[int, dict[str, Any]]:
    """By device, what a traced run has left (train/marking/card.py); empty without a file.

    CollectError where the file is not one.
    """
    path = directory / f"rank{rank:05d}.card.json"
    if not path.is_file():
        return {}
    try:
        return {row["device"]: row for row in json.loads(path.read_text(encoding="utf-8"))["devices"]}
    except (KeyError, TypeError, ValueError) as error:
        raise CollectError(f'{path}: expected {{"devices": [{{"device": 0, ...}}]}}: {error!r}') from error


def sentence(found: dict[str, Any]) -> str:
    """The sum of what rows() returned: what the GPU has, and how the sum agrees with the driver's count."""
    text = f"At the end of the traced iterations, of {size(found['total_bytes'])} that programs can have"
    if found["driver_bytes"] is not None:
        text += f" (the driver keeps {size(found['driver_bytes'])} besides)"
    if found["measured_bytes"] is None:
        return f"{text}. The driver's own count was not available."
    apart = found["sum_bytes"] - found["measured_bytes"]
    compared = f"{size(abs(apart))} {'less' if apart > 0 else 'more'} than the sum" if apart else "as much as the sum"
    return f"{text}. The driver counts {size(found['measured_bytes'])} as taken, {compared}."


def rows(found: Optional[dict[str, Any]]) -> Optional[dict[str, Any]]:
    """Named bytes in the order of a table, what they add up to, and the driver's own count of that; None: not known."""
    if found is None:
        return None
    named = [
        {"name": _WITH_OTHERS if key == "context_bytes" and found["others_bytes"] is None else name, "bytes": bytes_}
        for key, name in _ROWS
        if (bytes_ := found[key])
    ]
    told = {
        "total_bytes": found["total_bytes"],
        "driver_bytes": found["driver_bytes"],
        "free_bytes": found["free_bytes"],
        "rows": named,
        "sum_bytes": sum(row["bytes"] for row in named),
        "measured_bytes": found["measured_bytes"],
    }
    return {**told, "sentence": sentence(told)}
