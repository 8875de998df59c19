"""A small program as traces, with a captured graph and without, from events in text."""

from __future__ import annotations

from pathlib import Path

from event_runs import MIB, Writer

POOL = 20 * MIB  # what a pool with a block of 8 MiB holds: a segment
_ADDRESS = 1 << 30


def graphed(path: Path, build: Path, *, replays: bool = True, eager_iterations: int = 0) -> Path:
    """4 MiB of weights; a graph writes 8 MiB that are dead behind its launch, where 6 + 2 MiB live beside 1 MiB. An
    iteration takes 10 ms. `eager_iterations`: before the capture; `replays`: the graph is launched."""
    writer = Writer()
    writer.alloc(4 * MIB)
    for index in range(eager_iterations):
        _eager(writer, index)
    writer.graph(0, "capture")
    writer.free(writer.captured(8 * MIB, _ADDRESS))
    writer.graph(0, "capture", "end")
    for index in range(5):
        _begin(writer, eager_iterations + index)
        kept = writer.alloc(MIB)
        for edge in ("begin", "end") if replays else ():
            writer.graph(0, "replay", edge)
        _rest(writer, kept)
    return writer.trace(path, build)


def eager(path: Path, build: Path) -> Path:
    """The same without a graph: an iteration takes 12 ms."""
    writer = Writer()
    writer.alloc(4 * MIB)
    for index in range(5):
        _eager(writer, index)
    return writer.trace(path, build)


def _eager(writer: Writer, index: int) -> None:
    _begin(writer, index)
    kept = writer.alloc(MIB)
    for size in (8 * MIB, 512):
        writer.free(writer.alloc(size))
    _rest(writer, kept)


def _begin(writer: Writer, index: int) -> None:
    writer.mark("iteration", index=index)
    writer.mark("microbatch", "F")


def _rest(writer: Writer, kept: int) -> None:
    for block in [writer.alloc(6 * MIB), writer.alloc(2 * MIB), kept]:
        writer.free(block)
