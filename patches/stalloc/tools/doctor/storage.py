"""Directories that a run writes to: the run's own, Auto's cache, reports of out-of-memory errors."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from stalloc.core.run_cache import cache_directory
from stalloc.core.sizes import size
from stalloc.tools.doctor.machine import Finding, Machine, failure, ok, warning

_LITTLE = 1 << 30  # traces of large models have some hundred MB a rank


def directories(machine: Machine) -> Iterator[Finding]:
    run = machine.environ.get("STALLOC_MODEL_INFO_PATH")
    if run:
        yield _writable("STALLOC_MODEL_INFO_PATH", Path(run), needed=True)
    yield _writable("plans of Auto", cache_directory(machine.environ), needed=False)
    reports = machine.environ.get("STALLOC_OOM_REPORT")
    if reports:
        yield _writable("STALLOC_OOM_REPORT", Path(reports), needed=True)


def _writable(subject: str, path: Path, needed: bool) -> Finding:
    """Looks at the nearest directory that exists, and makes none."""
    there = next(folder for folder in (path.absolute(), *path.absolute().parents) if folder.exists())
    advice = "name a directory that can be written" if needed else "set STALLOC_MODEL_INFO_PATH, or XDG_CACHE_HOME"
    refused = failure if needed else warning
    try:
        if not there.is_dir():
            return refused(subject, f"{path}: {there} is a file", advice)
        with tempfile.TemporaryFile(dir=there):
            pass
        free = shutil.disk_usage(there).free
    except OSError as error:
        return refused(subject, f"{path} cannot be written: {os.strerror(error.errno or 0)}", advice)
    if free < _LITTLE:
        return warning(subject, f"{path}, {size(free)} free", "a trace has some hundred MB a rank: free some space")
    return ok(subject, f"{path}, {size(free)} free")
