"""Layers of a model in a snapshot: the program's own ranges or words, else the calls of `forward` in Python stacks.

A stack has files and lines, and no names of modules. So a layer is called by the lines of the calls that lead to it,
from the outside in: "modeling_llama:390.3.modeling_llama:312.linear" is what line 312 calls, in the fourth call that
line 390 makes. A call is a new one where the lines inside it go back.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from pathlib import PurePath

from stalloc.tools.snapshot import metadata
from stalloc.tools.snapshot.marks import Mark
from stalloc.tools.snapshot.read import Event, Snapshot

# What torch and its compiler mark, and what stalloc export writes for other marks than layers.
_NO_LAYER = re.compile(
    r"Optimizer\.|enumerate\(DataLoader\)|## |Torch-Compiled Region|CompiledF|optimizer$|(init|fence)( |$)"
)
_A_PASS = re.compile(r"(F|B|W|FB) \d+( chunk \d+)?$")
_OF_PASS = re.compile(r"(?P<name>.+) \((?P<which>F|B|W|FB|O)\)$")  # as stalloc export writes it
_DEEPEST = 16  # calls of `forward` inside each other

Line = tuple[str, int]  # a class, else a file's stem, and the line; 0: of torch's, where the name says it all
Call = tuple[Line, int]  # and how many calls of that line came before it, in the call around it


def from_ranges(snapshot: Snapshot, passes: Sequence[Mark], loops: tuple[str, ...]) -> list[Mark]:
    """`passes`: marks of micro-batches and optimizer, ascending; `loops`: how the names of iterations' ranges begin."""
    times = [event.time_us for event in snapshot.events]
    starts = [mark.before for mark in passes]
    marks: list[Mark] = []
    for found in snapshot.annotations:
        if found.name.startswith(loops) or _NO_LAYER.match(found.name) or _A_PASS.match(found.name):
            continue
        begin = bisect_left(times, found.begin_us)
        end = len(times) if found.end_us is None else bisect_left(times, found.end_us)
        if begin == end:
            continue
        of_pass = _OF_PASS.match(found.name)
        around = passes[bisect_right(starts, begin) - 1] if starts and starts[0] <= begin else None
        inside = around is not None and around.kind == "microbatch" and around.edge == "begin"
        which = of_pass["which"] if of_pass else around.which if around is not None and inside else "-"
        name = " ".join((of_pass["name"] if of_pass else found.name).split())
        marks += [Mark(begin, "layer", "begin", which, name=name), Mark(end, "layer", "end", which, name=name)]
    return marks


def from_words(events: Sequence[Event]) -> list[Mark]:
    """A program's note on its blocks (torch.cuda.memory's user_metadata), as long as it says the same."""
    marks: list[Mark] = []
    words = ""
    for at, event in enumerate(events):
        if event.kind != "alloc" or event.earlier or event.words == words:
            continue
        if words:
            marks.append(Mark(at, "layer", "end", name=words))
        words = "" if metadata.read(event.words)[1] else event.words
        if words:
            marks.append(Mark(at, "layer", "begin", name=words))
    return marks


def from_stacks(events: Sequence[Event], passes: Sequence[Mark]) -> list[Mark]:
    """The layers of forward passes alone: autograd's threads have no stacks."""
    marks: list[Mark] = []
    ends = [*(mark.before for mark in passes[1:]), len(events)]
    for mark, end in zip(passes, ends):
        if mark.kind == "microbatch" and mark.edge == "begin" and mark.which == "F":
            marks += _of_pass(events, mark.before, end)
    return marks


def _of_pass(events: Sequence[Event], begin: int, end: int) -> Iterator[Mark]:
    numbered = _Calls()
    calls = [(at, numbered.take(events[at])) for at in range(begin, end) if events[at].kind == "alloc"]
    open_layers: list[str] = []
    for at, path in [*calls, (end, ())]:
        wanted = list(numbered.names(path))
        same = next((i for i, pair in enumerate(zip(open_layers, wanted)) if pair[0] != pair[1]), None)
        common = min(len(open_layers), len(wanted)) if same is None else same
        for name in reversed(open_layers[common:]):
            yield Mark(at, "layer", "end", "F", name=name)
        for name in wanted[common:]:
            yield Mark(at, "layer", "begin", "F", name=name)
        open_layers = wanted


class _Calls:
    """Numbers the calls of one forward pass."""

    def __init__(self) -> None:
        self._path: tuple[Call, ...] = ()
        self._several: set[tuple[Call, ...]] = set()  # calls, as the first of several, with those around them

    def take(self, event: Event) -> tuple[Call, ...]:
        lines = _forward_lines(event)
        path: list[Call] = []
        for depth, line in enumerate(lines):
            before = self._path[depth] if depth < len(self._path) else None
            if before is not None and before[0] == line:
                path.append(before)
                continue
            if before is not None and depth > 0 and before[0][0] == line[0] and line[1] < before[0][1]:
                around, count = path[-1]
                self._several.add((*path[:-1], (around, 0)))
                path[-1] = (around, count + 1)
            path += [(each, 0) for each in lines[depth:]]
            break
        self._path = tuple(path)
        return self._path

    def names(self, path: tuple[Call, ...]) -> Iterator[str]:
        """The names of the layer and of those that hold it, the outermost first."""
        name = ""
        for depth, ((file, line), count) in enumerate(path):
            name += ("." if name else "") + (f"{file}:{line}" if line else file)
            if (*path[:depth], ((file, line), 0)) in self._several:
                yield name
                name += f".{count}"
            yield name


# The calls of `forward`, the outermost first.
def _forward_lines(event: Event) -> list[Line]:
    lines: list[Line] = []
    for file, name, line in reversed(event.frames):
        of, _, function = name.rpartition(".")
        if function == "forward":
            of_torch = "/torch/nn/" in file
            lines.append((of.rpartition(".")[2] or PurePath(file).stem.replace(".", "_"), 0 if of_torch else line))
    return lines[:_DEEPEST]
