"""Runs programs that need GPUs, side by side where they may share one: a small version of CTest's resources.

Each program has a process group, a time limit, and the devices it was given in CUDA_VISIBLE_DEVICES. One that needs a
device alone has no neighbour there. They start in the order given, a later one before an earlier one whose devices are
taken, so what needs devices alone belongs in front (or, if it needs all of them, at the end).
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Optional

GRACE_SECONDS = 20.0  # between the interrupt, after which pytest writes its report, and the end
LAST_SECONDS = 3.0  # for a program that has others to end
POLL_SECONDS = 0.1
CANNOT_START = 127


@dataclasses.dataclass(frozen=True)
class Program:
    """What to run. `devices`: the most that it uses, of which it needs `least`."""

    name: str
    command: list[str]
    log: Path
    limit_s: float
    devices: int = 1
    least: int = 1
    alone: bool = False


@dataclasses.dataclass(frozen=True)
class Ended:
    """How a program ended: its exit code, None where its time was up or it was never started."""

    program: Program
    code: Optional[int]
    seconds: float
    devices: tuple[str, ...]
    started: bool = True


class Devices:
    """Who uses which device."""

    def __init__(self, names: list[str]) -> None:
        self._users = dict.fromkeys(names, 0)
        self._alone: set[str] = set()

    def take(self, program: Program) -> Optional[tuple[str, ...]]:
        """The least used devices that the program may have now; None where there are too few."""
        wanted = min(program.devices, len(self._users))
        open_to_it = [
            name for name, users in self._users.items() if name not in self._alone and not (program.alone and users)
        ]
        if wanted < program.least or len(open_to_it) < wanted:
            return None
        taken = tuple(sorted(sorted(open_to_it, key=lambda name: self._users[name])[:wanted]))
        for name in taken:
            self._users[name] += 1
        if program.alone:
            self._alone.update(taken)
        return taken

    def give_back(self, taken: tuple[str, ...]) -> None:
        for name in taken:
            self._users[name] -= 1
        self._alone.difference_update(taken)


@contextlib.contextmanager
def _interrupts_heeded() -> Iterator[None]:
    """By what is started now: what a shell runs in its background ignores them, and so would all that this starts."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


class _Running:
    def __init__(self, program: Program, environment: Mapping[str, str], devices: tuple[str, ...], end: float) -> None:
        self.program = program
        self.devices = devices
        self.begin = time.monotonic()
        self.deadline = min(self.begin + program.limit_s, end)
        self.interrupted = False
        with program.log.open("w") as log, _interrupts_heeded():
            self.process = subprocess.Popen(
                program.command,
                env={**environment, "CUDA_VISIBLE_DEVICES": ",".join(devices)},
                stdout=log,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )

    def ended(self) -> Optional[Ended]:
        """None while it runs. Interrupts it when its time is up, and ends it when it does not react."""
        now = time.monotonic()
        code = self.process.poll()
        if code is None and now >= self.deadline and not self.interrupted:
            self.interrupted = True
            self.process.send_signal(signal.SIGINT)
        if code is None and now < self.deadline + GRACE_SECONDS:
            return None
        self.kill()
        return Ended(self.program, None if self.interrupted else code, round(now - self.begin, 1), self.devices)

    def kill(self) -> None:
        """With all that it started and did not put into groups of their own."""
        if self.process.poll() is None:
            self.process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(LAST_SECONDS)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def run_all(
    programs: list[Program], devices: list[str], environment: Mapping[str, str], budget_s: float
) -> Iterator[Ended]:
    """How each program ended, as soon as it has. Those that the budget has no time for are not started."""
    users = Devices(devices)
    waiting = list(programs)
    running: list[_Running] = []
    end = time.monotonic() + budget_s
    try:
        while waiting or running:
            for program in list(waiting):
                if len(devices) < program.least or time.monotonic() >= end:
                    waiting.remove(program)
                    yield Ended(program, None, 0.0, (), started=False)
                elif (taken := users.take(program)) is not None:
                    waiting.remove(program)
                    try:
                        running.append(_Running(program, environment, taken, end))
                    except OSError as error:
                        users.give_back(taken)
                        program.log.write_text(f"{error}\n")
                        yield Ended(program, CANNOT_START, 0.0, taken)
            for one in list(running):
                if (result := one.ended()) is not None:
                    running.remove(one)
                    users.give_back(one.devices)
                    yield result
            time.sleep(POLL_SECONDS)
    finally:
        for one in running:
            one.kill()
