"""Where a rank's trace is in a run's directory, and what is left beside it."""

from __future__ import annotations

from pathlib import Path


def path_of(directory: Path, rank: int, kind: str = "trace") -> Path:
    """`kind`: how the name ends, as "trace" or "tokens.json"."""
    return directory / "trace" / f"rank{rank:05d}.{kind}"
