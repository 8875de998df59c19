"""Files that are there as a whole or not at all."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def remove(path: Path) -> None:
    """Removes the file if it exists. OSError: it cannot be removed."""
    if os.path.lexists(path):
        path.unlink(missing_ok=True)


def write_whole(path: Path, content: bytes) -> None:
    """Writes next to `path` under another name, then renames; makes missing directories. OSError names `path`."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
            os.chmod(temporary, 0o644)
            os.replace(temporary, path)
        except BaseException:
            os.unlink(temporary)
            raise
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error
