"""The file that a fake run wrote next to its trace (`rankNNNNN.fake.json`)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Optional


def iterations_of(path: Path, rank: int) -> Optional[int]:
    """How many iterations ran to their end; None if the trace is not of fake tensors.

    Args:
        path: a run's directory, or the trace.
        rank: of the trace.
    """
    written = path / "trace" / f"rank{rank:05d}.fake.json" if path.is_dir() else path.with_suffix(".fake.json")
    try:
        found = json.loads(written.read_text()).get("iterations")
    except (OSError, ValueError, AttributeError):
        return None
    return found if isinstance(found, int) else None
