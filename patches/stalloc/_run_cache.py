"""Where a run under STALLOC_MODE=Auto keeps its traces and plans: a directory by what makes its plans fit.

STALLOC_MODEL_INFO_PATH, where it is set. Else one below the user's cache directory, named by a key of the program, its
arguments, the number of ranks and torch. Whether a plan really fits is not decided here: the library compares ranks,
device and torch, and a plan that serves little is given up.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Optional

from stalloc._core import _log

_MOST_BYTES = 2 << 30  # of all jobs together; the oldest go
_MOST_SOURCE_BYTES = 1 << 20
_WORLD = ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_NTASKS", "MPI_LOCALNRANKS")


def directory_of_run(
    environ: Mapping[str, str], argv: Sequence[str], torch_version: str, module: Optional[str] = None
) -> Path:
    """Makes it. Where nothing can be kept, a temporary one, which is said. Arguments as of key_of_run."""
    chosen = environ.get("STALLOC_MODEL_INFO_PATH")
    if chosen:
        return Path(chosen)
    cache = cache_directory(environ)
    directory = cache / key_of_run(environ, argv, torch_version, module)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        os.utime(directory)  # it was used now
        with tempfile.TemporaryFile(dir=directory):
            pass  # it can be written
    except OSError as error:
        temporary = Path(tempfile.mkdtemp(prefix="stalloc-"))
        _log.warning(f"plans cannot be kept for the next start: {error}; this run's is in {temporary}")
        return temporary
    with contextlib.suppress(OSError):  # other ranks and jobs write and clear up meanwhile
        _drop_oldest(cache, directory)
    return directory


def last_run(environ: Mapping[str, str]) -> Optional[Path]:
    """The job in the user's cache that was started last; None where there is none."""
    cache = cache_directory(environ)
    runs = [entry for entry in cache.iterdir() if entry.is_dir()] if cache.is_dir() else []
    return max(runs, key=lambda entry: entry.stat().st_mtime, default=None)


def key_of_run(
    environ: Mapping[str, str], argv: Sequence[str], torch_version: str, module: Optional[str] = None
) -> str:
    """The program's name and a hash: readable, and another one where program, arguments, ranks or torch are others.

    Args:
        module: the program, where python has not found its file yet (`python -m MODULE`).
    """
    program = Path(argv[0] if argv and argv[0] not in ("-c", "-m", "") else module or "program")
    parts = [os.path.realpath(program), _source(program), *argv[1:], torch_version]
    parts += [f"{name}={environ[name]}" for name in _WORLD if environ.get(name)]
    digest = hashlib.sha256("\0".join(parts).encode("utf-8", "surrogateescape")).hexdigest()
    return f"{program.stem[:32]}-{digest[:16]}"


def _source(program: Path) -> str:
    try:
        if program.stat().st_size > _MOST_SOURCE_BYTES:
            return ""
        return hashlib.sha256(program.read_bytes()).hexdigest()
    except OSError:
        return ""


def cache_directory(environ: Mapping[str, str]) -> Path:
    base = environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "stalloc" / "runs"


def _drop_oldest(cache: Path, but: Path) -> None:
    """Jobs that were not started for longest, until what is left is small enough."""
    used = sorted(((entry.stat().st_mtime, entry) for entry in cache.iterdir() if entry.is_dir()), reverse=True)
    held = 0
    for _, entry in used:
        held += sum(file.stat().st_size for file in entry.rglob("*") if file.is_file())
        if held > _MOST_BYTES and entry != but:
            shutil.rmtree(entry, ignore_errors=True)
