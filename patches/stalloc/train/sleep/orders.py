"""Orders of other processes: how one is begun, carried out, answered and undone.

    given --> begun --> answered --kept by its client----> it sleeps until a wake
      |         |           +------its client has gone---> undone: it wakes again
      |         +--an error--> what sleeps of it all the same wakes again
      +--its client has gone, has waited long enough, or the program ends--> never begun

One order is carried out at a time, by the holder of the lock. No error of an order reaches its caller.
"""

from __future__ import annotations

import dataclasses
import os
import queue
import threading
import time
from typing import Any, Callable, Optional

from stalloc.core import log, sleep_sockets
from stalloc.train.sleep import api
from stalloc.train.sleep.figures import SleepResult

HELD = "another order to sleep was carried out meanwhile"
_LOOK_SECONDS = 0.25  # how soon it is seen that a client has gone


def _always() -> bool:
    return True


class Order:
    """One sleep or wake that a client waits for; `is_wanted` says whether the client is still there. Thread-safe."""

    def __init__(
        self, carry_out: Callable[[], SleepResult], wakes: bool, is_wanted: Callable[[], bool] = _always
    ) -> None:
        self.wakes = wakes
        self._carry_out = carry_out
        self._is_wanted = is_wanted
        self._answers: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._begun = False  # the two are guarded by the lock; at most one of them becomes true
        self._given_up = False

    def run(self, slept_before: int = 0) -> Optional[SleepResult]:
        """What was done; the answer goes to the client. None: it failed, or nobody waits any more.

        Args:
            slept_before: bytes.
        """
        if not self._begin():
            return None
        answer = sleep_sockets.failed("the program was interrupted")  # a handler of a signal raised
        try:
            result = self._carry_out()
            answer = {"ok": True, "result": _as_dict(result)}
            return result
        except Exception as error:
            answer = sleep_sockets.failed(_words(error) + ("" if self.wakes else _woken_again(slept_before)))
            return None
        finally:
            self._answers.put(answer)

    def answer(self, timeout: float) -> dict[str, Any]:
        """Waits. An order that nobody has begun on after `timeout` seconds is not carried out any more."""
        deadline = time.monotonic() + timeout
        while True:
            left = max(deadline - time.monotonic(), 0)
            try:
                return self._answers.get(timeout=min(left, _LOOK_SECONDS))
            except queue.Empty:
                is_wanted = self._is_wanted()
            if is_wanted and left > 0:
                continue
            why = f"the program came to no end of an iteration within {timeout:g} s"
            self.refuse(why if is_wanted else "nobody waits for the answer")
            return self._answers.get()

    def refuse(self, why: str) -> None:
        """Where it was not begun, it will not be; the client gets the reason."""
        with self._lock:
            if not self._begun and not self._given_up:
                self._given_up = True
                self._answers.put(sleep_sockets.failed(why))

    def _begin(self) -> bool:
        if not self._given_up and not self._is_wanted():
            self.refuse("nobody waits for the answer")
        with self._lock:
            self._begun = not self._given_up
            return self._begun


def _as_dict(result: SleepResult) -> dict[str, Any]:
    """What stays comes from a snapshot of PyTorch's allocator, which may fail; the program sleeps in any case."""
    try:
        return result.to_dict()
    except Exception as error:
        devices = [dataclasses.asdict(device) for device in result.devices]
        return {"devices": devices, "stays": [], "stays_unknown": _words(error)}


def _words(error: BaseException) -> str:
    return str(error) or type(error).__name__


def _woken_again(slept_before: int) -> str:
    """What a sleep that failed has left asleep wakes again, where that can be done; the words for it."""
    if (asleep_bytes() or 0) <= slept_before:
        return ""
    if slept_before:
        return "; a part of it sleeps: `stalloc wake`"
    try:
        api.wake(None, None)
    except Exception as error:
        return f"; a part of it sleeps and did not wake ({_words(error)}): `stalloc wake` tries it again"
    return "; what slept of it is awake again"


def asleep_bytes() -> Optional[int]:
    """The tags that sleep now; None if not known, as without an arena."""
    try:
        return api.asleep_bytes()
    except Exception:
        return None


# One at a time -------------------------------------------------------------------------------------------------------

lock = threading.Lock()
_held: list[Order] = []  # guarded by the lock: sleeps that were answered, and of which something still sleeps
_slept_before = 0  # bytes, before the first of these: the program's own affair


def carry_out(order: Order) -> Optional[SleepResult]:
    """Like Order.run. REQUIRES: the lock."""
    global _slept_before
    before = asleep_bytes() or 0
    if not before:
        _held.clear()  # the program has woken itself
    result = order.run(before)
    if result is not None and not order.wakes:
        if not _held:
            _slept_before = before
        _held.append(order)
    now = asleep_bytes()
    if now is not None and now <= _slept_before:
        _held.clear()
    return result


def undo(order: Order) -> SleepResult:
    """Wakes what a sleep has put to sleep, since nobody knows of it; nothing where it is awake. REQUIRES: the lock.

    Raises:
        RuntimeError: it sleeps on, and why.
    """
    if order not in _held:
        return SleepResult((), asleep=False)
    _held.remove(order)
    if _held:
        raise RuntimeError(HELD)
    return wake_again(_slept_before)


def wake_again(slept_before: int) -> SleepResult:
    """Wakes all that orders have put to sleep. REQUIRES: the lock.

    Args:
        slept_before: bytes. What the program had put to sleep itself cannot be distinguished.
    Raises:
        RuntimeError: it sleeps on, and why.
    """
    if slept_before:
        raise RuntimeError("a part of it slept before, and is not to wake")
    result = api.wake(None, None)
    _held.clear()
    return result


def warn_of_sleep(what: str, why: str) -> None:
    """Used where nobody else would report it."""
    log.warning(f"{what}, and sleeps on: {why}; to wake it: stalloc wake {os.getpid()}")


def is_held(order: Order) -> bool:
    """Whether it sleeps, as far as is known without the lock."""
    return order in _held


def forget() -> None:
    """In a forked child, where none of the locks will be opened."""
    global lock
    lock = threading.Lock()
    _held.clear()
