"""What Python adds to a report that the library has written, while what was live still is."""

from __future__ import annotations

import atexit
import ctypes
import json
import os
from pathlib import Path
from typing import Any, Optional

from stalloc.core import log, oom_notes
from stalloc.core.library import Library
from stalloc.train.oom import classes, names

VARIABLE = "STALLOC_OOM_REPORT"
_Callback = ctypes.CFUNCTYPE(None, ctypes.c_char_p)
_callback: Optional[Any] = None  # the library calls it: it must stay


def watch(library: Library, torch: Any, mode: str) -> None:
    """Adds to every report of the library. Nothing where the variable is not set."""
    global _callback
    if not os.environ.get(VARIABLE):
        return

    def reported(path: bytes) -> None:
        complete(Path(os.fsdecode(path)), torch, mode)

    _callback = _Callback(reported)
    library.tell_oom_reports(ctypes.cast(_callback, ctypes.c_void_p))
    atexit.register(library.tell_oom_reports, None)  # no Python any more


def complete(path: Path, torch: Any, mode: str) -> None:
    """Whatever fails leaves the report as it is, but for a warning: the program has an error of its own."""
    try:
        report = json.loads(path.read_text())
        add(report, torch, mode)
        write(path, report)
    except Exception as error:
        log.warning(f"{path} has no tensors and classes: {type(error).__name__}: {error}")


def add(report: dict[str, Any], torch: Any, mode: str) -> None:
    """Mode, tensors, classes, and a note for each thing that is not known."""
    report["mode"] = mode
    report["notes"] = notes = report.get("notes", [])
    classes.classify(report, names.named_blocks(torch))
    if any("phase" in block for block in report["live_blocks"]):
        notes.append(oom_notes.BY_PHASE)
    if not any("layer" in block for block in report["live_blocks"]):
        notes.append(oom_notes.NO_LAYERS)
    if mode == "Trace":
        report["trace"] = _trace(report["rank"])
    if mode != "Trace" and not any("stack" in block for block in report["live_blocks"]):
        notes.append(_no_stacks(mode))


def _no_stacks(mode: str) -> str:
    record = "torch.cuda.memory._record_memory_history() or " if mode == "Torch" else ""
    return f"stacks are not recorded in mode {mode}: {record}STALLOC_MODE=Trace STALLOC_TRACE_STACKS=1 records them"


def _trace(rank: int) -> Optional[str]:
    directory = os.environ.get("STALLOC_MODEL_INFO_PATH")
    return str(Path(directory).absolute() / "trace" / f"rank{rank:05d}.trace") if directory else None


def write(path: Path, report: dict[str, Any]) -> None:
    """To a temporary name first."""
    temporary = path.with_suffix(f".tmp{os.getpid()}")
    temporary.write_text(json.dumps(report) + "\n")
    temporary.replace(path)
