"""Which runs under STALLOC_MODE=Auto are known: directories below the user's cache, each with one plan for each rank.

Runs of one program have names with one beginning: the program's, and a hash of its path, the number of ranks and torch.
The rest comes from the arguments, for the reader: a run finds its plan by its requests, not by its arguments
(run_choice.py). `run.json` has the arguments of starts that the plan was found to fit, and is as old as the last one.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Optional

from stalloc.core import run_files
from stalloc.core.files import write_whole

FOUND = "STALLOC_FOUND_PATH"  # what STALLOC_MODEL_INFO_PATH was set to, where the user had not

_MOST_BYTES = 2 << 30  # of all runs together; those that were not used for longest go
_MOST_RUNS = 16  # of one program
_MOST_ARGUMENTS = 16  # lists of them, of one run
_HINT_LENGTH = 40
_DESCRIPTION = "run.json"
_WORLD = ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_NTASKS", "MPI_LOCALNRANKS")
_SECRET = re.compile(r"(?i)(key|token|secret|password|credential)")

Arguments = tuple[str, ...]


def chosen_directory(environ: Mapping[str, str]) -> Optional[Path]:
    """The one that the user has named. None: one in the cache; programs that this one starts have others."""
    path = environ.get("STALLOC_MODEL_INFO_PATH")
    if not path or path == environ.get(FOUND):
        return None
    return Path(os.path.abspath(path))  # the program may change its own


@dataclasses.dataclass(frozen=True)
class Program:
    """What starts have in common whose plans may be each other's, and the arguments of this one.

    Args:
        key: what the names of its runs begin with.
        path: of its file, or its module's name.
    """

    key: str
    path: str
    torch: str
    arguments: Arguments

    @classmethod
    def of(
        cls, environ: Mapping[str, str], argv: Sequence[str], torch_version: str, module: Optional[str] = None
    ) -> Program:
        """`module`: the program, where python has not found its file yet (`python -m MODULE`)."""
        file = argv[0] if argv and argv[0] not in ("-c", "-m", "") else ""
        path = os.path.realpath(file or module or "program")
        name = Path(file).stem if file else (module or "program").rpartition(".")[2]
        parts = [path, torch_version, *(f"{name}={environ[name]}" for name in _WORLD if environ.get(name))]
        digest = hashlib.sha256("\0".join(parts).encode("utf-8", "surrogateescape")).hexdigest()
        return cls(f"{name[:32]}-{digest[:8]}", path, torch_version, tuple(argv[1:]))

    def directories(self, cache: Path) -> Iterator[Path]:
        """Where a new run of it may be: the first one that is free."""
        hint = hint_of(self.arguments)
        name = f"{self.key}-{hint}" if hint else self.key
        yield cache / name
        for number in range(2, 1 << 20):
            yield cache / f"{name}-{number}"


@dataclasses.dataclass(frozen=True)
class KnownRun:
    """A run of a program. `arguments`: of starts, the last one first; `used`: when that was, in seconds since 1970."""

    directory: Path
    key: str
    path: str
    torch: str
    arguments: tuple[Arguments, ...]
    used: float

    @property
    def name(self) -> str:
        return self.directory.name

    def plan(self, rank: int) -> Path:
        return self.directory / "output" / "plan" / f"rank{rank:05d}.plan"


def cache_directory(environ: Mapping[str, str]) -> Path:
    """OSError: neither a variable nor the system names the folder of the user's files."""
    base = environ.get("XDG_CACHE_HOME")
    try:
        return (Path(base) if base else Path.home() / ".cache") / "stalloc" / "runs"
    except RuntimeError as error:
        raise OSError("the user has no home directory: set STALLOC_MODEL_INFO_PATH or XDG_CACHE_HOME") from error


def last_run(environ: Mapping[str, str]) -> Optional[Path]:
    """The run in the user's cache that was used last; None where there is none. OSError: the user has no cache."""
    return next((path for _, path in by_use(cache_directory(environ))), None)


def runs_of(program: Program, cache: Path) -> list[KnownRun]:
    """The one that was used last first."""
    found = [read_run(path) for _, path in by_use(cache) if path.name.startswith(program.key)]
    return [run for run in found if run is not None and run.key == program.key]


def read_run(directory: Path) -> Optional[KnownRun]:
    """None: the directory does not say whose it is, as that of an earlier version of stalloc."""
    path = directory / _DESCRIPTION
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
        arguments = tuple(tuple(map(str, one)) for one in fields["arguments"])
        key, program, torch = (str(fields[name]) for name in ("key", "program", "torch"))
        return KnownRun(directory, key, program, torch, arguments, path.stat().st_mtime)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def describe(directory: Path, program: Program, fits: bool) -> None:
    """Notes a start with these arguments. `fits`: the run is used by it; else only where nothing is noted yet.

    OSError: it cannot be written, or another process is there for long.
    """
    known = read_run(directory)
    if known is not None and known.key == program.key and (not fits or known.arguments[:1] == (program.arguments,)):
        if fits:
            os.utime(directory / _DESCRIPTION)  # it is used
        return
    with run_files.gate(directory):
        known = read_run(directory)
        before = known.arguments if known is not None and known.key == program.key else ()
        arguments = [program.arguments, *(one for one in before if one != program.arguments)]
        fields: dict[str, Any] = {
            "program": program.path,
            "key": program.key,
            "torch": program.torch,
            "arguments": arguments[:_MOST_ARGUMENTS],
        }
        write_whole(directory / _DESCRIPTION, f"{json.dumps(fields, indent=1)}\n".encode())


def hint_of(arguments: Sequence[str]) -> str:
    """The arguments that distinguish runs, fit for a file's name: "batch-6-steps-12". Empty where there are none."""
    words = [_last_part(word) for word in without_secrets(arguments)]
    return re.sub(r"[^A-Za-z0-9._=]+", "-", "-".join(words))[:_HINT_LENGTH].strip("-.")


def without_secrets(arguments: Sequence[str]) -> list[str]:
    """The same, without values of options that are named as secrets are."""
    shown: list[str] = []
    hidden = False
    for word in arguments:
        name, equals, _ = word.partition("=")
        is_option = word.startswith("-")
        secret = is_option and bool(_SECRET.search(name))
        shown.append(f"{name}=***" if secret and equals else "***" if hidden and not is_option else word)
        hidden = secret and not equals
    return shown


def _last_part(word: str) -> str:
    """A word for a path."""
    name, equals, value = word.rpartition("=")
    return name + equals + (value.rstrip("/").rpartition("/")[2] or value)


# What is kept ---------------------------------------------------------------------------------------------------------


def by_use(cache: Path) -> list[tuple[float, Path]]:
    """When each run was used last, the latest first. Those that go meanwhile are left out."""
    found = []
    with contextlib.suppress(OSError), os.scandir(cache) as entries:
        for entry in entries:
            with contextlib.suppress(OSError):
                if entry.is_dir(follow_symlinks=False) and not entry.name.startswith("."):
                    found.append((_used(Path(entry.path)), Path(entry.path)))
    return sorted(found, reverse=True)


def _used(directory: Path) -> float:
    """The directory itself changes with every start, whether the run is its own or not."""
    with contextlib.suppress(OSError):
        return (directory / _DESCRIPTION).stat().st_mtime
    return directory.stat().st_mtime


def bytes_in(directory: Path) -> int:
    """The bytes of the files; files come and go meanwhile."""
    held = 0
    for folder, _, names in os.walk(directory):  # which leaves out what it cannot read
        for name in names:
            with contextlib.suppress(OSError):
                held += os.lstat(os.path.join(folder, name)).st_size
    return held


def remove_leftovers(cache: Path) -> None:
    """Cleans up removals that were broken off."""
    with contextlib.suppress(OSError), os.scandir(cache) as entries:
        for entry in entries:
            if run_files.is_leftover(Path(entry.path)):
                shutil.rmtree(entry.path, ignore_errors=True)


def drop_oldest(but: Path, program: Program) -> None:
    """Runs that were not used for longest and that nobody uses now: the program's beyond so many, and of all until what
    is left is small enough."""
    own = [run.directory for run in runs_of(program, but.parent) if run.directory != but]
    for run in own[_MOST_RUNS - 1 :]:
        run_files.remove_run(run)
    sizes = [(run, bytes_in(run)) for _, run in by_use(but.parent)]
    held = sum(count for _, count in sizes)
    for run, count in reversed(sizes):
        if held <= _MOST_BYTES:
            return
        if run != but and run_files.remove_run(run):
            held -= count
