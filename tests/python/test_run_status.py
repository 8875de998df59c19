"""What `stalloc status` says of a rank's process: running, ended, gone, or unknown, as it is on another machine."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from processes import Training, run_python
from sleepers import eventually
from stalloc import cli
from stalloc.core import identity, run_status
from stalloc.core.run_status import RunStatus


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "log_output" / "rank00000.auto.json"


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each iteration is written."""
    monkeypatch.setattr(run_status, "REFRESH_SECONDS", 0)
    monkeypatch.setattr(run_status, "_MOST_OF_TIME", float("inf"))


def state(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = run_status.read(path)["state"]
    return found


def rewritten(path: Path, **changes: Any) -> None:
    """The process in the file is another."""
    record = json.loads(path.read_text())
    record["process"].update(changes)
    path.write_text(json.dumps(record))


# The file ------------------------------------------------------------------------------------------------------------


def test_a_process_runs_until_it_ends(path: Path) -> None:
    status = RunStatus(path, 0)
    status.enter("tracing", 0, to_trace=6)
    assert (state(path)["stage"], state(path)["pid"], state(path)["iterations"]) == ("running", os.getpid(), 0)
    status.end(12)
    assert (state(path)["stage"], state(path)["iterations"]) == ("ended", 12)
    assert run_status.read(path)["stages"][0]["to_trace"] == 6


def test_iterations_are_written_seldom(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    status = RunStatus(path, 0)
    status.enter("tracing", 0)
    writes = 0
    for iteration in range(1, 1001):
        now += 0.01
        before = path.stat().st_mtime_ns
        status.finished(iteration)
        writes += path.stat().st_mtime_ns != before
    assert writes == 2, "ten seconds"
    assert state(path)["iterations"] == 1000


def test_a_slow_disk_is_written_to_more_seldom_still(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    written = []

    def slow(path: Path, content: bytes) -> None:
        nonlocal now
        now += 0.5
        written.append(now)

    monkeypatch.setattr(time, "monotonic", lambda: now)
    monkeypatch.setattr(run_status, "write_whole", slow)
    status = RunStatus(path, 0)
    status.enter("tracing", 0)
    for iteration in range(1000):
        now += 1
        status.finished(iteration)
    assert len(written) <= 5, "they take a thousandth of the time or two"


@pytest.mark.usefixtures("always")
def test_a_disk_that_is_full_is_one_warning_and_harms_nothing(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(path: Path, content: bytes) -> None:
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr(run_status, "write_whole", full)
    status = RunStatus(path, 0)
    status.enter("tracing", 0)
    for iteration in range(9):
        status.finished(iteration)
    status.end(9)
    said = capsys.readouterr().err
    assert said.count("how far this run's plan is cannot be written") == 1
    assert "No space left on device" in said


@pytest.mark.usefixtures("always")
def test_the_start_that_began_last_has_the_file(path: Path) -> None:
    first, second = RunStatus(path, 0), RunStatus(path, 0)
    first.enter("tracing", 0)
    second.enter("planned", 0)
    first.finished(7)
    first.enter("planning", 8)
    first.end(9)
    assert state(path)["stage"] == "running"
    assert [stage["stage"] for stage in run_status.read(path)["stages"]] == ["planned"]
    second.finished(3)
    assert state(path)["iterations"] == 3


@pytest.mark.usefixtures("always")
def test_a_directory_that_was_removed_is_not_made_anew_by_a_refresh(path: Path) -> None:
    status = RunStatus(path, 0)
    status.enter("tracing", 0)
    path.unlink()
    path.parent.rmdir()
    status.finished(1)
    status.end(2)
    assert not path.parent.exists()


# The process ---------------------------------------------------------------------------------------------------------


def test_a_number_that_another_process_has_by_now_is_gone(path: Path) -> None:
    RunStatus(path, 0).enter("tracing", 0)
    rewritten(path, started=identity.own()["started"] - 1)
    assert state(path)["stage"] == "gone"


def test_one_that_is_over_and_only_waited_for_is_gone(path: Path) -> None:
    RunStatus(path, 0).enter("tracing", 0)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        rewritten(path, pid=process.pid, started=identity.started(process.pid))
        assert state(path)["stage"] == "running"
        process.send_signal(signal.SIGKILL)
        assert eventually(lambda: state(path)["stage"] == "gone"), "nobody has waited for it yet"
    assert state(path)["stage"] == "gone"


def test_a_name_with_brackets_and_blanks_hides_no_time(tmp_path: Path) -> None:
    odd = tmp_path / "a) S 1 (b"
    odd.symlink_to(sys.executable)
    with subprocess.Popen([str(odd), "-c", "input()"], stdin=subprocess.PIPE) as process:
        started, own = identity.started(process.pid), identity.started(os.getpid())
        process.communicate(b"\n")
    assert started is not None
    assert own is not None
    assert started > own


@pytest.mark.parametrize("key", ["boot", "namespace"])
def test_of_another_machine_or_container_it_is_only_known_when_it_was_seen(
    path: Path, key: str, capsys: pytest.CaptureFixture[str]
) -> None:
    RunStatus(path, 0).enter("tracing", 0)
    rewritten(path, **{key: "another"}, host="node7")
    assert cli.main(["status", str(path.parents[1])]) == 0
    line = capsys.readouterr().out.splitlines()[-1]
    assert line.split()[6:] == ["unknown", "pid", f"{os.getpid()},", "on", "node7,", "seen", "0", "s", "ago"]


@pytest.mark.parametrize("process", [7, {}, {"pid": "7", "started": 1}, {"pid": 7, "started": "x"}])
def test_a_file_that_names_no_process_is_an_error_with_its_name(path: Path, process: Any) -> None:
    RunStatus(path, 0).enter("tracing", 0)
    path.write_text(json.dumps({**json.loads(path.read_text()), "process": process}))
    with pytest.raises(ValueError, match=str(path)):
        run_status.read(path)


def test_many_ranks_are_counted_by_what_their_processes_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for rank in range(12):
        path = tmp_path / "log_output" / f"rank{rank:05d}.auto.json"
        status = RunStatus(path, rank)
        status.enter("planned", 5)
        if rank == 4:
            status.end(100)
        if rank == 7:
            rewritten(path, started=0)
    assert cli.main(["status", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()[1:]
    assert [line.split()[0] for line in lines[::2]] == ["12", "10", "1", "1"]
    assert [name for line in lines[2::2] for name in ("running", "ended", "gone") if name in line] == [
        "running",
        "ended",
        "gone",
    ]
    assert lines[3].strip() == "rank 0-3, 5-6, 8-11"


# Runs ----------------------------------------------------------------------------------------------------------------

LOOP = """
import sys, time
from pathlib import Path
import stalloc, torch
stalloc.auto(sys.argv[1])
kept = torch.ones(1 << 18)
step = 0
while not Path(sys.argv[2]).exists():
    stalloc.iteration(step)
    step += 1
    time.sleep(0.05)
"""


def test_a_run_is_running_then_gone_and_another_ended(training: Training, tmp_path: Path) -> None:
    def said() -> str:
        done = run_python("-m", "stalloc", "status", str(tmp_path / "info"))
        return done.out.splitlines()[-1] if done.code == 0 else ""

    stop = tmp_path / "stop"
    command = [
        sys.executable,
        "-c",
        LOOP.replace(
            "stalloc, torch\n",
            "stalloc\nfrom stalloc.core import run_status\nrun_status.REFRESH_SECONDS = 0.1\nimport torch\n",
        ),
        str(tmp_path / "info"),
        str(stop),
    ]
    path = os.pathsep.join(sys.path)
    environment = {**os.environ, **training.environment(None), "PYTHONPATH": path}
    del environment["STALLOC_MODEL_INFO_PATH"]
    with subprocess.Popen(command, env=environment) as process:
        assert eventually(lambda: f"running    pid {process.pid}, seen" in said())
        assert eventually(lambda: int(said().split()[4]) > 10)
        process.kill()
        process.wait()
    assert f"gone       pid {process.pid}, seen" in said()
    stop.write_text("")
    assert subprocess.run(command, env=environment, check=False).returncode == 0
    assert said().split()[6] == "ended"
