"""Checks a document against the Trace Event Format, as its specification and the viewers have it.

"Trace Event Format" (Google, 2016): the JSON object form; complete (X), counter (C) and metadata (M) events, which are
those that stalloc writes. ui.perfetto.dev and chrome://tracing read it.
"""

from __future__ import annotations

import math
from typing import Any

_METADATA = {"process_name", "process_labels", "process_sort_index", "thread_name", "thread_sort_index"}
_UNITS = {"ms", "ns"}


def check(document: Any) -> None:
    """Raises AssertionError naming the event and the rule that it breaks."""
    assert isinstance(document, dict), "the object form has metadata beside the events"
    assert document.get("displayTimeUnit", "ms") in _UNITS
    events = document["traceEvents"]
    assert isinstance(events, list)
    assert events, "there is no event"
    for event in events:
        _check_event(event)
    _check_nesting([event for event in events if event["ph"] == "X"])
    _check_series([event for event in events if event["ph"] == "C"])
    named = {(event["pid"], event["tid"]) for event in events if event["ph"] == "M" and event["name"] == "thread_name"}
    assert {(event["pid"], event["tid"]) for event in events if event["ph"] == "X"} <= named, "a thread has no name"


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _check_event(event: dict[str, Any]) -> None:
    assert isinstance(event["name"], str), event
    assert event["name"], event
    assert isinstance(event["pid"], int), event
    if event["ph"] == "M":
        assert event["name"] in _METADATA, event
        assert isinstance(event["args"]["name"], str), event
        return
    assert _is_number(event["ts"]), event
    assert event["ts"] >= 0, event
    if event["ph"] == "X":
        assert isinstance(event["tid"], int), event
        assert _is_number(event["dur"]), event
        assert event["dur"] >= 0, event
        assert isinstance(event.get("args", {}), dict), event
    else:
        assert event["ph"] == "C", event
        assert event["args"], event
        assert all(isinstance(name, str) and _is_number(value) for name, value in event["args"].items()), event


def _check_nesting(slices: list[dict[str, Any]]) -> None:
    """Of a thread, a slice lies inside another or beside it."""
    open_until: dict[tuple[int, int], list[float]] = {}
    for event in sorted(slices, key=lambda event: (event["ts"], -event["dur"])):
        ends = open_until.setdefault((event["pid"], event["tid"]), [])
        while ends and ends[-1] <= event["ts"] + 1e-6:
            ends.pop()
        assert not ends or event["ts"] + event["dur"] <= ends[-1] + 1e-3, f"{event} reaches beyond what it lies in"
        ends.append(event["ts"] + event["dur"])


def _check_series(counters: list[dict[str, Any]]) -> None:
    """A counter has the same parts at all times, and its points come in order."""
    seen: dict[tuple[int, str], tuple[float, set[str]]] = {}
    for event in counters:
        key = (event["pid"], event["name"])
        last, parts = seen.get(key, (event["ts"], set(event["args"])))
        assert event["ts"] >= last, event
        assert set(event["args"]) == parts, event
        seen[key] = (event["ts"], parts)
