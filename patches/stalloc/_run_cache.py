"""Where a run under STALLOC_MODE=Auto keeps its traces and plans: a directory by what makes its plans fit.

STALLOC_MODEL_INFO_PATH, where it is set. Else one below the user's cache directory, named by a key of the program, its
arguments, the number of ranks and torch. Whether a plan really fits is not decided here: the library compares ranks,
device and torch, and a plan that serves little is given up.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Optional

from stalloc import _run_files
from stalloc._core import _log
from stalloc._run_files import Start

_MOST_BYTES = 2 << 30  # of all jobs together; the oldest go
_MOST_SOURCE_BYTES = 1 << 20
_WORLD = ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_NTASKS", "MPI_LOCALNRANKS")


def start_of_run(
    environ: Mapping[str, str], argv: Sequence[str], torch_version: str, module: Optional[str] = None
) -> Start:
    """A start's folder in the directory of its run, which is made. Arguments as of key_of_run.

    Where nothing can be kept there, a temporary one, which is said.
    """
    chosen = environ.get("STALLOC_MODEL_INFO_PATH")
    directory = Path(os.path.abspath(chosen)) if chosen else None  # the program may change its own
    try:
        if directory is None:
            directory = cache_directory(environ) / key_of_run(environ, argv, torch_version, module)
        start = Start.begin(directory)
    except OSError as error:
        _log.warning(f"plans cannot be kept for the next start: {error}")
        return Start.temporary(directory)
    with contextlib.suppress(OSError):
        if not chosen:
            os.utime(directory)  # it was used now
        if _log.rank() == "0":
            _run_files.remove_ended(directory)
    if not chosen and _log.rank() == "0":
        _drop_oldest(directory)
    return start


def last_run(environ: Mapping[str, str]) -> Optional[Path]:
    """The job in the user's cache that was started last; None where there is none. OSError: the user has no cache."""
    return next((path for _, path in _by_use(cache_directory(environ))), None)


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
    """OSError: neither a variable nor the system tells where the user's files are."""
    base = environ.get("XDG_CACHE_HOME")
    try:
        return (Path(base) if base else Path.home() / ".cache") / "stalloc" / "runs"
    except RuntimeError as error:
        raise OSError("the user has no home directory: set STALLOC_MODEL_INFO_PATH or XDG_CACHE_HOME") from error


def _by_use(cache: Path) -> list[tuple[float, Path]]:
    """When each job was started last, the latest first. Those that go meanwhile are left out."""
    found = []
    with contextlib.suppress(OSError), os.scandir(cache) as entries:
        for entry in entries:
            with contextlib.suppress(OSError):
                if entry.is_dir(follow_symlinks=False) and not entry.name.startswith("."):
                    found.append((entry.stat().st_mtime, Path(entry.path)))
    return sorted(found, reverse=True)


def _bytes_in(directory: Path) -> int:
    """Of what is there; files come and go meanwhile."""
    held = 0
    for folder, _, names in os.walk(directory):  # which leaves out what it cannot read
        for name in names:
            with contextlib.suppress(OSError):
                held += os.lstat(os.path.join(folder, name)).st_size
    return held


def _drop_oldest(but: Path) -> None:
    """Jobs that were not started for longest and that nobody uses, until what is left is small enough."""
    runs = [(run, _bytes_in(run)) for _, run in _by_use(but.parent)]
    held = sum(count for _, count in runs)
    for run, count in reversed(runs):
        if held <= _MOST_BYTES:
            return
        if run != but and _run_files.remove_run(run):
            held -= count
