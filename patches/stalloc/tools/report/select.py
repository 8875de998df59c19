"""Chooses the view that a command is about: a run's directory or a trace, and a rank of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Optional

from stalloc.tools.report import collect


def view_of(path: Path, rank: Optional[int], options: Optional[collect.ViewOptions] = None) -> dict[str, Any]:
    """The view of a trace, or of a directory's rank: the one with the highest peak by default. CollectError."""
    options = options or collect.ViewOptions()
    if path.is_file():
        return collect.view(collect.RankFiles(0, path, None, None), options)
    files = collect.find_ranks(path)
    if rank is not None:
        chosen = [entry for entry in files if entry.rank == rank]
        if not chosen:
            raise collect.CollectError(
                f"rank {rank} has no trace in {path}/trace; traced: {', '.join(str(e.rank) for e in files)}"
            )
        files = chosen
    views = collect.views(files, options)
    return max(views, key=lambda view: max(device["peak"]["live_bytes"] for device in view["devices"]))
