"""The path of a rank's trace in a run's directory, and of the files next to it."""

from __future__ import annotations

from pathlib import Path


def path_of(directory: Path, rank: int, kind: str = "trace") -> Path:
    """`kind`: how the name ends, as "trace" or "tokens.json"."""
    return directory / "trace" / f"rank{rank:05d}.{kind}"
