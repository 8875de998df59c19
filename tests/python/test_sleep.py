"""Sleep and wake of real training on the CPU: from the program itself, from another process, under every mode."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Optional

import pytest

from processes import ROOT, SCRIPTS, FakeProcess, Finished, Training, run_python, run_with_torch

SLEEPING = str(SCRIPTS / "sleeping.py")


class Sleeping:
    """Runs sleeping.py in one mode after the other on one directory."""

    def __init__(self, training: Training) -> None:
        self.training = training
        self._number = 0

    def command(self, *arguments: str) -> tuple[list[str], Path]:
        self._number += 1
        output = self.training.directory / f"sleeping{self._number}.json"
        return ["-m", "stalloc", "run", SLEEPING, *arguments, "--json", str(output)], output

    def environment(self, mode: Optional[str], **extra: str) -> dict[str, str]:
        path = os.pathsep.join([str(ROOT / "patches"), str(SCRIPTS)])
        return {"PYTHONPATH": path, **self.training.environment(mode, **extra)}

    def run(self, mode: Optional[str], *arguments: str, **extra: str) -> dict[str, Any]:
        command, output = self.command(*arguments)
        run_with_torch(*command, environment=self.environment(mode, **extra), cwd=self.training.directory).good()
        result: dict[str, Any] = json.loads(output.read_text())
        return result

    def serving(self, program: str, directory: Path, *arguments: str) -> subprocess.Popen[str]:
        """A process under Auto that runs this text, and takes orders by a socket in the directory."""
        environment = self.environment(
            "Auto", STALLOC_MODEL_INFO_PATH=str(directory / "info"), XDG_RUNTIME_DIR=str(directory)
        )
        return subprocess.Popen(
            [sys.executable, "-c", program, *arguments],
            env={**os.environ, **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    @contextlib.contextmanager
    def running(self, mode: str, *arguments: str, **extra: str) -> Iterator[tuple[subprocess.Popen[bytes], Path, Path]]:
        """A process, its result, and the file that lets it end; the loop runs when this is entered."""
        until, ready = (self.training.directory / f"{name}{self._number}" for name in ("until", "ready"))
        command, output = self.command("--until", str(until), "--ready", str(ready), *arguments)
        process = subprocess.Popen(
            [sys.executable, *command],
            env={**os.environ, **self.environment(mode, **extra)},
            cwd=self.training.directory,
        )
        try:
            deadline = time.monotonic() + 60
            while not ready.exists():
                assert process.poll() is None
                assert time.monotonic() < deadline
                time.sleep(0.02)
            yield process, output, until
        finally:
            process.kill()
            process.wait()


@pytest.fixture(scope="session")
def sleeping(planned: Training) -> Sleeping:
    """With the plan of train.py, whose loop it is."""
    return Sleeping(planned)


@pytest.fixture(scope="session")
def plain(planned: Training) -> dict[str, Any]:
    """A run that never sleeps."""
    result = planned.run(None, "--iterations", "8")
    assert len(set(result["losses"])) == 8
    return result


def expect_same(result: dict[str, Any], plain: dict[str, Any]) -> None:
    assert result["losses"] == plain["losses"]
    assert result["weights"] == plain["weights"]


def test_a_run_that_sleeps_after_every_iteration_trains_the_same(sleeping: Sleeping, plain: dict[str, Any]) -> None:
    result = sleeping.run("Alloc", "--iterations", "8", "--sleep-from", "0")
    expect_same(result, plain)
    assert len(result["sleeps"]) == 8
    for row in result["sleeps"]:
        (slept,), (woken,) = row["slept"]["devices"], row["woken"]["devices"]
        assert row["resident_bytes"] == slept["arena_bytes"] == 0
        assert slept["copied_bytes"] == slept["kept_bytes"] == woken["copied_bytes"] > 1_000_000
        assert slept["asleep_bytes"] == slept["kept_bytes"]
        assert woken["asleep_bytes"] == 0
        assert woken["arena_bytes"] == slept["given_back_bytes"]
    pools = {row["slept"]["devices"][0]["host_pool_bytes"] for row in result["sleeps"]}
    assert len(pools) == 1, "one pool, reused"
    steady = result["figures"]["devices"][0]["steady"]
    assert steady["hits"] == steady["requests"] > 100, "every iteration as planned"


def test_auto_sleeps_before_and_after_its_plan(sleeping: Sleeping, plain: dict[str, Any], tmp_path: Path) -> None:
    result = sleeping.run(
        "Auto",
        "--iterations",
        "8",
        "--sleep-from",
        "0",
        STALLOC_AUTO_WAIT="1",
        STALLOC_TRACE_STEPS="3",
        STALLOC_MODEL_INFO_PATH=str(tmp_path),
    )
    expect_same(result, plain)
    assert result["figures"]["devices"][0]["planned_hits"] > 0
    assert all(row["resident_bytes"] == 0 for row in result["sleeps"])
    assert result["sleeps"][0]["slept"]["devices"][0]["copied_bytes"] > 500_000, "weights, before there is a plan"


def test_what_is_dropped_reads_as_nan_under_the_watch(sleeping: Sleeping, plain: dict[str, Any]) -> None:
    result = sleeping.run("Alloc", "--iterations", "8", "--sleep-from", "2", "--drop", STALLOC_WATCH="1")
    expect_same(result, plain)
    for row in result["sleeps"]:
        assert row["slept"]["devices"][0]["dropped_bytes"] == 1 << 20
        assert row["cache_is_nan"]
    assert result["figures"]["devices"][0]["watch"]["findings"] == 0


# Where there is no arena ---------------------------------------------------------------------------------------------

_SAYS = "import stalloc\ntry:\n    stalloc.sleep()\nexcept RuntimeError as error:\n    print(error)"


def test_without_an_arena_it_says_so(fake: FakeProcess, sleeping: Sleeping) -> None:
    assert "stalloc is not active in this process" in fake.python("-c", _SAYS).out
    assert "STALLOC_MODE=Torch has no arena" in fake.python("-c", _SAYS, STALLOC_MODE="Torch").out
    environment = sleeping.environment("Trace", STALLOC_MODEL_INFO_PATH=str(sleeping.training.directory / "none"))
    assert "a traced run has no arena" in run_with_torch("-c", _SAYS, environment=environment).out


def test_regions_cost_nothing_without_stalloc(fake: FakeProcess) -> None:
    program = "import stalloc\nwith stalloc.region('a'), stalloc.outside():\n    print('inside')"
    assert fake.python("-c", program).out == "inside\n"


# Arguments -----------------------------------------------------------------------------------------------------------


def test_arguments_reach_the_library(fake: FakeProcess) -> None:
    program = (
        "import stalloc\n"
        "stalloc.sleep(); stalloc.sleep(tags='a', keep=['a', 'b'], device=1)\n"
        "stalloc.sleep(to='nothing', device='cpu')\n"
        "stalloc.wake(); stalloc.wake(['a', 'b'], device='cuda:3')"
    )
    fake.python("-c", program, STALLOC_MODE="Alloc").good()
    orders = [line for line in fake.calls() if line.startswith(("sleep", "wake"))]
    assert orders == ["sleep -2 -1 -1", "sleep 1 1 2", "sleep -1 -1 0", "wake -2 -1", "wake 3 2"]


@pytest.mark.parametrize(
    ("call", "says"),
    [
        ("stalloc.sleep(to='disk')", "to must be 'host' or 'nothing': 'disk'"),
        ("stalloc.sleep(to='nothing', keep='a')", "to='nothing' keeps nothing"),
        ("stalloc.sleep(device='gpu')", "device must be an index, 'cpu' or 'cuda:N': 'gpu'"),
        ("stalloc.serve_sleep(at='noon')", "at must be 'boundary' or 'once': 'noon'"),
    ],
)
def test_wrong_arguments_are_named(fake: FakeProcess, call: str, says: str) -> None:
    done = fake.python("-c", f"import stalloc\n{call}", STALLOC_MODE="Alloc")
    assert done.code == 1
    assert says in done.err


# Orders of other processes -------------------------------------------------------------------------------------------


def order(sleeping: Sleeping, runtime: Path, *words: str) -> Finished:
    return run_python(
        "-m", "stalloc", *words, environment={**sleeping.environment(None), "XDG_RUNTIME_DIR": str(runtime)}
    )


def resident_bytes(pid: int) -> int:
    """Of the shared memory that the arena is made of."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssShmem"):
            return int(line.split()[1]) * 1024
    raise AssertionError("the system does not tell")


def test_a_process_sleeps_and_wakes_on_command(sleeping: Sleeping, tmp_path: Path) -> None:
    with sleeping.running("Alloc", STALLOC_SLEEP_SOCKET="1", XDG_RUNTIME_DIR=str(tmp_path)) as (process, output, until):
        pid = str(process.pid)
        awake = resident_bytes(process.pid)
        slept = order(sleeping, tmp_path, "sleep", pid, "--json").good()
        (answer,) = json.loads(slept.out)["processes"]
        assert answer["ok"]
        assert answer["result"]["devices"][0]["copied_bytes"] > 1_000_000
        assert resident_bytes(process.pid) < awake - answer["result"]["devices"][0]["copied_bytes"]
        assert json.loads(order(sleeping, tmp_path, "sleep", pid, "--json").out)["processes"][0]["ok"], "again"
        woken = order(sleeping, tmp_path, "wake", pid).good()
        assert "copied" in woken.out
        until.write_text("")
        assert process.wait(timeout=60) == 0
        result = json.loads(output.read_text())
        expected = sleeping.training.run(None, "--iterations", str(len(result["losses"])))
        expect_same(result, expected)
    assert not list((tmp_path / "stalloc").iterdir()), "the socket goes with its process"


def test_orders_at_once_need_no_iteration(sleeping: Sleeping, tmp_path: Path) -> None:
    program = (
        "import torch, stalloc, sys\n"
        "weights = torch.full((1 << 20,), 2.0)\n"
        "print(stalloc.serve_sleep(at='once'), flush=True)\n"
        "sys.stdin.readline()\n"
        "print(weights.sum().item(), flush=True)"
    )
    with sleeping.serving(program, tmp_path) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        path = Path(process.stdout.readline().strip())
        assert (path.parent, path.name.split("-")[0]) == (tmp_path / "stalloc", str(process.pid))
        assert path.stat().st_mode & 0o777 == 0o600
        slept = order(sleeping, tmp_path, "sleep", str(process.pid)).good()
        assert "4.00 MiB copied" in slept.out
        assert order(sleeping, tmp_path, "wake", str(process.pid)).code == 0
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.stdout.readline().strip() == str(2.0 * (1 << 20))


def test_a_sleeper_that_is_killed_leaves_nothing_behind(sleeping: Sleeping, tmp_path: Path) -> None:
    with sleeping.running("Alloc", STALLOC_SLEEP_SOCKET="1", XDG_RUNTIME_DIR=str(tmp_path)) as (process, _, _):
        pid = str(process.pid)
        assert order(sleeping, tmp_path, "sleep", pid).code == 0
        process.send_signal(signal.SIGKILL)
        process.wait()
    late = order(sleeping, tmp_path, "wake", pid)
    assert late.code == 1
    assert f"stalloc wake: process {pid}: it takes no orders" in late.err


def test_a_process_that_takes_no_orders_is_an_error(sleeping: Sleeping, tmp_path: Path) -> None:
    done = order(sleeping, tmp_path, "sleep", str(os.getpid()), "--json")
    assert done.code == 1
    assert "STALLOC_SLEEP_SOCKET=1" in done.err
    assert not json.loads(done.out)["processes"][0]["ok"]


def test_a_loop_goes_on_when_all_that_was_ordered_to_sleep_is_awake(sleeping: Sleeping, tmp_path: Path) -> None:
    counter = tmp_path / "iterations"
    program = (
        "import torch, stalloc, sys, time\n"
        "with stalloc.region('weights'):\n    weights = torch.full((1 << 20,), 2.0)\n"
        "with stalloc.region('state'):\n    state = torch.full((1 << 20,), 3.0)\n"
        "with stalloc.region('own'):\n    own = torch.full((1 << 20,), 4.0)\n"
        "stalloc.sleep(tags='own')\n"
        "stalloc.serve_sleep()\n"
        "for i in range(100000):\n"
        "    stalloc.iteration(i)\n    open(sys.argv[1], 'ab').write(b'.')\n    time.sleep(0.01)\n"
    )

    def goes_on(seconds: float) -> bool:
        """Whether it comes to another iteration within that time."""
        before = counter.stat().st_size if counter.exists() else 0
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if counter.exists() and counter.stat().st_size > before:
                return True
            time.sleep(0.01)
        return False

    with sleeping.serving(program, tmp_path, str(counter)) as process:
        try:
            pid = str(process.pid)
            assert goes_on(60)
            assert order(sleeping, tmp_path, "sleep", pid, "--tags", "weights,state").code == 0
            assert not goes_on(1)
            assert order(sleeping, tmp_path, "wake", pid, "--tags", "weights").code == 0
            assert not goes_on(1), "the state sleeps"
            assert order(sleeping, tmp_path, "wake", pid, "--tags", "state").code == 0
            assert goes_on(60), "what the program put to sleep is its own affair"
        finally:
            process.kill()


def test_an_order_in_the_last_iteration_does_not_keep_the_process(sleeping: Sleeping, tmp_path: Path) -> None:
    program = (
        "import torch, stalloc, sys, threading, time\n"
        "weights = torch.full((1 << 20,), 2.0)\n"
        "print(stalloc.serve_sleep(), flush=True)\n"
        "before = threading.active_count()\n"
        "stalloc.iteration(0)\n"
        "while threading.active_count() == before:\n    time.sleep(0.01)\n"  # somebody orders
        "time.sleep(0.2)\n"
    )
    with sleeping.serving(program, tmp_path) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            done = order(sleeping, tmp_path, "sleep", str(process.pid))
            assert process.wait(timeout=60) == 0
        finally:
            process.kill()
    assert done.code == 1
    assert "the program is ending, and takes no more orders" in done.err


def test_a_loop_that_ends_no_iteration_is_told_of(sleeping: Sleeping, tmp_path: Path) -> None:
    program = "import stalloc, time\nprint(stalloc.serve_sleep(), flush=True)\ntime.sleep(60)"
    with sleeping.serving(program, tmp_path) as process:
        assert process.stdout is not None
        process.stdout.readline()
        done = order(sleeping, tmp_path, "sleep", str(process.pid), "--timeout", "0.2")
        process.kill()
    assert done.code == 1
    assert "came to no end of an iteration within 0.2 s" in done.err
