"""Python stacks of allocations in a trace (STALLOC_TRACE_STACKS)."""

from __future__ import annotations

from typing import Any

import pytest

from processes import SCRIPTS, Training, view_of

SCRIPT = SCRIPTS / "stacked_training.py"
pytest.importorskip("torch")


def line_of(text: str) -> int:
    return next(number for number, line in enumerate(SCRIPT.read_text().splitlines(), 1) if text in line)


def traced(training: Training, stacks: str) -> tuple[dict[str, Any], str]:
    """The report of the device, and what the run printed."""
    done = training.start_plain("Trace", "-m", "stalloc", "run", str(SCRIPT), STALLOC_TRACE_STACKS=stacks).good()
    trace = training.info / "trace" / "rank00000.trace"
    return view_of(training.build, trace)["devices"][0], done.err


def rows_of(device: dict[str, Any], requested: int, table: str = "peak") -> list[tuple[str, str, int]]:
    """Call site, stack and number of the blocks of a size."""
    rounded = -(-requested // 512) * 512
    rows = zip(device[table]["bytes"], device[table]["stack"], device[table]["count"])
    sites, calls = device["stacks"]["call_site"], device["stacks"]["calls"]
    return [(sites[stack], calls[stack], count) for size, stack, count in rows if size == rounded]


def test_each_block_has_the_calls_it_comes_from(training: Training) -> None:
    device, _ = traced(training, "1")
    rows = rows_of(device, 300_000)
    place = f"stacked_training.py:{line_of('the place of 300')} keep_a_block"
    assert {site for site, _, _ in rows} == {place}
    assert sum(count for *_, count in rows) == 3
    innermost, *callers = rows[0][1].splitlines()
    assert innermost == f"{SCRIPT.parent}/{place}"
    assert any(line.endswith(" <module>") and str(SCRIPT) in line for line in callers)
    assert [row[:2] for row in rows_of(device, 300_000, "top_blocks")] == [row[:2] for row in rows[:1]]
    # A backward pass runs Python, too.
    backward = f"stacked_training.py:{line_of('the place of 500')} Doubling.backward"
    assert {site for site, _, _ in rows_of(device, 500_000)} == {backward}


def test_large_requests_alone(training: Training) -> None:
    device, _ = traced(training, "400K")
    assert all(not site for site, _, _ in rows_of(device, 300_000))
    assert all(site for site, _, _ in rows_of(device, 500_000))


def test_without_the_variable_there_are_none(training: Training) -> None:
    device, _ = traced(training, "0")
    assert device["stacks"] == {"call_site": [""], "calls": [""]}
    assert not any(device["peak"]["stack"])
    assert not any(device["top_blocks"]["stack"])


def test_a_value_that_is_neither_is_refused(training: Training) -> None:
    done = training.start_plain("Trace", "-m", "stalloc", "run", str(SCRIPT), STALLOC_TRACE_STACKS="some")
    assert done.code != 0
    assert "STALLOC_TRACE_STACKS must be" in done.err
