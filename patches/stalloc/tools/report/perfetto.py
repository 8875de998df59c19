"""Counters and phases in the Trace Event Format (microseconds), which ui.perfetto.dev and chrome://tracing open."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from stalloc.tools.report import figures


def trace_events(view: dict[str, Any], devices: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The events of the planner's JSON. A device is a process of the viewer; iterations and phases are threads of
    it."""
    rank = view["rank"]["rank"]
    events: list[dict[str, Any]] = []
    for number, device in enumerate(devices):
        pid = rank * 100 + number
        events.append(_named("process_name", pid, 0, f"rank {rank}, {figures.device_name(device['device'])}"))
        events += [_named("thread_name", pid, 1, "iterations"), _named("thread_name", pid, 2, "phases")]
        events += _counters(pid, view["classes"], device)
        events += _phases(pid, device)
    return {"traceEvents": events, "displayTimeUnit": "ms"}


def _named(kind: str, pid: int, tid: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": kind, "pid": pid, "tid": tid, "args": {"name": name}}


def _counters(pid: int, classes: Sequence[str], device: dict[str, Any]) -> Iterator[dict[str, Any]]:
    series, held = device["timeline"], device["held"]
    for i, ns in enumerate(series["ns"]):
        live = {name: series["by_class"][c][i] for c, name in enumerate(classes)}
        yield {"ph": "C", "name": "live bytes", "pid": pid, "ts": ns / 1000, "args": live}
    for ns, count in zip(held["ns"], held["bytes"]):
        yield {"ph": "C", "name": "held bytes", "pid": pid, "ts": ns / 1000, "args": {"held": count}}


def _phases(pid: int, device: dict[str, Any]) -> Iterator[dict[str, Any]]:
    phases = device["phases"]
    ends = [*phases["ns"][1:], device["end_ns"]]
    begin = 0
    for i, (name, ns, end) in enumerate(zip(phases["name"], phases["ns"], ends)):
        iteration, _, part = name.partition(", ")
        last = i + 1 == len(ends) or phases["segment"][i + 1] != phases["segment"][i]
        if i == 0 or phases["segment"][i - 1] != phases["segment"][i]:
            begin = ns
        if last:
            yield _slice((pid, 1), iteration, begin, end, {})
        if part:
            figures = {key: phases[key][i] for key in ("begin_live", "peak_live", "end_live", "requests")}
            yield _slice((pid, 2), part, ns, end, figures)


def _slice(place: tuple[int, int], name: str, begin_ns: int, end_ns: int, arguments: dict[str, Any]) -> dict[str, Any]:
    times = {"ts": begin_ns / 1000, "dur": (end_ns - begin_ns) / 1000}
    return {"ph": "X", "name": name, "pid": place[0], "tid": place[1], **times, "args": arguments}
