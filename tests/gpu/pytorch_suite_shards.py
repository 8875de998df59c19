"""Divides PyTorch's tests over processes and devices, and gets each process through its share.

Three kinds of tests: those that share a device, in as many shards as there are workers; those that need a device for
themselves (they ask for half of it, or look at what is free on it); those of two devices. With several devices, the
second kind has the last one while the first has the others.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Optional

HERE = Path(__file__).resolve().parent
OURS = ("torch", "trace-exact", "trace-fast", "alloc")
ALONE, MULTIPLE = "alone", "multiple"
SECONDS_AROUND_A_TEST = 0.05
DEVICE_LOST = 70  # exit code of a process whose device no longer answers


@dataclasses.dataclass(frozen=True)
class Share:
    """What one process after the other has to get through: the tests of `name`, on these devices."""

    name: str  # ALONE, MULTIPLE or the number of a shard
    devices: tuple[str, ...]


def shares_of(workers: int, devices: list[str]) -> tuple[list[Share], Share, Share]:
    """The shards, those that run alone, those of several devices."""
    shared = devices[:-1] if len(devices) > 1 else devices
    shards = [Share(str(number), (shared[number % len(shared)],)) for number in range(workers)]
    return shards, Share(ALONE, (devices[-1],)), Share(MULTIPLE, tuple(devices))


def assign(seconds: Mapping[str, float], workers: int) -> dict[str, int]:
    """A shard for each test: the longest first, each to the one that has the least to do by then."""
    load = [0.0] * workers
    shards: dict[str, int] = {}
    for test, took in sorted(seconds.items(), key=lambda item: (-item[1], item[0])):
        shards[test] = load.index(min(load))
        load[shards[test]] += took + SECONDS_AROUND_A_TEST
    return shards


class Processes:
    """Those that run now; each is a group of its own, so that what it started goes with it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[bytes]] = set()
        self.interrupted = False

    def run(self, command: list[str], environment: dict[str, str], log: Path, deadline: float) -> Optional[int]:
        """The exit code, or None where the deadline (time.monotonic) or an interrupt came first."""
        with (
            log.open("a") as file,
            subprocess.Popen(command, env=environment, stdout=file, stderr=file, start_new_session=True) as process,
        ):
            with self._lock:
                self._running.add(process)
            try:
                if self.interrupted:
                    return None
                code = process.wait(max(0.0, deadline - time.monotonic()))
                return None if self.interrupted else code
            except subprocess.TimeoutExpired:
                return None
            finally:
                with self._lock:
                    self._running.discard(process)
                _kill(process)

    def interrupt(self, *_: object) -> None:
        """At SIGINT: no test goes on, and what they showed so far is written down."""
        self.interrupted = True
        for process in list(self._running):
            _kill(process)

    def stop(self, *_: object) -> None:
        """At SIGTERM: tests that went on would keep their memory on the device."""
        self.interrupt()
        os._exit(128 + signal.SIGTERM)


def _kill(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


PROCESSES = Processes()


class Shard:
    """One share under one allocator: as many processes as it takes to get through its tests."""

    def __init__(self, arguments: argparse.Namespace, mode: str, share: Share, deadline: float) -> None:
        self.arguments = arguments
        self.deadline = deadline
        self.run = (arguments.work / share.name).resolve()  # trace and plan: the same folder in all modes
        self.record = self.run / f"{mode}.jsonl"
        self.log = self.run / f"{mode}.log"
        self.environment = {key: value for key, value in os.environ.items() if key != "STALLOC_MODE"}
        self.environment |= {
            "PYTHONPATH": f"{HERE}:{os.environ.get('PYTHONPATH', '')}",
            "CUDA_VISIBLE_DEVICES": ",".join(share.devices),
            "SUITE_RECORD": str(self.record),
            "SUITE_ALLOCATOR": "stalloc" if mode in OURS else "native",
            "SUITE_CLASSES": arguments.classes,
            "SUITE_ALONE": arguments.alone,
            "SUITE_MULTIPLE": arguments.multiple,
            "SUITE_SHARE": share.name,
            "SUITE_SHARDS": str(arguments.workers),
            "SUITE_ASSIGNED": str(arguments.work / "assigned.json"),
            "SUITE_PASSES": str(arguments.passes),
            "SUITE_DEVICE_LOST": str(DEVICE_LOST),
            "STALLOC_MODEL_INFO_PATH": str(self.run),
            "OMP_NUM_THREADS": "2",
        }
        if mode == "pluggable":
            self.environment["SUITE_ALLOCATOR"] = _pluggable_library()
        if mode in OURS:
            self.environment["STALLOC_MODE"] = mode.split("-", maxsplit=1)[0].capitalize()
            self.environment["STALLOC_TRACE_FAST_MODE"] = "1" if mode == "trace-fast" else "0"

    def execute(self) -> None:
        """Until all tests ran or the deadline came."""
        self.run.mkdir(parents=True, exist_ok=True)
        self.record.unlink(missing_ok=True)
        self.log.unlink(missing_ok=True)
        while True:
            done = sorted({event["test"] for event in self.events() if "test" in event})
            environment = self.environment | {"SUITE_DONE": json.dumps(done)}
            code = PROCESSES.run(self._command(), environment, self.log, self.deadline)
            if code is None or code in (0, 1, 5):  # no time left; all ran; some failed; none was left
                return
            if code != DEVICE_LOST and not self._note_crash(code, done):
                raise RuntimeError(f"pytest ended with {code} before any test: see {self.log}")

    def _command(self) -> list[str]:
        files = [str(path.resolve()) for path in self.arguments.files]
        options = ["-q", "-c", os.devnull, "-p", "pytorch_suite_plugin", "-p", "no:cacheprovider", "-p", "no:xdist"]
        options += ["--timeout", str(self.arguments.timeout), "--rootdir", str(Path(files[0]).parent)]
        return [sys.executable, "-m", "pytest", *options, *files]

    def _note_crash(self, code: int, before: list[str]) -> bool:
        """Writes down the test that was under way. False: none was."""
        started = [event for event in self.events() if event["event"] == "start" and event["test"] not in before]
        if not started:
            return False
        last = {"event": "end", "test": started[-1]["test"], "number": started[-1]["number"], "outcome": "crashed"}
        with self.record.open("a") as file:
            file.write(json.dumps(last | {"message": f"the process ended with {code}"}) + "\n")
        return True

    def events(self) -> list[dict[str, Any]]:
        """What happened so far; a line that a killed process left unfinished is no event."""
        lines = self.record.read_text().splitlines(keepends=True) if self.record.exists() else []
        return [json.loads(line) for line in lines if line.endswith("\n")]


def execute(arguments: argparse.Namespace, mode: str, devices: list[str], deadline: float) -> list[Shard]:
    """All shares under one allocator. With one device, what needs it alone comes first: it must not be cut off."""
    shares, alone_share, multiple_share = shares_of(arguments.workers, devices)
    shared = [Shard(arguments, mode, share, deadline) for share in shares]
    alone = Shard(arguments, mode, alone_share, deadline)
    multiple = Shard(arguments, mode, multiple_share, deadline)
    rounds = [[alone, *shared]] if len(devices) > 1 else [[alone], shared]
    for shards in [*rounds, [multiple]]:
        with ThreadPoolExecutor(len(shards)) as pool:
            list(pool.map(Shard.execute, shards))
    return [alone, *shared, multiple]


def _pluggable_library() -> str:
    from stalloc.core import library

    return str(library.find_or_raise("libstalloc.so"))
