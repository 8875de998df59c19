"""Orders that a training loop carries out between two iterations, on its own thread.

Only there is it certain that nobody uses what is to sleep. The loop stays there until no more sleeps than before. At
the end of the program what was ordered and not begun is refused: nobody would wake it.
"""

from __future__ import annotations

import contextlib
import queue
import threading

from stalloc.core import log
from stalloc.train.sleep import orders
from stalloc.train.sleep.orders import Order

ENDING = "the program is ending, and takes no more orders"
_LOOK_SECONDS = 0.5  # so that signals are handled, and a program that wakes itself is seen

_gate = threading.Lock()  # an order is either refused by the end, or there before it
_given: queue.SimpleQueue[Order] = queue.SimpleQueue()
_serving = False
_ended = False


def serve() -> None:
    global _serving
    _serving = True


def give(order: Order) -> None:
    """To the loop. From any thread."""
    with _gate:
        if not _ended:
            _given.put(order)
            return
    order.refuse(ENDING)


def at_once(order: Order) -> None:
    """Carries it out on this thread."""
    with orders.lock:
        if _ended:
            order.refuse(ENDING)
        else:
            orders.carry_out(order)


def end(wait_seconds: float = 0) -> None:
    """Carries out no more orders. An order that another thread carries out has `wait_seconds` to end."""
    global _serving, _ended
    with _gate:
        _serving, _ended = False, True
    with contextlib.suppress(queue.Empty):
        while True:
            _given.get_nowait().refuse(ENDING)
    if wait_seconds and orders.lock.acquire(timeout=wait_seconds):
        orders.lock.release()


def forget() -> None:
    """In a forked child: the orders are its parent's."""
    global _gate, _given, _serving, _ended
    _gate, _given = threading.Lock(), queue.SimpleQueue()
    _serving = _ended = False
    orders.forget()


def reached(_: int) -> None:
    """An iteration is over: what was ordered meanwhile is done now. Other loops of the process stay as well."""
    if _serving and (not _given.empty() or orders.lock.locked()):
        _stay()


def _stay() -> None:
    with orders.lock:
        before = orders.asleep_bytes() or 0  # what the program has put to sleep itself
        try:
            _obey(before)
        except BaseException:
            _wake_again(before)
            raise


def _obey(before: int) -> None:
    """A wake of some leaves the loop where it is."""
    stays = False
    while stays or not _given.empty():
        result = None
        try:
            result = orders.carry_out(_given.get(timeout=_LOOK_SECONDS))
        except queue.Empty:
            pass
        except Exception as error:  # none of ours may end a training run, nor let it go on in its sleep
            log.error(f"an order to sleep failed: {error!r}")
        now = orders.asleep_bytes()
        if now is not None:
            stays = now > before
        elif result is not None:
            stays = result.asleep


def _wake_again(before: int) -> None:
    """A handler of a signal has raised: a program that catches this, perhaps to save the model, finds it awake."""
    if (orders.asleep_bytes() or 0) <= before:
        return
    try:
        orders.wake_again(before)
    except Exception as error:
        orders.warn_of_sleep("was interrupted in its sleep", str(error))
