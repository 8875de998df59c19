"""Whether a trace can be written, checked before the program begins: a run in mode Trace is for its trace."""

from __future__ import annotations

import tempfile
from pathlib import Path

from stalloc.core.config import ConfigError

_PROBED_BYTES = 1 << 16  # a full disk makes a file, but holds nothing


def require(directory: str, rank: str) -> None:
    """Makes its folder. ConfigError where a trace of this rank cannot be written there."""
    if not directory or not rank.isdecimal():
        return  # the library says what is needed
    path = Path(directory) / "trace" / f"rank{int(rank):05d}.trace"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path.parent) as probe:
            probe.write(bytes(_PROBED_BYTES))
        if path.exists():
            with path.open("r+b"):
                pass
    except OSError as error:
        raise ConfigError(
            f"STALLOC_MODEL_INFO_PATH must be a directory that can be written in mode Trace: {error.strerror}: {path}"
        ) from error
