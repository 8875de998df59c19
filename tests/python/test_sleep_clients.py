"""Clients that time out, are interrupted, die or come in numbers; programs that end or are interrupted meanwhile."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Callable

import pytest

from processes import FakeProcess
from schemas import expect_document
from sleepers import IDLE, LAST, LOOP, Sleeper, children, eventually
from stalloc import cli
from stalloc.tools import sleep_client

Start = Callable[..., Sleeper]


@pytest.fixture
def start(fake: FakeProcess, tmp_path: Path) -> Iterator[Start]:
    with ExitStack() as stack:
        number = iter(range(10))

        def start(program: str, **environment: str) -> Sleeper:
            return stack.enter_context(Sleeper(fake, tmp_path / f"program{next(number)}", program, **environment))

        yield start


# The end of the program ----------------------------------------------------------------------------------------------


def test_an_order_in_the_last_iteration_is_refused_and_the_program_ends(start: Start) -> None:
    program = start(LAST)
    with program.start_order("sleep", program.pid) as sender:
        program.has_orders(1)
        ended = program.end()
        told = sender.wait()
    assert (ended.code, program.calls()) == (0, []), ended.err
    assert told.code == 1
    assert f"process {program.pid}: the program is ending" in told.err


def test_the_same_where_the_program_serves_before_it_is_active(start: Start) -> None:
    """`stalloc.auto()` comes later than the socket, and so does what it does at the end."""
    late = LAST.replace("print(", "import os\nprint(", 1).replace(
        "stalloc.iteration(0)",
        "os.environ['STALLOC_MODE'] = 'Alloc'\n"
        "from stalloc.train import install\ninstall.activate()\nstalloc.iteration(0)",
    )
    program = start(late, STALLOC_MODE="")
    with program.start_order("sleep", program.pid) as sender:
        program.has_orders(1)
        assert program.end().code == 0
        assert sender.wait().code == 1
    assert program.calls() == []


def test_an_order_after_the_last_iteration_is_refused_as_well(start: Start) -> None:
    saving = LAST.replace("stalloc.iteration(0)", "with stalloc.iteration(0):\n    pass")
    program = start(saving)
    with program.start_order("sleep", program.pid) as sender:
        program.has_orders(1)
        assert program.end().code == 0
        told = sender.wait()
    assert (told.code, program.calls()) == (1, [])
    assert "the program is ending" in told.err


def test_a_sleep_at_once_that_runs_when_the_program_ends_is_answered(start: Start) -> None:
    program = start(IDLE)
    program.slow.touch()
    with program.start_order("sleep", program.pid) as sender:
        assert eventually(program.calls)
        threading.Timer(1, program.slow.unlink).start()
        assert program.end().code == 0
        assert sender.wait().code == 0


def test_a_program_that_sleeps_is_woken_although_it_is_its_last_iteration(start: Start) -> None:
    program = start(LOOP)
    assert program.order("sleep", program.pid).code == 0
    (program.directory / "stop").touch()
    assert not program.goes_on(0.5)
    assert program.order("wake", program.pid).code == 0
    assert program.end().code == 0


def test_a_program_that_is_interrupted_in_its_sleep_is_awake_where_it_catches_that(start: Start) -> None:
    caught = LOOP.replace("while not", "try:\n  while not", 1).replace("\n    ", "\n      ")
    caught += "except KeyboardInterrupt:\n  print(open(directory / 'calls.log').read().split()[-3], flush=True)\n"
    program = start(caught)
    assert program.order("sleep", program.pid).code == 0
    assert not program.goes_on(0.5)
    program.process.send_signal(signal.SIGINT)
    ended = program.end()
    assert ended.code == 0, ended.err
    assert program.calls() == ["sleep", "wake"]
    assert ended.out.strip() == "wake"


# Clients that do not wait for their answer ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("verb", "number"), [("sleep", signal.SIGINT), ("sleep", signal.SIGKILL), ("wake", signal.SIGTERM)]
)
def test_what_was_broken_off_is_never_carried_out(start: Start, verb: str, number: int) -> None:
    program = start(LOOP)
    program.hold()
    with program.start_order(verb, program.pid) as sender:
        program.has_orders(1)
        told = sender.interrupt(number)
    if number == signal.SIGINT:
        assert told.code == 130
        assert f"stalloc {verb}: interrupted: the orders are withdrawn" in told.err
    program.has_orders(0)
    program.release()
    assert program.goes_on(60)
    assert program.goes_on(60)
    assert program.calls() == []


@pytest.mark.parametrize("verb", ["sleep", "wake"])
def test_a_timeout_that_nobody_can_wait_is_refused(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    for seconds in ("-1", "0", "nan", "inf", "-inf", "1e9", "soon"):
        with pytest.raises(SystemExit, match="2"):
            cli.main([verb, "1", f"--timeout={seconds}"])
        assert "argument --timeout: " in capsys.readouterr().err
    for words in (["0"], ["-5"], ["1e3"], ["4294967296"], ["1", "--tags="], ["1", "--tags", ","]):
        with pytest.raises(SystemExit, match="2"):
            cli.main([verb, *words])
    assert "names no region" in capsys.readouterr().err


def test_what_timed_out_is_never_carried_out(start: Start) -> None:
    program = start(LOOP)
    program.hold()
    told = program.order("sleep", program.pid, "--timeout", "0.3")
    assert told.code == 1
    assert "came to no end of an iteration within 0.3 s" in told.err
    program.release()
    assert program.goes_on(60)
    assert program.goes_on(60)
    assert program.calls() == []


@pytest.mark.parametrize("program_text", [LOOP, IDLE], ids=["loop", "once"])
def test_a_sleep_whose_client_dies_on_its_way_is_undone(start: Start, program_text: str) -> None:
    program = start(program_text)
    program.slow.touch()
    with program.start_order("sleep", program.pid) as sender:
        assert eventually(program.calls)
        sender.interrupt(signal.SIGKILL)
    program.slow.unlink()
    assert eventually(lambda: program.calls() == ["sleep", "wake"]), program.calls()
    assert program_text == IDLE or program.goes_on(60)
    assert program.end().code == 0


def test_a_program_that_does_not_answer_at_all_has_its_order_withdrawn(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = start(LOOP)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(program.runtime))
    monkeypatch.setattr(sleep_client, "_SLACK_SECONDS", 0.5)
    program.process.send_signal(signal.SIGSTOP)
    one = sleep_client.Ordered(int(program.pid))
    sleep_client.order([one], {"do": "sleep", "timeout": 0.5})
    assert one.result() == {"ok": False, "error": "no answer within 1 s: the order is withdrawn"}
    program.process.send_signal(signal.SIGCONT)
    assert program.goes_on(60)
    assert program.goes_on(60)
    assert program.calls() == []


def test_it_is_not_undone_where_another_has_ordered_the_same_meanwhile(start: Start) -> None:
    program = start(LOOP)
    program.slow.touch()
    with program.start_order("sleep", program.pid) as sender:
        assert eventually(program.calls)
        with program.start_order("sleep", program.pid) as other:
            program.has_orders(2)
            sender.interrupt(signal.SIGKILL)
            program.slow.unlink()
            assert other.wait().code == 0
    assert not program.goes_on(0.5)
    assert program.calls() == ["sleep", "sleep"]
    assert program.order("wake", program.pid).code == 0
    assert program.goes_on(60)


def test_what_cannot_be_undone_alone_is_told_with_what_to_type(start: Start) -> None:
    own = LOOP.replace("step = 0", "stalloc.sleep(tags='own')\nstep = 0", 1)
    program = start(own)
    assert program.goes_on(60)
    program.slow.touch()
    with program.start_order("sleep", program.pid) as sender:
        assert eventually(lambda: program.calls() == ["sleep", "sleep"])
        sender.interrupt(signal.SIGKILL)
    program.slow.unlink()
    program.has_orders(0)
    assert program.order("wake", program.pid).code == 0
    assert program.goes_on(60)
    said = program.end().err
    assert f"sleeps on: a part of it slept before, and is not to wake; to wake it: stalloc wake {program.pid}" in said


def test_a_sleep_that_was_answered_outlives_its_client(start: Start) -> None:
    program = start(LOOP)
    assert program.order("sleep", program.pid).code == 0
    assert not program.goes_on(1)
    assert program.calls() == ["sleep"]
    assert program.order("wake", program.pid).code == 0, "another client"
    assert program.goes_on(60)


def test_a_sleep_that_fails_half_way_leaves_no_loop_running_on_what_sleeps(start: Start) -> None:
    program = start(LOOP, FAKE_SLEEP_ERROR="a copy has failed")
    told = program.order("sleep", program.pid)
    assert told.code == 1
    assert "a copy has failed; what slept of it is awake again" in told.err
    assert program.calls() == ["sleep", "wake"]
    assert program.goes_on(60)


# Several of them -----------------------------------------------------------------------------------------------------


def test_several_processes_sleep_all_or_none(start: Start) -> None:
    loop, held = start(LOOP), start(LOOP)
    held.hold()
    told = loop.order("sleep", loop.pid, held.pid, loop.pid, "--timeout", "1", "--json")
    assert told.code == 1
    expect_document("sleep", json.loads(told.out))
    rows = json.loads(told.out)["processes"]
    assert [(row["pid"], row["ok"]) for row in rows] == [(int(loop.pid), False), (int(held.pid), False)]
    assert f"process {loop.pid}: it was put to sleep, and is awake again, since not all of them sleep" in told.err
    assert f"process {held.pid}: the program came to no end of an iteration" in told.err
    assert loop.calls() == ["sleep", "wake"]
    assert loop.goes_on(60)
    held.release()
    assert held.goes_on(60)
    assert held.calls() == []
    assert loop.order("sleep", loop.pid, held.pid).code == 0
    assert not held.goes_on(0.5)
    woken = loop.order("wake", held.pid, loop.pid, "--json")
    assert woken.code == 0
    expect_document("wake", json.loads(woken.out))
    assert held.goes_on(60)


def test_none_is_ordered_where_one_takes_no_orders(start: Start) -> None:
    program = start(LOOP)
    told = program.order("sleep", program.pid, "2147483647")
    assert told.code == 1
    assert f"process {program.pid}: it was not ordered to sleep, since not all of them take orders" in told.err
    assert "process 2147483647: it takes no orders: no process has the number 2147483647 here" in told.err
    assert program.goes_on(60)
    assert program.calls() == []


def test_many_clients_at_once_are_all_answered(start: Start) -> None:
    program = start(LOOP)
    program.hold()
    with ExitStack() as stack:
        senders = [stack.enter_context(program.start_order("sleep", program.pid, "--tags", "a")) for _ in range(4)]
        program.has_orders(4)
        program.release()
        assert [sender.wait().code for sender in senders] == [0] * 4
    assert not program.goes_on(0.5)
    assert program.order("wake", program.pid).code == 0
    assert program.goes_on(60)


def test_a_client_is_not_kept_waiting_by_a_child_of_a_program_that_has_died(start: Start) -> None:
    forking = LAST.replace(
        "sys.stdin",
        "import os, threading, time\nwhile threading.active_count() < 3:\n"
        "    time.sleep(0.01)\ntime.sleep(0.2)\nif os.fork() == 0:\n    time.sleep(60)\nsys.stdin",
    )
    program = start(forking)
    with program.start_order("sleep", program.pid) as sender:
        program.has_orders(1)
        assert eventually(lambda: children(program.process.pid))
        child = int(children(program.process.pid)[0])
        program.process.send_signal(signal.SIGKILL)
        try:
            told = sender.wait(20)
        finally:
            os.kill(child, signal.SIGKILL)
    assert told.code == 1
    assert "it ended before it answered" in told.err
