"""A trace as an SQLite database, for questions that no report answers. Bytes; nanoseconds since the first event.

`blocks` has every allocation; `rounded` is what it counts as in a peak, and `freed_event` is NULL where it stays.
`peak` has what is live at the peak, in groups of blocks that are alike. `device` is -1 for
the CPU. An event is an allocation, a free or a mark, numbered as in reports.
"""

from __future__ import annotations

import bisect
import sqlite3
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

_SCHEMA = """
CREATE TABLE blocks (id INTEGER, device INTEGER, stream INTEGER, bytes INTEGER, rounded INTEGER, thread INTEGER,
  allocated_event INTEGER, freed_event INTEGER, allocated_ns INTEGER, freed_ns INTEGER, phase TEXT, freed_in TEXT,
  call INTEGER, class TEXT, layer TEXT, tensor TEXT);
CREATE TABLE calls (id INTEGER PRIMARY KEY, outer INTEGER, file TEXT, line INTEGER, function TEXT);
CREATE TABLE marks (event INTEGER, ns INTEGER, thread INTEGER, kind TEXT, edge TEXT, pass TEXT, chunk INTEGER,
  number INTEGER, name TEXT);
CREATE TABLE phases (device INTEGER, event INTEGER, ns INTEGER, name TEXT, begin_live INTEGER, peak_live INTEGER,
  end_live INTEGER, requests INTEGER);
CREATE TABLE peaks (device INTEGER, event INTEGER, ns INTEGER, live_bytes INTEGER, phase TEXT);
CREATE TABLE peak (device INTEGER, bytes INTEGER, count INTEGER, class TEXT, layer TEXT, tensor TEXT, phase TEXT,
  freed_in TEXT, call_site TEXT);
"""
_INDEXES = "CREATE INDEX blocks_by_event ON blocks (device, allocated_event, freed_event)"


def database(view: dict[str, Any], lines: Iterable[dict[str, Any]]) -> bytes:
    """The file's content. `view`: collect.traced_view with every block; `lines`: of its dump of the same trace."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "trace.sqlite"
        with closing(sqlite3.connect(path)) as made, made:
            made.executescript(_SCHEMA)
            _fill_from_report(made, view)
            _fill_from_events(made, view, lines)
            made.execute(_INDEXES)
        return path.read_bytes()


def _insert(made: sqlite3.Connection, table: str, rows: Iterable[tuple[Any, ...]]) -> None:
    rows = list(rows)
    if rows:
        made.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * len(rows[0]))})", rows)


def _fill_from_report(made: sqlite3.Connection, view: dict[str, Any]) -> None:
    for device in view["devices"]:
        number, peak, phases = device["device"], device["peak"], device["phases"]
        _insert(made, "peaks", [(number, peak["event"], peak["ns"], peak["live_bytes"], peak["at_phase"])])
        _insert(made, "peak", _peak_rows(view["classes"], device))
        columns = ("event", "ns", "name", "begin_live", "peak_live", "end_live", "requests")
        _insert(made, "phases", ((number, *row) for row in zip(*(phases[column] for column in columns))))


def _peak_rows(classes: list[str], device: dict[str, Any]) -> Iterator[tuple[Any, ...]]:
    peak, sites = device["peak"], device["stacks"]["call_site"]
    for i, count in enumerate(peak["count"]):
        known = (classes[peak["class"][i]], device["layers"][peak["layer"][i]], peak["name"][i])
        where = (peak["phase"][i], peak["freed_in"][i], sites[peak["stack"][i]])
        yield device["device"], peak["bytes"][i], count, *known, *where


def _fill_from_events(made: sqlite3.Connection, view: dict[str, Any], lines: Iterable[dict[str, Any]]) -> None:
    phases = {device["device"]: device["phases"] for device in view["devices"]}
    known_of = dict(_known_of_blocks(view))
    blocks: dict[int, list[Any]] = {}
    done: list[tuple[Any, ...]] = []
    calls, marks = [], []
    event, begin = -1, 0
    for line in lines:
        kind = line["event"]
        if kind == "call":
            calls.append((line["id"], line["parent"], line["file"], line["line"], line["function"]))
            continue
        event += 1
        if event == 0:
            begin = line["time_ns"]
        ns = line["time_ns"] - begin
        if kind == "mark":
            known = (line[key] for key in ("thread", "kind", "edge", "pass", "chunk", "index", "name"))
            marks.append((event, ns, *known))
        elif kind == "alloc":
            count = line["bytes"]
            sizes = [line["id"], line["device"], line["stream"], count, max(512, -(-count // 512) * 512)]
            phase = _phase_at(phases[line["device"]], event)
            stack = line.get("stack") or None
            times = [line["thread"], event, None, ns, None, phase, None]
            blocks[line["id"]] = [*sizes, *times, stack, *known_of[event]]
        elif kind == "free":
            block = blocks.pop(line["id"])
            block[7], block[9], block[11] = event, ns, _phase_at(phases[line["device"]], event)
            done.append(tuple(block))
    _insert(made, "blocks", [*done, *map(tuple, blocks.values())])
    _insert(made, "calls", calls)
    _insert(made, "marks", marks)


def _known_of_blocks(view: dict[str, Any]) -> Iterator[tuple[int, tuple[str, str, str]]]:
    """Class, layer and tensor, by the event of the allocation."""
    for device in view["devices"]:
        blocks, layers = device["blocks"], device["layers"]
        for event, of, layer, name in zip(*(blocks[column] for column in ("event", "class", "layer", "name"))):
            yield event, (view["classes"][of], layers[layer], name)


def _phase_at(phases: dict[str, Any], event: int) -> str:
    return str(phases["name"][max(0, bisect.bisect_right(phases["event"], event) - 1)])
