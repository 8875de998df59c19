"""Programs that take orders to sleep, under the fake torch and library: they start in a moment, and keep a log."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Callable

from processes import FakeProcess, Finished, clean_environment, run_python

# Goes on until there is a file `stop`; is held in an iteration as long as there is a file `hold`.
LOOP = """
import sys, time
from pathlib import Path
import stalloc
directory = Path(sys.argv[1])
print(stalloc.serve_sleep(), flush=True)
step = 0
while not (directory / "stop").exists():
    while (directory / "hold").exists():
        time.sleep(0.01)
    stalloc.iteration(step)
    step += 1
    with open(directory / "steps", "ab") as steps:
        steps.write(b".")
    time.sleep(0.005)
"""

# Does so in its last iteration, which ends with the program.
LAST = """
import sys
import stalloc
print(stalloc.serve_sleep(), flush=True)
stalloc.iteration(0)
sys.stdin.readline()
"""

# Has no iterations.
IDLE = """
import sys
import stalloc
print(stalloc.serve_sleep(at="once"), flush=True)
sys.stdin.readline()
"""


def eventually(holds: Callable[[], Any], seconds: float = 60) -> bool:
    """Whether it does within that time."""
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def children(pid: int) -> list[str]:
    """Numbers of the processes that its first thread has started and that are there."""
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


class Sleeper:
    """One such program, once it takes orders.

    `within`: a command that runs it, as its only child.
    """

    def __init__(
        self, fake: FakeProcess, directory: Path, program: str, within: Sequence[str] = (), **environment: str
    ) -> None:
        self._fake = fake
        self.directory = directory
        directory.mkdir(exist_ok=True)
        self.log = directory / "calls.log"
        self.runtime = directory.parent
        self._environment = {**fake.environment, "XDG_RUNTIME_DIR": str(self.runtime)}
        self.slow = directory / "slow"  # where there is such a file, a sleep does not end
        own = {"FAKE_SLEEPS": "1", "FAKE_LOG": str(self.log), "FAKE_SLEEP_WHILE": str(self.slow)}
        self.process = subprocess.Popen(
            [*within, sys.executable, "-c", program, str(directory)],
            env=clean_environment({**self._environment, **own, "STALLOC_MODE": "Alloc", **environment}),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self.path = Path(self.process.stdout.readline().strip())
        if not self.path.is_absolute():
            self.process.kill()
            raise AssertionError(self.process.communicate()[1])
        self.pid = children(self.process.pid)[0] if within else str(self.process.pid)
        self._threads = self.threads()

    def __enter__(self) -> Sleeper:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()

    def hold(self) -> None:
        """The loop stays inside of an iteration."""
        (self.directory / "hold").touch()
        assert eventually(lambda: not self.goes_on(0.3))

    def release(self) -> None:
        (self.directory / "hold").unlink()

    def goes_on(self, seconds: float) -> bool:
        """Whether it comes to another iteration within that time."""
        steps = self.directory / "steps"
        before = steps.stat().st_size if steps.exists() else 0
        return eventually(lambda: steps.exists() and steps.stat().st_size > before, seconds)

    def end(self) -> Finished:
        """Lets the program end, which it must do soon."""
        (self.directory / "stop").touch()
        out, err = self.process.communicate("\n", timeout=60)
        return Finished(self.process.returncode, out, err)

    def calls(self) -> list[str]:
        """Of sleep and wake."""
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        return [line.split()[0] for line in lines if line.startswith(("sleep", "wake"))]

    def threads(self) -> int:
        return len(os.listdir(f"/proc/{self.pid}/task"))

    def has_orders(self, count: int) -> None:
        """Waits until so many orders have come."""
        assert eventually(lambda: self.threads() == self._threads + count)
        time.sleep(0.2)  # it is a thread's first deed

    def order(self, *words: str, **environment: str) -> Finished:
        return run_python("-m", "stalloc", *words, environment={**self._environment, **environment})

    def start_order(self, *words: str) -> Ordering:
        return Ordering(words, clean_environment(self._environment))


class Ordering:
    """A client that waits for its answer."""

    def __init__(self, words: tuple[str, ...], environment: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "stalloc", *words],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Ordering:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()

    def wait(self, seconds: float = 60) -> Finished:
        out, err = self.process.communicate(timeout=seconds)
        return Finished(self.process.returncode, out, err)

    def interrupt(self, number: int, seconds: float = 20) -> Finished:
        self.process.send_signal(number)
        return self.wait(seconds)
