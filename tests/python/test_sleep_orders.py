"""Orders of other processes, without one: when they are begun, given up and answered."""

from __future__ import annotations

import socket
import struct
import threading
from typing import Any, cast

import pytest

from stalloc._sleep import boundary, server
from stalloc._sleep.figures import SleepResult

NOTHING = SleepResult((), True)


def test_an_order_that_nobody_begins_is_given_up_and_never_carried_out() -> None:
    order = boundary.Order(lambda: pytest.fail("it was given up"), wakes=False)
    assert order.answer(0.01) == {"ok": False, "error": "the program came to no end of an iteration within 0.01 s"}
    assert order.run() is None


def test_an_order_that_was_begun_is_answered_however_long_it_takes() -> None:
    begun, may_end = threading.Event(), threading.Event()

    def carry_out() -> SleepResult:
        begun.set()
        assert may_end.wait(30)
        return NOTHING

    order = boundary.Order(carry_out, wakes=False)
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


def test_an_order_that_fails_is_told_so_and_the_loop_goes_on() -> None:
    def carry_out() -> SleepResult:
        raise RuntimeError("the host has no memory")

    order = boundary.Order(carry_out, wakes=False)
    assert order.run() is None
    assert order.answer(0) == {"ok": False, "error": "the host has no memory"}


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
