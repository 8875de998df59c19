"""The planner alongside a run: a process of its own session, which holds nothing of the run's but its folder's lock.

It outlives the run where that ends first, and keeps its plan for the next start (planner/cli/start_folder.h). A process
that holds CUDA is not forked for it, and it inherits no descriptor: a process that waits for the run's sockets and
pipes to be closed does not wait for a planner.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from pathlib import Path
from typing import Callable, Optional

from stalloc.core import library
from stalloc.core.run_files import Paths
from stalloc.train.auto.planner_words import why_it_failed

_NICENESS = 10
_NICE_SECONDS = 2.0  # on a busy machine: then it has its share of it as any other process
_LOOK_SECONDS = 0.05
_KILLED_SECONDS = 0.2  # until a process that was killed is gone
_NO_PLAN = 1  # its exit code is not known, or says that all is well
_LOCK_DESCRIPTOR = 3  # the planner's
_SIGNALS = {signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGPIPE, signal.SIGCHLD, signal.SIGXFSZ}


class Planner:
    """`stalloc-planner plan` of a rank's trace. Thread-safe.

    Args:
        options: of the planner, more than which trace it plans.
        prepare: called with the running plan's path when it is there, on a thread of its own.
    Raises:
        OSError, RuntimeError: it cannot be started.
    """

    def __init__(self, paths: Paths, options: list[str], prepare: Callable[[Path], None]) -> None:
        self._plan, self._log, self._start, self._prepare = paths.running_plan, paths.planner_log, paths.start, prepare
        program = str(library.find_or_raise(library.PLANNER_NAME))
        self._command = [program, "plan", str(paths.folder), f"--rank={paths.rank}", "--threads=1", *options]
        self._plan.unlink(missing_ok=True)  # of an earlier trace
        self._guard = threading.Lock()
        self._code: Optional[int] = None  # guarded by _guard; None: it runs
        self._niced = True
        self._leaving = threading.Event()
        self.began = time.monotonic()
        self.process = self._spawn()
        self._follower = threading.Thread(target=self._follow, name="stalloc", daemon=True)
        self._follower.start()

    def _spawn(self) -> int:
        niceness = _NICENESS if self._niced else 0
        process = _spawn([*self._command, f"--nice={niceness}"], self._log, self._start.lock)
        self._start.planned_by(process)
        return process

    def _follow(self) -> None:
        """Until the plan is there and prepared, or the planner has ended without one."""
        while self.running() and not self._plan.is_file():
            if self._leaving.wait(_LOOK_SECONDS):
                return
            self._end_niceness()
        if not self._plan.is_file():
            return
        with contextlib.suppress(OSError):  # of this thread alone, where the system knows such
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 19)
        with contextlib.suppress(RuntimeError):  # taking the plan up reports the same
            self._prepare(self._plan)

    def _end_niceness(self) -> None:
        """Niceness is only ever raised: a planner that got less than half of a core so far begins again without it."""
        elapsed = time.monotonic() - self.began
        if not self._niced or elapsed < _NICE_SECONDS:
            return
        self._niced = False
        used = _processor_seconds(self.process)
        if used is None or used > elapsed / 2:
            return
        with self._guard:
            if self._reaped() is not None or self._plan.is_file():
                return
            _kill(self.process)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(self.process, 0)
            self.process = self._spawn()

    def poll(self) -> Optional[int]:
        """None as long as the plan is awaited; 0 when it is there; else the planner's exit code, or minus a signal."""
        if self._follower.is_alive():
            return None
        if self._plan.is_file():
            return 0
        return self._code or _NO_PLAN

    def await_plan(self) -> int:
        self._follower.join()
        return self.poll() or 0

    @property
    def code(self) -> Optional[int]:
        """Its exit code, or minus a signal; None as long as it runs."""
        with self._guard:
            return self._reaped()

    def running(self) -> bool:
        return self.code is None

    def await_end(self) -> None:
        """The status of the process, which plans for the next start after it has made the run's plan."""
        while self.running():
            time.sleep(_LOOK_SECONDS / 5)

    def let_go(self) -> bool:
        """The run ends. False: the planner goes on."""
        self._leaving.set()
        self._follower.join()
        return not self.running()

    def kill(self) -> None:
        """Nobody needs what it makes."""
        until = time.monotonic() + _KILLED_SECONDS
        if self.running():
            _kill(self.process)
        while not self.let_go() and time.monotonic() < until:
            time.sleep(0.005)

    def _reaped(self) -> Optional[int]:
        """REQUIRES: _guard is held."""
        if self._code is None:
            try:
                process, status = os.waitpid(self.process, os.WNOHANG)
            except ChildProcessError:  # the program waits for every child, or for none: how this one ended is not known
                self._code = 0 if self._plan.is_file() else _NO_PLAN
            else:
                self._code = None if process == 0 else os.waitstatus_to_exitcode(status)
        return self._code

    def words(self) -> str:
        """The last of what it said."""
        try:
            return why_it_failed(self._log.read_text(encoding="utf-8", errors="replace"))
        except OSError:
            return why_it_failed("")


class Preparation:
    """Prepares an existing plan to be taken up, while the run goes on."""

    def __init__(self, plan: Path, prepare: Callable[[Path], None]) -> None:
        self.plan = plan
        self._thread = threading.Thread(target=self._run, args=(prepare,), name="stalloc", daemon=True)
        self._thread.start()

    def _run(self, prepare: Callable[[Path], None]) -> None:
        with contextlib.suppress(RuntimeError):  # taking the plan up reports the same
            prepare(self.plan)

    def ready(self, waits: bool) -> bool:
        """Or it cannot be made so. `waits`: until it is."""
        if waits:
            self._thread.join()
        return not self._thread.is_alive()


def _spawn(command: list[str], log: Path, lock: Optional[int]) -> int:
    """Its number. All descriptors are closed to it but the log and, as number 3, the lock."""
    log.parent.mkdir(parents=True, exist_ok=True)
    actions: list[tuple[object, ...]] = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, str(log), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666),
        (os.POSIX_SPAWN_DUP2, 1, 2),
    ]
    first = _LOCK_DESCRIPTOR
    if lock is not None:
        actions.append((os.POSIX_SPAWN_DUP2, lock, _LOCK_DESCRIPTOR))
        first += 1
    # posix_spawn, unlike fork, neither copies the address space nor runs what the program has registered for a fork.
    return os.posix_spawn(
        command[0],
        command,
        os.environ,
        file_actions=[*actions, *_closed_from(first)],
        setsid=True,
        setsigmask=[],
        setsigdef=_SIGNALS,
    )


def _closed_from(first: int) -> list[tuple[object, ...]]:
    close_from: Optional[int] = getattr(os, "POSIX_SPAWN_CLOSEFROM", None)  # Python 3.13, and what the system has
    if close_from is not None:
        return [(close_from, first)]
    # One that is closed before the child gets there is no error.
    return [(os.POSIX_SPAWN_CLOSE, one) for one in map(int, os.listdir("/proc/self/fd")) if one >= first]


def _processor_seconds(process: int) -> Optional[float]:
    """The CPU time that it has had so far."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    except (OSError, IndexError, ValueError):
        return None


def _kill(process: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(process, signal.SIGKILL)
