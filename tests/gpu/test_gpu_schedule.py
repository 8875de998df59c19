"""gpu_schedule.py with shell commands in place of programs that need GPUs."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from gpu_schedule import CANNOT_START, Devices, Ended, Program, run_all  # noqa: E402


def program(name: str, script: str, directory: Path = Path("/nowhere"), limit_s: float = 60, **needs: Any) -> Program:
    return Program(name, ["/bin/sh", "-c", script], directory / f"{name}.log", limit_s, **needs)


def run(programs: list[Program], devices: list[str], budget_s: float = 60) -> dict[str, Ended]:
    return {ended.program.name: ended for ended in run_all(programs, devices, os.environ, budget_s)}


def test_one_that_runs_alone_has_no_neighbour_and_others_share() -> None:
    users = Devices(["0", "1"])
    alone = users.take(program("a", "", alone=True))
    assert alone is not None
    first, second = users.take(program("b", "")), users.take(program("c", ""))
    assert first == second != alone
    assert users.take(program("d", "", alone=True)) is None
    assert users.take(program("e", "", devices=2)) is None
    users.give_back(alone)
    assert users.take(program("e", "", devices=2)) == ("0", "1")


def test_one_device_is_enough_for_what_can_do_with_one() -> None:
    users = Devices(["3"])
    assert users.take(program("a", "", devices=2)) == ("3",)
    assert users.take(program("b", "", devices=2, least=2)) is None


def test_programs_see_their_devices_and_their_codes_are_told(tmp_path: Path) -> None:
    script = 'echo "$CUDA_VISIBLE_DEVICES"; exit 3'
    two = program("two", script, tmp_path, devices=2, least=2)
    ended = run([two, program("one", script, tmp_path), program("three", "", tmp_path, least=3)], ["4", "5"])
    assert (tmp_path / "two.log").read_text() == "4,5\n"
    assert (tmp_path / "one.log").read_text() in ("4\n", "5\n")
    assert [ended[name].code for name in ("one", "two", "three")] == [3, 3, None]
    assert not ended["three"].started


@pytest.fixture(params=[signal.default_int_handler, signal.SIG_IGN], ids=["foreground", "background"])
def interrupts_are(request: pytest.FixtureRequest) -> Iterator[None]:
    """Ignored, as in what a shell starts in its background, or not."""
    before = signal.signal(signal.SIGINT, request.param)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interrupts_are")
def test_one_whose_time_is_up_is_interrupted_and_leaves_nothing_behind(tmp_path: Path) -> None:
    script = f"sleep 1000 & echo $! > {tmp_path}/child; trap 'echo report; exit 0' INT; wait"
    begin = time.monotonic()
    ended = run([program("slow", script, tmp_path, limit_s=1.0)], ["0"])["slow"]
    assert (ended.code, ended.started) == (None, True)
    assert time.monotonic() - begin < 15
    assert (tmp_path / "slow.log").read_text() == "report\n"
    child = Path("/proc") / (tmp_path / "child").read_text().strip() / "stat"
    assert not child.exists() or child.read_text().split(") ")[1][0] == "Z"


def test_what_the_budget_has_no_time_for_is_not_started(tmp_path: Path) -> None:
    programs = [program(name, "sleep 1", tmp_path, alone=True) for name in ("first", "second", "third")]
    ended = run(programs, ["0"], budget_s=1.5)
    assert ended["first"].code == 0
    assert not ended["third"].started


def test_a_program_that_is_not_there_does_not_stop_the_others(tmp_path: Path) -> None:
    missing = Program("missing", [str(tmp_path / "nothing")], tmp_path / "missing.log", 60, alone=True)
    ended = run([missing, program("other", "exit 0", tmp_path)], ["0"])
    assert ended["missing"].code == CANNOT_START
    assert "nothing" in (tmp_path / "missing.log").read_text()
    assert ended["other"].code == 0
