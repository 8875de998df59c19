"""Lifetimes of a trace's blocks, for tests that compare traces."""

from __future__ import annotations

import math
from pathlib import Path

from stalloc.tools.commands.export import dump_lines

Lifetime = tuple[int, int, int]  # bytes as requested; when allocated and freed, counted in allocations and frees; -1


def lifetimes(trace: Path, events: float = math.inf) -> list[Lifetime]:
    """Of the blocks among the first `events` allocations and frees, in the order of their allocations."""
    now, rows = 0, {}
    for line in dump_lines(trace):
        if line["event"] not in ("alloc", "free") or now >= events:
            continue
        if line["event"] == "alloc":
            rows[line["id"]] = [line["bytes"], now, -1]
        else:
            rows[line["id"]][2] = now
        now += 1
    return [(row[0], row[1], row[2]) for row in rows.values()]


def count_events(blocks: list[Lifetime]) -> int:
    return sum(2 if freed >= 0 else 1 for _, _, freed in blocks)


def most_requested(blocks: list[Lifetime]) -> int:
    """The peak of the bytes that were asked for."""
    steps = [(at, size) for size, at, _ in blocks] + [(freed, -size) for size, _, freed in blocks if freed >= 0]
    live = most = 0
    for _, change in sorted(steps):
        live += change
        most = max(most, live)
    return most
