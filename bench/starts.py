"""Waits for the planners of runs under STALLOC_MODE=Auto, which end after them and leave the next start's plan."""

from __future__ import annotations

import time
from pathlib import Path

LIMIT_S = 120.0


def await_planners(run: Path) -> None:
    """Until neither a start's process nor its planner works in the run's directory; at most LIMIT_S seconds."""
    from stalloc import _run_files  # not needed by who runs other modes alone

    until = time.monotonic() + LIMIT_S
    while _run_files.in_use(run) and time.monotonic() < until:
        time.sleep(0.1)
