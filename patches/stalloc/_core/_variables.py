"""The STALLOC_* variables by name: as arguments of a script (`--stalloc-trace-steps`), and in files of settings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Optional

from stalloc._core._json import read_object

# Variable: what it takes (None: any text), and its meaning. A switch is 1 where the argument stands alone.
SWITCH = ("0", "1")
VARIABLES: dict[str, tuple[Optional[tuple[str, ...]], str]] = {
    "STALLOC_MODE": (None, "Torch, Auto, Trace or Alloc"),
    "STALLOC_MODEL_INFO_PATH": (None, "directory of traces and plans"),
    "STALLOC_LIB_PATH": (None, "directory of the libraries"),
    "STALLOC_AUTO_WAIT": (SWITCH, "mode Auto waits for its plan"),
    "STALLOC_TRACE_FAST_MODE": (SWITCH, "trace over PyTorch's allocator, at full speed"),
    "STALLOC_TRACE_STEPS": (None, "iterations after which the trace ends, or a window: 2:5"),
    "STALLOC_TRACE_RANKS": (None, "ranks that are traced: 0,3"),
    "STALLOC_TRACE_MAX_EVENTS": (None, "events after which the trace ends"),
    "STALLOC_TRACE_DETAIL": (SWITCH, "traces have modules, stacks and uses: all that reports can show"),
    "STALLOC_TRACE_FAKE": (SWITCH, "the trace is of fake tensors: no device is touched"),
    "STALLOC_FAKE_ASSUME": (None, "values that fake tensors lack: int=4096,bool=0,nonzero=1/16"),
    "STALLOC_TRACE_NAMES": (SWITCH, "traces name parameters, gradients, optimizer state and inputs"),
    "STALLOC_TRACE_STACKS": (None, "Python stacks: 0, 1, every Nth request, or a least size as 64K"),
    "STALLOC_TRACE_USES": (SWITCH, "traces know which operations use which blocks"),
    "STALLOC_LOG_STEPS": (None, "a line of figures every so many iterations"),
    "STALLOC_TENSORBOARD": (None, "directory of TensorBoard scalars"),
    "STALLOC_TRACE_MODULES": (SWITCH, "traces name the module of each block"),
    "STALLOC_NVTX": (SWITCH, "marks are NVTX ranges, too"),
    "STALLOC_DYNAMIC": (("0", "1", "auto"), "whether what has no slot is served from the arena"),
    "STALLOC_PLAN_RANK": (None, "whose plan this rank is served from, if not its own"),
    "STALLOC_STATIC_FALLBACK": (SWITCH, "accepted; falling back is always on"),
    "STALLOC_LOG_LEVEL": (("0", "1", "2", "3"), "smaller is more"),
    "STALLOC_STRICT": (SWITCH, "a missing or foreign plan is an error"),
    "STALLOC_DEVICE": (("auto", "cuda", "cpu"), "which of torch's allocators is replaced"),
    "STALLOC_MEMORY_LIMIT": (None, "bytes, 40G: caps an exact trace's memory"),
    "STALLOC_WATCH": (
        SWITCH,
        "writes beyond the end of blocks (exact Trace, Alloc) and into freed ones (Alloc) are looked for",
    ),
    "STALLOC_TEST_MOVES": (SWITCH, "for tests: memory of the arena that may move does so at every mark"),
    "STALLOC_OOM_REPORT": (None, "directory of reports on out-of-memory errors, in every mode"),
}


def read_settings(path: Path) -> dict[str, str]:
    """Variables from a JSON object, {"mode": "Trace", "trace_steps": "2:5", "trace_ranks": [0, 3], "nvtx": true}: names
    without STALLOC_, in lower case. OSError, or ValueError naming what is wrong."""
    content = read_object(path)
    known = {name.removeprefix("STALLOC_").lower(): name for name in VARIABLES}
    unknown = sorted(set(content) - set(known))
    if unknown:
        raise ValueError(f"{path}: no setting is called {', '.join(unknown)}; there are {', '.join(sorted(known))}")
    return {known[key]: _text(path, key, value) for key, value in content.items()}


def _text(path: Path, key: str, value: Any) -> str:
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, (int, str)):
        return str(value)
    if isinstance(value, list) and all(isinstance(item, (int, str)) and not isinstance(item, bool) for item in value):
        return ",".join(map(str, value))
    raise ValueError(f"{path}: {key} must be a text, a number, true, false or a list of these: {json.dumps(value)}")
