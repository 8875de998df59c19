"""The users of a run's directory, so that starts of one command at the same time do not touch each other's files.

    RUN/.lock                     held for moments: while a start's folder is made, a plan published, the run removed
    RUN/starts/HOST-PID/          of one start alone: its trace, the plans made of it, what its planner says
    RUN/starts/HOST-PID/lock      held by the start's process and its planner, as long as one of them lives

What is whole goes from there to RUN (planner/cli/start_folder.h); the last one stays. A folder that nobody holds is
removed by a later start. Where the file system has no locks, `lock` names the processes, and they show who lives.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import fcntl
import os
import shutil
import socket
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Callable, Optional

from stalloc.core import identity as process_identity
from stalloc.core.files import write_whole

_GATE_SECONDS = 30.0  # all ranks of a large job come through it at once
_TRIES = 10
_UNFINISHED_SECONDS = 60.0
_UNKNOWN_LIVES_SECONDS = 7 * 24 * 3600  # a process of another host, where there are no locks
_REMOVED = ".removed-"
_STANDARD_DESCRIPTORS = 10  # those below mean something to who inherits them


class Start:
    """One start's own folder. Not known to forked children, which do not hold it."""

    def __init__(self, run: Path, folder: Path, lock: Optional[int], kept: bool = True) -> None:
        self.run = run
        self.folder = folder
        self.lock = lock  # a descriptor that is not inherited; None: there are no locks
        self.kept = kept  # False: in a temporary folder, from which nothing is published
        os.register_at_fork(after_in_child=self._release)

    @classmethod
    def begin(cls, run: Path) -> Start:
        """In `run`, which is made. OSError: it cannot be written."""
        for _ in range(_TRIES - 1):
            with contextlib.suppress(FileNotFoundError, FileExistsError):  # another start has removed the directory
                return _begin(run)
        return _begin(run)

    @classmethod
    def temporary(cls, run: Optional[Path]) -> Start:
        """The files of a run whose directory cannot be written; None: it has none."""
        folder = Path(tempfile.mkdtemp(prefix="stalloc-"))
        return cls(run or folder, folder, None, kept=False)

    def move_to(self, run: Path, admits: Callable[[], bool]) -> bool:
        """The start turns out to be one of another run: its folder goes there, with what is open in it.

        Args:
            admits: whether it may, or may stay where that is here; called while the run's gate is held.
        Returns:
            False: it may not, and nothing has changed. OSError: the run cannot be written.
        """
        run.mkdir(parents=True, exist_ok=True)
        with gate(run):
            if not admits():
                return False
            before = self.run
            if run != before:
                folder = _free_folder(run)
                os.rename(self.folder, folder)
                self.run, self.folder = run, folder
        if run != before:
            _remove_if_empty(before)
        return True

    def planned_by(self, process: int) -> None:
        """A planner holds the folder as well: recorded where there are no locks to show it."""
        with contextlib.suppress(OSError), (self.folder / "lock").open("a", encoding="utf-8") as file:
            file.write(f"{_name_of(process)}\n")

    def keep(self, file: Path) -> None:
        """Moves a file of the folder to the same place of the run; nothing where it cannot be, or is being written."""
        if not self.kept:
            return
        target = self.run / file.relative_to(self.folder)
        with contextlib.suppress(OSError):
            target.parent.mkdir(parents=True, exist_ok=True)
            if not is_locked(target):
                os.replace(file, target)

    def leave(self) -> None:
        """Removes the folder. Not while a planner works in it: that one does so itself."""
        shutil.rmtree(self.folder, ignore_errors=True)
        _remove_if_empty(self.run)
        self._release()

    def _release(self) -> None:
        lock, self.lock = self.lock, None
        _close(lock)


@dataclasses.dataclass(frozen=True)
class Paths:
    """One rank's files: of the run, and of this start alone."""

    start: Start
    rank: int
    served_from: int  # the rank whose plan it begins with, where there is one: its own, or a replica's
    part: str = ""  # of the start's folder

    @property
    def directory(self) -> Path:
        """The run's folder."""
        return self.start.run

    @property
    def folder(self) -> Path:
        """The start's folder."""
        return self.start.folder / self.part

    @property
    def plan(self) -> Path:
        return self._plan_of(self.rank)

    @property
    def first_plan(self) -> Path:
        return self._plan_of(self.served_from)

    def _plan_of(self, rank: int) -> Path:
        return self.directory / "output" / "plan" / f"rank{rank:05d}.plan"

    @property
    def status(self) -> Path:
        return self.directory / "log_output" / f"rank{self.rank:05d}.auto.json"

    @property
    def late_graphs(self) -> Path:
        """How long the run has to be traced for its captured graphs (late_graphs.py)."""
        return self.directory / "output" / "plan" / f"rank{self.rank:05d}.graphs.json"

    @property
    def running_plan(self) -> Path:
        return self.folder / "output" / "plan" / f"rank{self.rank:05d}.running.plan"

    @property
    def trace(self) -> Path:
        return self.folder / "trace" / f"rank{self.rank:05d}.trace"

    @property
    def report(self) -> Path:
        """The path of the running plan."""
        return self.folder / "output" / "trace_analysis" / f"rank{self.rank:05d}.json"

    @property
    def planner_log(self) -> Path:
        return self.folder / "log_output" / f"rank{self.rank:05d}.planner.log"

    def again(self) -> Paths:
        """The path of a trace from the middle of the run; the next start has no use for it."""
        return dataclasses.replace(self, part="again")


def signature_name(rank: int) -> str:
    """The signature of a rank's requests, below a run's directory or a start's folder (planner/cli/run_directory.h)."""
    return os.path.join("output", "plan", f"rank{rank:05d}.signature.json")


Identity = tuple[int, int, int, int]


def identity(file: Path) -> Optional[Identity]:
    """The identity of the file that is there now: another one has another. None: there is none."""
    try:
        stat = file.stat()
    except OSError:
        return None
    return stat.st_dev, stat.st_ino, stat.st_mtime_ns, stat.st_size


@contextlib.contextmanager
def gate(run: Path, seconds: float = _GATE_SECONDS) -> Iterator[None]:
    """One process at a time. OSError: the directory is not there or cannot be written, or another process is there."""
    path, until = run / ".lock", time.monotonic() + seconds
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            if _try_lock(descriptor) is not False and _is_at(descriptor, path):
                yield
                return
        finally:
            with contextlib.suppress(OSError):
                fcntl.flock(descriptor, fcntl.LOCK_UN)  # a child that was forked meanwhile has it as well
            os.close(descriptor)
        if time.monotonic() >= until:
            raise TimeoutError(errno.ETIMEDOUT, "another process holds it", str(path))
        time.sleep(0.01)


def starts_in(run: Path) -> list[Path]:
    """Folders of starts, of those that have ended, too."""
    try:
        return [Path(entry.path) for entry in os.scandir(run / "starts") if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return []


def remove_ended(run: Path) -> None:
    """Folders that nobody has any more. OSError: as for `gate`."""
    with gate(run):
        found = [(folder, *_take_if_ended(folder)) for folder in starts_in(run)]
    for folder, ended, lock in found:
        if ended:
            shutil.rmtree(folder, ignore_errors=True)
        _close(lock)


def in_use(run: Path) -> bool:
    """A start's process lives there, or its planner."""
    for folder in starts_in(run):
        ended, lock = _take_if_ended(folder)
        _close(lock)
        if not ended:
            return True
    return False


def remove_run(run: Path) -> bool:
    """Removes the directory of a run that nobody uses; False where somebody does, or it cannot be."""
    away = run.with_name(f"{_REMOVED}{run.name}-{os.getpid()}")
    try:
        with gate(run, seconds=0):
            if in_use(run):
                return False
            os.rename(run, away)  # who comes now makes it anew
    except OSError:
        return False
    shutil.rmtree(away, ignore_errors=True)
    return True


def is_leftover(directory: Path) -> bool:
    """Cleans up a run whose removal was broken off."""
    return directory.name.startswith(_REMOVED) and _age(directory) > _UNFINISHED_SECONDS


def _begin(run: Path) -> Start:
    run.mkdir(parents=True, exist_ok=True)
    with gate(run):
        return _make(run)


def _make(run: Path) -> Start:
    """REQUIRES: the gate is held, so that nobody takes the folder for one that is left."""
    folder = _free_folder(run)
    folder.mkdir()
    write_whole(folder / "lock", f"{_name_of(os.getpid())}\n".encode())
    opened = os.open(folder / "lock", os.O_RDWR | os.O_CLOEXEC)
    try:
        lock = fcntl.fcntl(opened, fcntl.F_DUPFD_CLOEXEC, _STANDARD_DESCRIPTORS)
    finally:
        os.close(opened)
    if not _try_lock(lock):
        _close(lock)
        return Start(run, folder, None)
    return Start(run, folder, lock)


def _free_folder(run: Path) -> Path:
    """Makes a folder for a start of this process. REQUIRES: the gate is held."""
    everywhere = run / "starts"
    everywhere.mkdir(exist_ok=True)
    name = f"{socket.gethostname() or 'host'}-{os.getpid()}".replace("/", "_")
    return next(path for path in (everywhere / f"{name}{_suffix(i)}" for i in range(1 << 20)) if not path.exists())


def _remove_if_empty(run: Path) -> None:
    """What a run has of starts, where there is none."""
    with contextlib.suppress(OSError), gate(run, seconds=0):
        (run / "starts").rmdir()


def _suffix(number: int) -> str:
    """Another process has the same number, in a container, or the same process starts again."""
    return f"-{number}" if number else ""


def _take_if_ended(folder: Path) -> tuple[bool, Optional[int]]:
    try:
        descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:  # it is being made, or was being removed
        return _age(folder) > _UNFINISHED_SECONDS, None
    except OSError:
        return False, None
    taken = _try_lock(descriptor)
    if taken or (taken is None and not _one_lives(folder)):
        return True, descriptor
    os.close(descriptor)
    return False, None


def _try_lock(descriptor: int) -> Optional[bool]:
    """False: another has it. None: the file system has no locks."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except OSError:
        return False


def is_locked(path: Path) -> bool:
    """Another process writes the trace."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return _try_lock(descriptor) is False
    finally:
        os.close(descriptor)


def _age(path: Path) -> float:
    """Seconds since it was changed; 0 where it is gone."""
    try:
        return time.time() - path.stat().st_mtime
    except OSError:
        return 0.0


def _close(descriptor: Optional[int]) -> None:
    if descriptor is not None:
        with contextlib.suppress(OSError):
            os.close(descriptor)


# Where there are no locks ---------------------------------------------------------------------------------------------


def _place() -> str:
    """Where a process's number means something."""
    return f"{socket.gethostname() or '-'} {process_identity.namespace() or '-'}"


def _name_of(process: int) -> str:
    """Its place, its number, and when it was started; "-": there is none."""
    started = process_identity.started(process)
    return f"{_place()} {process} {'-' if started is None else started}"


def _one_lives(folder: Path) -> bool:
    try:
        lines = (folder / "lock").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return False
    return any(_lives(line, _age(folder / "lock")) for line in lines)


def _lives(line: str, age: float) -> bool:
    place, _, started = line.rpartition(" ")
    place, _, process = place.rpartition(" ")
    if place != _place() or not process.isdecimal():
        return age < _UNKNOWN_LIVES_SECONDS
    return started != "-" and line == _name_of(int(process))
