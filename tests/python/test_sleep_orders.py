"""Orders of other processes, without one: when they are begun, given up and answered."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from stalloc._sleep import boundary
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
