"""Who uses a run's directory: starts have folders of their own, and what is in use is not removed."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from processes import clean_environment
from stalloc.core import run_cache, run_files
from stalloc.core.run_files import Start
from stalloc.train.auto import run_choice


def use(run: Path, *, held: int, age: int = 0) -> None:
    """A start that has ended."""
    Start.begin(run).leave()
    (run / "plan").write_bytes(bytes(held))
    os.utime(run, (1_000_000 - age, 1_000_000 - age))


@pytest.fixture(params=[True, False], ids=["locks", "no_locks"])
def locks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """A file system with locks, and one without."""
    if not request.param:

        def no_locks(descriptor: int, operation: int) -> None:
            raise OSError(errno.ENOLCK, "No locks available")

        monkeypatch.setattr(run_files.fcntl, "flock", no_locks)
    return bool(request.param)


# Starts -------------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def in_child(code: str, run: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A process that begins a start there, and what it says first. It is ended."""
    begin = f"import os, sys, time; from pathlib import Path; from stalloc.core.run_files import Start; {code}"
    command = [sys.executable, "-c", begin, str(run)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=clean_environment({})) as process:
        try:
            assert process.stdout is not None
            yield process, process.stdout.readline().strip()
        finally:
            process.kill()


def await_idle(run: Path) -> None:
    until = time.monotonic() + 10
    while run_files.in_use(run):
        assert time.monotonic() < until
        time.sleep(0.01)


LIVES = "start = Start.begin(Path(sys.argv[1])); print(start.folder, flush=True); time.sleep(60)"


def test_folders_are_apart_and_go_when_nobody_has_them(locks: bool, tmp_path: Path) -> None:
    with in_child(LIVES, tmp_path) as (_, said):
        folder = Path(said)
        (folder / "trace").write_bytes(b"another's")
        own = Start.begin(tmp_path)
        assert own.folder != folder
        assert (folder / "trace").read_bytes() == b"another's"
        assert run_files.in_use(tmp_path)
        own.leave()
        assert run_files.starts_in(tmp_path) == [folder]
    assert not run_files.in_use(tmp_path)
    last = Start.begin(tmp_path)
    run_files.remove_ended(tmp_path)
    assert run_files.starts_in(tmp_path) == [last.folder]
    last.leave()
    assert not (tmp_path / "starts").exists()


def test_a_process_that_has_the_number_of_one_that_has_ended_does_not_count(tmp_path: Path) -> None:
    line = run_files._name_of(os.getpid())
    assert run_files._lives(line, age=0)
    assert not run_files._lives(line.rpartition(" ")[0] + " 1", age=0)
    elsewhere = line.replace(line.split()[0], "another-host", 1)
    assert run_files._lives(elsewhere, age=3600)
    assert not run_files._lives(elsewhere, age=30 * 24 * 3600)
    assert run_files._lives("nonsense", age=0)


def test_the_planner_holds_the_folder_when_its_process_has_ended(locks: bool, tmp_path: Path) -> None:
    code = (
        "start = Start.begin(Path(sys.argv[1]));"
        "closed = [] if start.lock is None else [(os.POSIX_SPAWN_DUP2, start.lock, 3)];"
        "pid = os.posix_spawn('/bin/sleep', ['sleep', '60'], os.environ, file_actions=closed);"
        "start.planned_by(pid); print(pid, flush=True); os._exit(0)"
    )
    with in_child(code, tmp_path) as (process, said):
        planner = int(said)
        process.wait()
        assert run_files.in_use(tmp_path)
        assert not run_files.remove_run(tmp_path)
        os.kill(planner, signal.SIGKILL)
        await_idle(tmp_path)
        assert run_files.remove_run(tmp_path)
        assert not tmp_path.exists()


def test_a_forked_child_does_not_hold_its_parents_folder(tmp_path: Path) -> None:
    code = (
        "start = Start.begin(Path(sys.argv[1])); child = os.fork();"
        "(print(child, flush=True), os._exit(0)) if child else time.sleep(60)"
    )
    with in_child(code, tmp_path) as (process, said):
        process.wait()
        try:
            await_idle(tmp_path)
        finally:
            os.kill(int(said), signal.SIGKILL)


def test_a_fork_at_the_gate_does_not_keep_it_closed(tmp_path: Path) -> None:
    with run_files.gate(tmp_path):
        child = os.fork()
        if child == 0:
            time.sleep(60)
            os._exit(0)
    try:
        with run_files.gate(tmp_path, seconds=0):
            pass
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_a_gate_that_stays_closed_is_an_error_that_names_it(tmp_path: Path) -> None:
    with (tmp_path / ".lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(TimeoutError, match=str(tmp_path / ".lock")), run_files.gate(tmp_path, seconds=0.05):
            pass


def test_many_begin_and_leave_at_the_same_time(tmp_path: Path) -> None:
    faults: list[BaseException] = []

    def work() -> None:
        try:
            for _ in range(20):
                start = Start.begin(tmp_path / "run")
                assert (start.folder / "lock").is_file()
                run_files.remove_ended(tmp_path / "run")
                run_files.remove_run(tmp_path / "run")
                assert (start.folder / "lock").is_file()
                start.leave()
                run_files.remove_run(tmp_path / "run")
        except BaseException as fault:
            faults.append(fault)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not faults


def test_a_file_that_another_process_writes_is_not_replaced(tmp_path: Path) -> None:
    start = Start.begin(tmp_path)
    (start.folder / "trace").write_bytes(b"ours")
    with (tmp_path / "trace").open("wb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        start.keep(start.folder / "trace")
        assert (tmp_path / "trace").read_bytes() == b""
    start.keep(start.folder / "trace")
    assert (tmp_path / "trace").read_bytes() == b"ours"
    start.keep(start.folder / "nothing")
    start.leave()


# The cache ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(run_cache, "_MOST_BYTES", 10_000)
    return tmp_path / "stalloc" / "runs"


def begin(cache: Path, program: str = "x.py") -> Start:
    return run_choice.begin({"XDG_CACHE_HOME": str(cache.parent.parent)}, [program], "2.11.0", 0).start


def names(cache: Path) -> set[str]:
    return {entry.name for entry in cache.iterdir()}


def test_the_oldest_runs_leave_a_full_cache_and_no_more_than_needed(cache: Path) -> None:
    for age, name in enumerate(("new", "middle", "old", "oldest")):
        use(cache / name, held=3500, age=age)
    own = begin(cache)
    assert names(cache) == {"new", "middle", own.run.name}


def test_what_another_run_uses_stays_in_the_cache(cache: Path, locks: bool) -> None:
    with in_child(LIVES, cache / "old"):
        (cache / "old" / "plan").write_bytes(bytes(9000))
        os.utime(cache / "old", (1, 1))
        use(cache / "new", held=3500)
        own = begin(cache)
        assert names(cache) == {"old", own.run.name}


def test_a_large_run_of_ones_own_costs_others_only_what_is_needed(cache: Path) -> None:
    own = begin(cache)
    (own.run / "trace").write_bytes(bytes(9500))
    own.leave()
    use(cache / "new", held=100, age=1)
    use(cache / "old", held=1000, age=2)
    assert begin(cache).run == own.run
    assert names(cache) == {"new", own.run.name}
    (own.run / "trace").write_bytes(bytes(50_000))
    begin(cache)
    assert names(cache) == {own.run.name}


def test_a_run_that_begins_while_it_would_be_removed_is_whole(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(cache / "old", held=20_000)
    taken = run_files.in_use

    def begins_meanwhile(run: Path) -> bool:
        found = taken(run)
        thread.start()  # it has to wait at the gate
        time.sleep(0.05)
        return found

    begun: list[Start] = []
    thread = threading.Thread(target=lambda: begun.append(Start.begin(cache / "old")))
    monkeypatch.setattr(run_files, "in_use", begins_meanwhile)
    begin(cache)
    thread.join()
    assert (begun[0].folder / "lock").is_file()
    assert not (cache / "old" / "plan").exists()


def test_files_that_go_while_they_are_counted_are_no_error(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(cache / "old", held=100)
    lstat = os.lstat

    def gone(path: Any, *arguments: Any, **keywords: Any) -> os.stat_result:
        if Path(path).name == "plan":
            raise FileNotFoundError(path)
        return lstat(path, *arguments, **keywords)

    monkeypatch.setattr(os, "lstat", gone)
    begin(cache)
    assert "old" in names(cache)


def test_a_user_without_a_home_is_told_what_to_set(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def nowhere() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", nowhere)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    start = run_choice.begin({}, ["x.py"], "2.11.0", 0).start
    assert "cannot be kept for the next start: the user has no home directory: set" in capsys.readouterr().err
    start.leave()
    assert list(tmp_path.iterdir()) == []
