"""What a program calls: sleep, wake, regions. From any thread; one sleep or wake runs at a time."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any, Optional, Union

from stalloc import _session
from stalloc._core._library import Library
from stalloc._sleep.figures import CPU, SleepResult

OUTSIDE, _ALL_DEVICES = -1, -2  # STALLOC_OUTSIDE, STALLOC_ALL_DEVICES

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
    """None: everything."""
    if tags is None:
        return None
    return [tags] if isinstance(tags, str) else [str(tag) for tag in tags]


def index_of(device: Device) -> int:
    """As the C ABI numbers devices. ValueError for what names none."""
    if device is None:
        return _ALL_DEVICES
    if isinstance(device, int) and not isinstance(device, bool) and device >= 0:
        return device
    kind, _, index = str(device).partition(":")
    if kind == "cpu":
        return CPU
    if kind == "cuda" and (index.isdecimal() or not index):
        return int(index or 0)
    raise ValueError(f"device must be an index, 'cpu' or 'cuda:N': {device!r}")


def sleep(keep: Tags, tags: Tags, to: str, device: Device) -> SleepResult:
    if to not in ("host", "nothing"):
        raise ValueError(f"to must be 'host' or 'nothing': {to!r}")
    if to == "nothing" and keep is not None:
        raise ValueError(f"to='nothing' keeps nothing, and keep names {keep!r}")
    kept = [] if to == "nothing" else names_of(keep)
    return SleepResult.parse(library().sleep(index_of(device), names_of(tags), kept), asleep=True)


def wake(tags: Tags, device: Device) -> SleepResult:
    return SleepResult.parse(library().wake(index_of(device), names_of(tags)), asleep=False)


@contextlib.contextmanager
def region(tag: str, keep: bool) -> Iterator[None]:
    """Where stalloc is not active, nothing."""
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
