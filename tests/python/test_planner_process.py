"""The planner's process: what it inherits, how it outlives the run, and that it is not starved."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path
from typing import Any, Callable

import pytest

from stalloc.core.run_files import Paths, Start
from stalloc.train.auto import planner as _planner
from stalloc.train.auto.planner import Planner

MAKES_ITS_PLAN = 'mkdir -p "$2/output/plan"; touch "$2/output/plan/rank00000.running.plan"'


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    return Paths(Start.begin(tmp_path / "run"), 0, 0)


@pytest.fixture
def planned(paths: Paths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Planner]:
    """Starts a planner that is a shell script: "$2" is the folder."""

    def start(script: str, prepare: Callable[[Path], None] = lambda _: None) -> Planner:
        program = tmp_path / "stalloc-planner"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        monkeypatch.setenv("STALLOC_LIB_PATH", str(tmp_path))
        return Planner(paths, ["--running"], prepare)

    return start


def until(holds: Callable[[], Any]) -> None:
    end = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_it_has_made_its_plan_when_that_is_prepared(planned: Callable[..., Planner], paths: Paths) -> None:
    prepared: list[tuple[Path, int]] = []

    def prepare(plan: Path) -> None:
        time.sleep(0.1)
        prepared.append((plan, os.getpriority(os.PRIO_PROCESS, threading.get_native_id())))

    planner = planned(f"{MAKES_ITS_PLAN}; sleep 60", prepare)
    assert planner.await_plan() == 0
    assert prepared == [(paths.running_plan, 19)]
    assert planner.running(), "it plans for the next start"
    planner.kill()
    assert not planner.running()


@pytest.mark.parametrize(
    ("script", "code", "words"),
    [
        ("echo 'stalloc plan: error: no room' >&2; exit 3", 3, "stalloc plan: error: no room"),
        ("echo one; echo two; kill -9 $$", -9, "two"),
        ("exit 0", 1, "it said nothing"),
    ],
)
def test_one_that_ends_without_a_plan_has_a_code_and_words(
    planned: Callable[..., Planner], script: str, code: int, words: str
) -> None:
    planner = planned(script)
    assert planner.await_plan() == code
    assert planner.words() == words
    assert planner.let_go()


def test_how_it_ended_need_not_be_known(planned: Callable[..., Planner]) -> None:
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # so does a program that waits for all its children
    try:
        assert planned(f"sleep 0.2; {MAKES_ITS_PLAN}").await_plan() == 0
        planner = planned("sleep 0.2")
        assert planner.await_plan() == 1
        planner.kill()
    finally:
        signal.signal(signal.SIGCHLD, before)


def test_an_earlier_plan_is_not_taken_for_its_own(planned: Callable[..., Planner]) -> None:
    assert planned(MAKES_ITS_PLAN).await_plan() == 0
    assert planned("exit 4").await_plan() == 4


@pytest.mark.parametrize("close_from", [True, False])
def test_it_inherits_its_folders_lock_alone(
    planned: Callable[..., Planner], paths: Paths, close_from: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not close_from:
        monkeypatch.delattr(os, "POSIX_SPAWN_CLOSEFROM", raising=False)
    elif not hasattr(os, "POSIX_SPAWN_CLOSEFROM"):
        pytest.skip("this Python cannot close all descriptors from a number on")
    reader, writer = os.pipe()
    high = os.dup2(writer, 200, inheritable=True)
    os.set_inheritable(writer, True)
    planner = planned(f"ls -l /proc/$$/fd; {MAKES_ITS_PLAN}; exec sleep 60")
    os.close(writer)
    os.close(high)
    assert planner.await_plan() == 0
    os.set_blocking(reader, False)
    assert os.read(reader, 1) == b"", "the end of the pipe is seen while the planner runs"
    targets = {os.readlink(entry.path) for entry in os.scandir(f"/proc/{planner.process}/fd")}
    assert targets == {"/dev/null", str(paths.planner_log), str(paths.start.folder / "lock")}
    planner.kill()
    os.close(reader)


def test_it_is_of_a_session_of_its_own_with_signals_as_usual(planned: Callable[..., Planner]) -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    try:
        planner = planned("exec sleep 60")
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    assert os.getsid(planner.process) == os.getpgid(planner.process) == planner.process
    os.kill(planner.process, signal.SIGTERM)
    until(lambda: not planner.running())
    assert planner.code == -signal.SIGTERM


def test_what_the_program_does_at_a_fork_is_not_done_for_it(planned: Callable[..., Planner]) -> None:
    forks: list[int] = []
    os.register_at_fork(before=lambda: forks.append(1))
    assert planned(MAKES_ITS_PLAN).await_plan() == 0
    assert not forks


def test_one_that_is_starved_begins_again_without_niceness(
    planned: Callable[..., Planner], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_planner, "_NICE_SECONDS", 0.2)
    planner = planned(f'case "$*" in *--nice=0*) {MAKES_ITS_PLAN};; *--nice=10*) sleep 60;; esac')
    assert planner.await_plan() == 0


def test_one_that_is_not_starved_goes_on(planned: Callable[..., Planner], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_planner, "_NICE_SECONDS", 0.2)
    monkeypatch.setattr(_planner, "_processor_seconds", lambda _: 0.19)
    planner = planned(f"sleep 1; {MAKES_ITS_PLAN}")
    process = planner.process
    assert planner.await_plan() == 0
    assert planner.process == process


def test_the_end_of_a_run_does_not_wait(planned: Callable[..., Planner]) -> None:
    planner = planned("exec sleep 60")
    began = time.monotonic()
    assert not planner.let_go()
    assert time.monotonic() - began < 1
    assert planner.running()
    planner.kill()
