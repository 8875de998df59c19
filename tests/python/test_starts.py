"""Several starts of one command at the same time, and what becomes of a start's plan when its process ends."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, Callable, Optional

import pytest

from processes import Finished, Training, clean_environment
from stalloc.core.run_files import in_use, starts_in

# ROWS is of the environment, as a seed or a GPU may be: the command is the same.
LOOP = """
import json, os, sys, time
import stalloc
import torch
rows = int(os.environ["ROWS"])
torch.manual_seed(1)
model = torch.nn.Sequential(*(torch.nn.Linear(96 + 8 * i, 104 + 8 * i) for i in range(12)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for i in range(int(os.environ.get("ITERATIONS", "14"))):
    loss = model(torch.ones(rows, 96)).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
steady = stalloc.stats().get("steady", {})
print(json.dumps({"loss": loss.item(), "hits": steady.get("hits"), "requests": steady.get("requests")}), flush=True)
"""


def before_the_loop(line: str) -> str:
    return LOOP.replace("\nfor i in range", f"\n{line}\nfor i in range")


@pytest.fixture
def loop(training: Training) -> Path:
    program = training.directory / "loop.py"
    program.write_text(LOOP)
    return program


def at_once(count: int, work: Callable[[int], Finished]) -> list[Finished]:
    done: list[Optional[Finished]] = [None] * count

    def one(number: int) -> None:
        done[number] = work(number)

    threads = [threading.Thread(target=one, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [one for one in done if one is not None]


def told(finished: Finished) -> dict[str, Any]:
    return dict(json.loads(finished.out.splitlines()[-1]))


def await_plan(training: Training) -> Path:
    """The planner of a run that has ended, until it has, too."""
    plan = training.info / "output" / "plan" / "rank00000.plan"
    until = time.monotonic() + 120
    while not plan.is_file() or starts_in(training.info):
        assert time.monotonic() < until
        time.sleep(0.05)
    return plan


def test_eight_starts_at_once_are_each_planned_from_their_own_trace(training: Training, loop: Path) -> None:
    def start(number: int) -> Finished:
        run = ("-m", "stalloc", "run", str(loop))
        return training.start_plain("Auto", *run, ROWS=str(40 + 56 * number), STALLOC_AUTO_WAIT="1")

    done = at_once(8, start)
    assert len(done) == 8
    for finished in done:
        assert finished.code == 0, finished.err
        assert "is served from its plan from iteration" in finished.err
        assert "warning" not in finished.err
        assert "error" not in finished.err
        result = told(finished)
        assert result["hits"] >= 0.99 * result["requests"] > 100, "of the plan of another start it would be less"
    plan = await_plan(training)
    assert not in_use(training.info)
    assert plan.read_bytes()
    for name in (
        "trace/rank00000.trace",
        "output/trace_analysis/rank00000.json",
        "output/trace_analysis/rank00000.txt",
    ):
        assert (training.info / name).is_file()
    start(0)  # the directory has one plan, which may be of other rows
    assert "is served from the plan of an earlier start of this run" in start(0).err


def held_planner(training: Training) -> tuple[dict[str, str], Path]:
    """The real planner, which begins when a file is there; and that file."""
    libraries, goes_on = training.directory / "held", training.directory / "held" / "goes_on"
    libraries.mkdir()
    for name in ("libstalloc_torch.so", "libstalloc.so"):
        (libraries / name).symlink_to(training.build / name)
    planner = libraries / "stalloc-planner"
    real = training.build / "stalloc-planner"
    planner.write_text(f'#!/bin/sh\nwhile [ ! -e {goes_on} ]; do sleep 0.1; done\nexec {real} "$@"\n')
    planner.chmod(0o755)
    return {"STALLOC_LIB_PATH": str(libraries)}, goes_on


def begin(training: Training, loop: Path, *, inherited: tuple[int, ...] = (), **extra: str) -> subprocess.Popen[str]:
    """In a session of its own, as a launcher starts its workers."""
    return subprocess.Popen(
        [sys.executable, "-m", "stalloc", "run", str(loop)],
        env=clean_environment(training.environment("Auto", **{"ROWS": "40", "ITERATIONS": "6", **extra})),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        pass_fds=inherited,
    )


def test_a_process_does_not_wait_for_its_planner_at_its_end(training: Training, loop: Path) -> None:
    held, goes_on = held_planner(training)
    process = begin(training, loop, **held)
    out, err = process.communicate(timeout=120)  # to the end of both: the planner holds neither
    assert process.returncode == 0
    assert json.loads(out)
    assert "ended before its plan was there; it is made for the next start" in err
    assert in_use(training.info)
    goes_on.touch()
    await_plan(training)
    assert (training.info / "log_output" / "rank00000.planner.log").is_file()
    served = training.start_plain("Auto", "-m", "stalloc", "run", str(loop), ROWS="40")
    assert "is served from the plan of an earlier start" in served.err


def test_a_planner_outlives_the_end_of_its_process_group(training: Training, loop: Path) -> None:
    loop.write_text(LOOP + "time.sleep(60)\n")
    held, goes_on = held_planner(training)
    process = begin(training, loop, **held)
    assert process.stdout is not None
    assert json.loads(process.stdout.readline())
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    goes_on.touch()
    await_plan(training)


def test_who_waits_for_the_runs_descriptors_does_not_wait_for_the_planner(training: Training, loop: Path) -> None:
    reader, writer = os.pipe()
    listener = socket.create_server(("127.0.0.1", 0))
    address = listener.getsockname()
    held, goes_on = held_planner(training)
    process = begin(training, loop, inherited=(writer, listener.fileno()), **held)
    os.close(writer)
    listener.close()
    process.communicate(timeout=120)
    assert in_use(training.info), "the planner runs"
    os.set_blocking(reader, False)
    assert os.read(reader, 1) == b""
    os.close(reader)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address)
    goes_on.touch()
    await_plan(training)


def test_what_a_killed_start_has_left_goes_with_the_next(training: Training, loop: Path) -> None:
    loop.write_text(before_the_loop("print('{}', flush=True)") + "time.sleep(60)\n")
    process = begin(training, loop, ITERATIONS="2")
    assert process.stdout is not None
    process.stdout.readline()
    (left,) = starts_in(training.info)
    assert (left / "trace" / "rank00000.trace").is_file()
    process.kill()
    process.communicate()
    assert starts_in(training.info) == [left]
    loop.write_text(LOOP)
    done = training.start_plain("Auto", "-m", "stalloc", "run", str(loop), ROWS="40", ITERATIONS="2")
    assert done.code == 0
    assert starts_in(training.info) == []
    assert (training.info / "trace" / "rank00000.trace").is_file(), "of a run too short for a plan, for reports"


# Once the trace has its first allocations: before, it is begun anew where its directory has gone.
DIRECTORY_GOES = """
import shutil
from stalloc.train import session
session.current.flush()
shutil.rmtree(os.environ["STALLOC_MODEL_INFO_PATH"])"""


def test_a_directory_that_goes_during_the_run_costs_the_plan_alone(training: Training, loop: Path) -> None:
    loop.write_text(before_the_loop(DIRECTORY_GOES))
    done = training.start_plain("Auto", "-m", "stalloc", "run", str(loop), ROWS="40", STALLOC_AUTO_WAIT="1").good()
    assert told(done)["loss"]
    assert "this run has no plan, and stays on PyTorch's allocator" in done.err
    assert "Traceback" not in done.err


def test_a_program_may_change_its_directory(training: Training, loop: Path) -> None:
    loop.write_text(before_the_loop("os.chdir('/')"))
    relative = os.path.relpath(training.info, training.directory)
    done = training.start_plain(
        "Auto", str(loop), ROWS="40", STALLOC_MODEL_INFO_PATH=relative, STALLOC_AUTO_WAIT="1"
    ).good()
    assert "is served from its plan" in done.err
    assert (training.info / "output" / "plan" / "rank00000.plan").is_file()
    assert (training.info / "log_output" / "rank00000.summary.json").is_file()


def test_a_directory_that_cannot_be_written_is_said_once_and_nothing_stays(training: Training, loop: Path) -> None:
    (training.directory / "file").write_text("")
    temporary = training.directory / "temporary"
    temporary.mkdir()
    done = training.start_plain(
        "Auto",
        *("-m", "stalloc", "run", str(loop)),
        ROWS="40",
        STALLOC_MODEL_INFO_PATH=str(training.directory / "file" / "run"),
        STALLOC_AUTO_WAIT="1",
        TMPDIR=str(temporary),
    ).good()
    assert done.err.count("plans cannot be kept for the next start") == 1
    assert "is served from its plan" in done.err
    assert "the next start" not in done.err.replace("plans cannot be kept for the next start", "")
    assert [path.name for path in temporary.iterdir() if path.name.startswith("stalloc")] == []
