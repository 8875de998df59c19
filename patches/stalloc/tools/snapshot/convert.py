"""A snapshot as events in text, which `stalloc-planner import` makes a trace of (planner/cli/event_text.h)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from stalloc.tools.snapshot import metadata
from stalloc.tools.snapshot.marks import Mark
from stalloc.tools.snapshot.read import Snapshot

Frame = tuple[str, str, int]  # file, function, line


def event_lines(snapshot: Snapshot, marks: Sequence[Mark], rank: int = 0) -> Iterator[str]:
    """Each ends with a newline. Ids count allocations."""
    yield "stalloc-events 1\n"
    yield f"= trace_mode snapshot\n= rank {rank}\n"
    waiting = list(reversed(marks))
    live: dict[tuple[int, int], int] = {}  # id of each live block
    texts = _Texts()
    stacks = _Stacks(texts)
    ids = 0
    for at, event in enumerate(snapshot.events):
        time_ns = event.time_us * 1000
        while waiting and waiting[-1].before <= at:
            yield _mark_line(waiting.pop(), time_ns)
        key = (event.device, event.address)
        if event.kind == "held":
            yield f"h {event.device} {event.size} {time_ns}\n"
        elif event.kind == "alloc":
            live[key] = ids
            new, call = stacks.take(event.frames)
            yield from new
            yield f"a {ids} {event.size} {event.device} {event.stream} {time_ns}{f' {call}' if call else ''}\n"
            yield from texts.tensors(ids, event.words)
            ids += 1
        elif key in live:
            yield f"f {live.pop(key)} {time_ns}\n"
    while waiting:
        yield _mark_line(waiting.pop(), snapshot.events[-1].time_us * 1000)


def _mark_line(mark: Mark, time_ns: int) -> str:
    name = f" {mark.name}" if mark.name else ""
    return f"m {mark.kind} {mark.edge} {mark.which} {mark.chunk} {mark.index} {time_ns}{name}\n"


class _Texts:
    """Numbers texts as they come."""

    def __init__(self) -> None:
        self._known: dict[str, int] = {}

    def take(self, text: str, lines: list[str]) -> int:
        if text not in self._known:
            self._known[text] = len(self._known)
            lines.append("t " + text.replace("\n", " ") + "\n")
        return self._known[text]

    def tensors(self, block: int, words: str) -> list[str]:
        """The lines that name what lies in it."""
        lines: list[str] = []
        role, names = metadata.read(words)
        for place, name in enumerate(names):
            text = self.take(name, lines)
            lines.append(f"n {block} {place} {role.replace(' ', '_') or '-'} {text}\n")
        return lines


class _Stacks:
    """Numbers calls as they come. Of stacks with frames of C++, too, those of Python."""

    def __init__(self, texts: _Texts) -> None:
        self._known: dict[tuple[Frame, ...], int] = {(): 0}
        self._texts = texts
        self._calls: dict[tuple[int, Frame], int] = {}

    def take(self, frames: tuple[Frame, ...]) -> tuple[list[str], int]:
        """The lines that are new, and the number of the innermost call; 0 without one."""
        lines: list[str] = []
        if frames not in self._known:
            call = 0
            for frame in reversed([frame for frame in frames if frame[0].endswith(".py") or frame[0].startswith("<")]):
                call = self._call(call, frame, lines)
            self._known[frames] = call
        return lines, self._known[frames]

    def _call(self, outside: int, frame: Frame, lines: list[str]) -> int:
        file, function, line = frame
        numbers = [self._texts.take(text, lines) for text in (file, function)]
        key = (outside, frame)
        if key not in self._calls:
            self._calls[key] = len(self._calls) + 1
            lines.append(f"c {outside} {max(0, line)} {numbers[0]} {numbers[1]}\n")
        return self._calls[key]
