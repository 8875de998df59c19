"""Orders that a training loop carries out between two iterations, on its own thread.

Only there is it certain that nobody uses what is to sleep. The loop stays there until it is woken.
"""

from __future__ import annotations

import queue
from typing import Any, Callable

from stalloc._sleep.figures import SleepResult

_LOOK_SECONDS = 0.5  # so that signals are heard


class Order:
    """One sleep or wake that somebody waits for."""

    def __init__(self, carry_out: Callable[[], SleepResult], wakes: bool) -> None:
        self.wakes = wakes
        self._carry_out = carry_out
        self._answers: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self._given_up = False

    def run(self) -> bool:
        """Whether it was done; the answer goes to whoever waits."""
        if self._given_up:
            return False
        try:
            answer: dict[str, Any] = {"ok": True, "result": self._carry_out().to_dict()}
        except (RuntimeError, ValueError) as error:
            answer = {"ok": False, "error": str(error)}
        self._answers.put(answer)
        return bool(answer["ok"])

    def answer(self, timeout: float) -> dict[str, Any]:
        """Waits. After `timeout` seconds the order is not carried out any more."""
        try:
            return self._answers.get(timeout=timeout)
        except queue.Empty:
            self._given_up = True
            return {"ok": False, "error": f"the program came to no end of an iteration within {timeout:g} s"}


_orders: queue.SimpleQueue[Order] = queue.SimpleQueue()
_serving = False


def serve() -> None:
    global _serving
    _serving = True


def give(order: Order) -> None:
    _orders.put(order)


def reached(_: int) -> None:
    """An iteration is over: what was ordered meanwhile is done now."""
    if _serving and not _orders.empty():
        _carry_out()


def _carry_out() -> None:
    asleep = False
    while asleep or not _orders.empty():
        try:
            order = _orders.get(timeout=_LOOK_SECONDS)
        except queue.Empty:
            continue
        if order.run():
            asleep = not order.wakes
