"""What a program calls: sleep, wake, regions. From any thread; one sleep or wake runs at a time."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any, Callable, Optional, Union

from stalloc.core.library import Library
from stalloc.train import session as _session
from stalloc.train.sleep.figures import CPU, SleepResult

OUTSIDE, _ALL_DEVICES = -1, -2  # STALLOC_OUTSIDE, STALLOC_ALL_DEVICES
_MOST_DEVICES = 1 << 31  # of a C int

Tags = Union[None, str, Iterable[str]]
Device = Any  # None, an index, "cpu", "cuda:1", a torch.device


def library() -> Library:
    """RuntimeError where there is no arena that could sleep."""
    session = _session.current
    if session is None:
        raise RuntimeError(
            "stalloc is not active in this process, so there is no arena that could sleep (STALLOC_MODE)"
        )
    if session.library is None:
        raise RuntimeError(f"STALLOC_MODE={session.mode} has no arena, so nothing can sleep")
    return session.library


def names_of(tags: Tags) -> Optional[list[str]]:
    """None: everything. ValueError for what can be no name."""
    if tags is None:
        return None
    names = [tags] if isinstance(tags, str) else [str(tag) for tag in tags]
    for name in names:
        _check_name(name)
    return names


def _check_name(name: str) -> None:
    if "\0" in name:  # the library would see what is before it
        raise ValueError(f"a region's tag must have no NUL character: {name!r}")


def index_of(device: Device) -> int:
    """The device's number in the C ABI. ValueError if it names none."""
    if device is None:
        return _ALL_DEVICES
    if isinstance(device, int) and not isinstance(device, bool):
        index = device
    else:
        kind, _, digits = str(device).partition(":")
        if kind == "cpu":
            return CPU
        index = int(digits or 0) if kind == "cuda" and (digits.isdecimal() or not digits) else -1
    if 0 <= index < _MOST_DEVICES:
        return index
    raise ValueError(f"device must be an index, 'cpu' or 'cuda:N': {device!r}")


def sleep(keep: Tags, tags: Tags, to: str, device: Device) -> SleepResult:
    return sleeper(keep, tags, to, device)()


def sleeper(keep: Tags, tags: Tags, to: str, device: Device) -> Callable[[], SleepResult]:
    """What sleeps when it is called. ValueError, RuntimeError: it never could, as sleep() would say."""
    if to not in ("host", "nothing"):
        raise ValueError(f"to must be 'host' or 'nothing': {to!r}")
    if to == "nothing" and keep is not None:
        raise ValueError(f"to='nothing' keeps nothing, and keep names {keep!r}")
    kept = [] if to == "nothing" else names_of(keep)
    names, index, arena = names_of(tags), index_of(device), library()
    return lambda: SleepResult.parse(arena.sleep(index, names, kept), asleep=True)


def wake(tags: Tags, device: Device) -> SleepResult:
    return waker(tags, device)()


def waker(tags: Tags, device: Device) -> Callable[[], SleepResult]:
    """Like `sleeper`."""
    names, index, arena = names_of(tags), index_of(device), library()
    return lambda: SleepResult.parse(arena.wake(index, names), asleep=False)


def asleep_bytes() -> int:
    """The tags that sleep now, on all devices. RuntimeError if nothing can sleep."""
    of_none = library().sleep(_ALL_DEVICES, [], [])  # puts nothing to sleep, and returns what does
    return SleepResult.parse(of_none, asleep=True).asleep_bytes


@contextlib.contextmanager
def region(tag: str, keep: bool) -> Iterator[None]:
    """Where stalloc is not active, nothing."""
    _check_name(tag)
    session = _session.current
    entered = session.library if session is not None else None
    if entered is None:
        yield
        return
    before = entered.enter_region(entered.region_tag(tag, keep))
    try:
        yield
    finally:
        entered.enter_region(before)


@contextlib.contextmanager
def outside() -> Iterator[None]:
    """Where stalloc is not active, nothing."""
    session = _session.current
    entered = session.library if session is not None else None
    if entered is None:
        yield
        return
    before = entered.enter_region(OUTSIDE)
    try:
        yield
    finally:
        entered.enter_region(before)
