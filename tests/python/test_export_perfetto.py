"""`stalloc export -f perfetto`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import trace_event_format
from exports import exported
from processes import view_of

pytestmark = pytest.mark.usefixtures("real_libraries")


def test_perfetto_has_counters_and_phases(trace: Path, tmp_path: Path, build: Path) -> None:
    document = json.loads(exported(trace, "perfetto", tmp_path).read_text())
    trace_event_format.check(document)
    events = document["traceEvents"]
    peak = view_of(build, trace)["rank"]["devices"][0]["peak"]["live_bytes"]
    counters = [sum(event["args"].values()) for event in events if event["ph"] == "C" and event["name"] == "live bytes"]
    assert max(counters) == peak
    slices = [event for event in events if event["ph"] == "X"]
    assert [event["name"] for event in slices if event["tid"] == 1] == ["set-up", "iter 0", "iter 1", "iter 2"]
    assert all(event["dur"] >= 0 for event in slices)
    assert {"F 0", "B 2", "optimizer"} <= {event["name"] for event in slices if event["tid"] == 2}


@pytest.mark.parametrize(
    "broken",
    [
        {"ph": "X", "name": "late", "pid": 0, "tid": 1, "ts": 5, "dur": 10},
        {"ph": "X", "name": "", "pid": 0, "tid": 1, "ts": 5, "dur": 1},
        {"ph": "X", "name": "negative", "pid": 0, "tid": 1, "ts": 5, "dur": -1},
        {"ph": "C", "name": "bytes", "pid": 0, "ts": 5, "args": {"live": "many"}},
        {"ph": "B", "name": "unknown", "pid": 0, "tid": 1, "ts": 5},
    ],
    ids=["crossing", "no name", "negative", "no number", "kind"],
)
def test_the_check_of_the_format_finds_what_is_wrong(broken: dict[str, Any]) -> None:
    good = [
        {"ph": "M", "name": "thread_name", "pid": 0, "tid": 1, "args": {"name": "phases"}},
        {"ph": "X", "name": "outer", "pid": 0, "tid": 1, "ts": 0, "dur": 10},
        {"ph": "C", "name": "bytes", "pid": 0, "ts": 0, "args": {"live": 1}},
    ]
    trace_event_format.check({"traceEvents": good})
    with pytest.raises(AssertionError):
        trace_event_format.check({"traceEvents": [*good, broken]})
