"""Orders of other processes, without one: when they are begun, given up, answered and undone."""

from __future__ import annotations

import signal
import socket
import struct
import threading
import time
from collections.abc import Iterator
from typing import Any, Optional, cast

import pytest

from sleepers import eventually
from stalloc.core import sleep_sockets
from stalloc.train.sleep import api, boundary, orders, server
from stalloc.train.sleep.figures import DeviceFigures, SleepResult

NOTHING = SleepResult((), True)


class Arena:
    """Bytes that sleep, and what was done to them."""

    def __init__(self) -> None:
        self.asleep = 0
        self.done: list[str] = []

    def sleep(self) -> SleepResult:
        self.asleep += 4
        self.done.append("sleep")
        return self.result(True)

    def wake(self, tags: Any = None, device: Any = None) -> SleepResult:
        self.asleep = 0
        self.done.append("wake")
        return self.result(False)

    def result(self, asleep: bool) -> SleepResult:
        return SleepResult((DeviceFigures(-1, 1, 4, 0, 4, 1, 4, self.asleep, 0, 0, 0, 0, 0.0, 0.0),), asleep)


@pytest.fixture
def arena(monkeypatch: pytest.MonkeyPatch) -> Iterator[Arena]:
    """Of this process, whose loop takes orders."""
    arena = Arena()
    monkeypatch.setattr(api, "asleep_bytes", lambda: arena.asleep)
    monkeypatch.setattr(api, "wake", arena.wake)
    boundary.forget()
    boundary.serve()
    yield arena
    boundary.forget()


class Loop:
    """A thread that comes to the end of one iteration."""

    def __init__(self) -> None:
        self.raised: Optional[BaseException] = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            boundary.reached(0)
        except BaseException as error:
            self.raised = error

    def stays(self) -> bool:
        self._thread.join(0.3)
        return self._thread.is_alive()

    def goes_on(self) -> bool:
        self._thread.join(30)
        return not self._thread.is_alive() and self.raised is None


def sleeping(arena: Arena) -> orders.Order:
    return orders.Order(arena.sleep, wakes=False)


def waking(arena: Arena) -> orders.Order:
    return orders.Order(arena.wake, wakes=True)


# One order -----------------------------------------------------------------------------------------------------------


def test_an_order_that_nobody_begins_is_given_up_and_never_carried_out() -> None:
    order = orders.Order(lambda: pytest.fail("it was given up"), wakes=False)
    assert order.answer(0.01) == {"ok": False, "error": "the program came to no end of an iteration within 0.01 s"}
    assert order.run() is None


def test_an_order_whose_client_has_gone_is_never_carried_out() -> None:
    order = orders.Order(lambda: pytest.fail("nobody wants it"), wakes=False, is_wanted=lambda: False)
    assert order.run() is None
    assert not order.answer(0)["ok"]
    waited = orders.Order(lambda: pytest.fail("nobody wants it"), wakes=False, is_wanted=lambda: False)
    assert not waited.answer(3600)["ok"], "it is seen before the timeout"
    assert waited.run() is None


def test_an_order_that_was_begun_is_answered_however_long_it_takes() -> None:
    begun, may_end = threading.Event(), threading.Event()

    def carry_out() -> SleepResult:
        begun.set()
        assert may_end.wait(30)
        return NOTHING

    order = orders.Order(carry_out, wakes=False)
    running = threading.Thread(target=order.run)
    running.start()
    assert begun.wait(30)
    answers: list[dict[str, Any]] = []
    waiting = threading.Thread(target=lambda: answers.append(order.answer(0)))
    waiting.start()
    waiting.join(0.2)
    assert not answers, "it sleeps in the end, so it must not be told that it does not"
    may_end.set()
    running.join(30)
    waiting.join(30)
    assert answers[0]["ok"]


@pytest.mark.parametrize(
    "error",
    [RuntimeError("no memory"), KeyError("device"), RecursionError("too deep"), MemoryError(), OSError(5, "io")],
    ids=lambda error: type(error).__name__,
)
def test_no_error_of_an_order_reaches_the_loop(arena: Arena, error: Exception) -> None:
    def carry_out() -> SleepResult:
        raise error

    order = orders.Order(carry_out, wakes=False)
    boundary.give(order)
    boundary.reached(0)
    assert order.answer(0) == {"ok": False, "error": str(error) or type(error).__name__}


def test_an_answer_that_cannot_be_built_says_so_and_the_loop_stays_until_the_wake(
    arena: Arena, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Segments are asked of PyTorch's allocator."""

    def stays(_: SleepResult) -> Any:
        raise RuntimeError("no snapshot")

    monkeypatch.setattr(SleepResult, "stays", stays)
    order, wake = sleeping(arena), waking(arena)
    boundary.give(order)
    loop = Loop()
    answer = order.answer(30)
    assert (answer["ok"], answer["result"]["stays_unknown"]) == (True, "no snapshot")
    assert answer["result"]["devices"][0]["asleep_bytes"] == 4
    assert loop.stays()
    boundary.give(wake)
    assert loop.goes_on()
    assert wake.answer(30)["ok"]


# The loop ------------------------------------------------------------------------------------------------------------


def test_at_the_end_what_waits_is_refused_and_so_is_what_comes(arena: Arena) -> None:
    before, later, at_once = sleeping(arena), sleeping(arena), sleeping(arena)
    boundary.give(before)
    boundary.end()
    boundary.give(later)
    boundary.at_once(at_once)
    boundary.reached(0)
    for order in (before, later, at_once):
        assert order.answer(30) == {"ok": False, "error": boundary.ENDING}
    assert arena.done == []


def test_other_loops_of_the_process_stay_as_well(arena: Arena) -> None:
    boundary.give(sleeping(arena))
    first = Loop()
    assert eventually(lambda: arena.asleep)
    second = Loop()
    assert first.stays()
    assert second.stays()
    boundary.give(waking(arena))
    assert first.goes_on()
    assert second.goes_on()


def test_a_program_that_wakes_itself_goes_on(arena: Arena) -> None:
    boundary.give(sleeping(arena))
    loop = Loop()
    assert eventually(lambda: arena.asleep)
    assert loop.stays()
    arena.asleep = 0  # by another thread
    assert loop.goes_on()


def test_a_loop_stays_where_it_cannot_be_told_what_sleeps(arena: Arena, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown() -> int:
        raise RuntimeError("the device cannot be waited for")

    boundary.give(sleeping(arena))
    with monkeypatch.context() as patched:
        patched.setattr(api, "asleep_bytes", unknown)
        loop = Loop()
        assert eventually(lambda: arena.asleep)
        assert loop.stays()
    boundary.give(waking(arena))
    assert loop.goes_on()


def test_a_loop_stays_although_an_error_of_ours_comes_meanwhile(
    arena: Arena, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken() -> bool:
        raise ValueError("of ours")

    boundary.give(sleeping(arena))
    boundary.give(orders.Order(arena.wake, wakes=True, is_wanted=broken))
    loop = Loop()
    assert eventually(lambda: arena.asleep)
    assert loop.stays()
    boundary.give(waking(arena))
    assert loop.goes_on()
    assert "an order to sleep failed: ValueError('of ours')" in capsys.readouterr().err


def test_an_order_that_was_answered_and_closed_is_none_any_more(arena: Arena) -> None:
    ours, theirs = socket.socketpair()
    order = orders.Order(arena.sleep, wakes=False, is_wanted=lambda: sleep_sockets.is_open(ours))
    boundary.give(order)
    with theirs:
        assert sleep_sockets.is_open(ours)
        assert not order.answer(0.01)["ok"]
        ours.close()
        assert not sleep_sockets.is_open(ours)
        boundary.reached(0)
    assert arena.done == []


@pytest.fixture
def interruptible() -> Iterator[None]:
    """A shell's background jobs ignore the signal."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_what_a_signal_raises_finds_everything_awake(arena: Arena) -> None:
    def interrupt() -> None:
        assert eventually(lambda: arena.asleep)
        time.sleep(0.1)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    order = sleeping(arena)
    boundary.give(order)
    threading.Thread(target=interrupt, daemon=True).start()
    with pytest.raises(KeyboardInterrupt):
        boundary.reached(0)
    assert arena.done == ["sleep", "wake"]
    assert order.answer(0)["ok"]


def test_what_a_signal_raises_within_an_order_is_told_to_its_client(arena: Arena) -> None:
    def carry_out() -> SleepResult:
        arena.sleep()
        raise KeyboardInterrupt

    order = orders.Order(carry_out, wakes=False)
    boundary.give(order)
    with pytest.raises(KeyboardInterrupt):
        boundary.reached(0)
    assert order.answer(0) == {"ok": False, "error": "the program was interrupted"}
    assert arena.done == ["sleep", "wake"]


def test_a_forked_child_has_no_orders(arena: Arena) -> None:
    boundary.give(sleeping(arena))
    boundary.forget()
    boundary.reached(0)
    assert arena.done == []


# What is undone ------------------------------------------------------------------------------------------------------


def test_a_sleep_is_undone_once_and_only_while_it_sleeps(arena: Arena) -> None:
    with orders.lock:
        order = sleeping(arena)
        orders.carry_out(order)
        orders.undo(order)
        orders.undo(order)
        woken = sleeping(arena)
        orders.carry_out(woken)
        orders.carry_out(waking(arena))
        arena.sleep()  # the program's own
        orders.undo(woken)
    assert arena.done == ["sleep", "wake", "sleep", "wake", "sleep"]


def test_two_sleeps_are_undone_with_the_last_of_them(arena: Arena) -> None:
    first, second = sleeping(arena), sleeping(arena)
    with orders.lock:
        orders.carry_out(first)
        orders.carry_out(second)
        with pytest.raises(RuntimeError, match="another order to sleep was carried out meanwhile"):
            orders.undo(first)
        assert arena.asleep
        orders.undo(second)
    assert not arena.asleep


def test_what_the_program_had_put_to_sleep_itself_is_not_woken(arena: Arena) -> None:
    arena.sleep()
    order = sleeping(arena)
    with orders.lock:
        orders.carry_out(order)
        with pytest.raises(RuntimeError, match="a part of it slept before, and is not to wake"):
            orders.undo(order)
    assert arena.asleep == 8


# Who may order -------------------------------------------------------------------------------------------------------


class Connection:
    """Of a process of that user."""

    def __init__(self, user: int) -> None:
        self._user = user

    def getsockopt(self, level: int, option: int, size: int) -> bytes:
        assert (level, option, size) == (socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        return struct.pack("3i", 4711, self._user, self._user)


def test_orders_are_taken_from_the_same_user_and_root_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.getuid", lambda: 1000)
    for user in (1000, 0):
        server._check_peer(cast(socket.socket, Connection(user)))
    with pytest.raises(PermissionError, match="user 1001 may not put processes of user 1000 to sleep"):
        server._check_peer(cast(socket.socket, Connection(1001)))
