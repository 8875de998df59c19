"""Orders that a training loop carries out between two iterations, on its own thread.

Only there is it certain that nobody uses what is to sleep. The loop stays there until no more sleeps than before.
"""

from __future__ import annotations

import queue
import threading
from typing import Any, Callable, Optional

from stalloc._sleep.figures import SleepResult

_LOOK_SECONDS = 0.5  # so that signals are heard


class Order:
    """One sleep or wake that somebody waits for."""

    def __init__(self, carry_out: Callable[[], SleepResult], wakes: bool) -> None:
        self.wakes = wakes
        self._carry_out = carry_out
        self._answers: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._begun = False  # the two are guarded by the lock; at most one of them becomes true
        self._given_up = False

    def run(self) -> Optional[SleepResult]:
        """What was done; the answer goes to whoever waits. None: it failed, or nobody waits any more."""
        with self._lock:
            if self._given_up:
                return None
            self._begun = True
        try:
            result = self._carry_out()
        except (RuntimeError, ValueError) as error:
            self._answers.put({"ok": False, "error": str(error)})
            return None
        self._answers.put({"ok": True, "result": result.to_dict()})
        return result

    def answer(self, timeout: float) -> dict[str, Any]:
        """Waits. An order that nobody has begun on after `timeout` seconds is not carried out any more."""
        try:
            return self._answers.get(timeout=timeout)
        except queue.Empty:
            with self._lock:
                self._given_up = not self._begun
            if not self._given_up:
                return self._answers.get()
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
    """A wake of some leaves the loop where it is, but for what the program itself had put to sleep before."""
    before: Optional[int] = None  # bytes that slept
    stays = False
    while stays or not _orders.empty():
        try:
            order = _orders.get(timeout=_LOOK_SECONDS)
        except queue.Empty:
            continue
        result = order.run()
        if result is None:
            continue
        if before is None:
            change = result.kept_bytes + result.dropped_bytes
            before = result.asleep_bytes + (change if order.wakes else -change)
        stays = result.asleep_bytes > before
