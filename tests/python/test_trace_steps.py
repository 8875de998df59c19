"""Traces of some iterations, ranks and events of a run: STALLOC_TRACE_STEPS and its kin, stalloc.stop()."""

from __future__ import annotations

from typing import Any

import pytest

from processes import FakeProcess, Training, view_of
from stalloc.core import config

SCRIPT = "import stalloc\nfor i in range(5): stalloc.iteration(i + 70)\n"


def calls_of(fake: FakeProcess) -> list[str]:
    return [call.split()[0] for call in fake.calls() if call.startswith(("mark", "start_trace", "stop_trace"))]


def test_the_trace_ends_behind_so_many_iterations(fake: FakeProcess) -> None:
    assert fake.python("-c", SCRIPT, STALLOC_MODE="Trace", STALLOC_TRACE_STEPS="3").code == 0
    assert calls_of(fake) == ["mark", "mark", "mark", "stop_trace", "mark", "mark"]


def test_it_begins_behind_the_iterations_before_the_window(fake: FakeProcess) -> None:
    done = fake.python("-c", SCRIPT, STALLOC_MODE="Trace", STALLOC_TRACE_STEPS="2:4", STALLOC_LOG_LEVEL="debug")
    assert calls_of(fake) == ["mark", "mark", "start_trace", "mark", "mark", "stop_trace", "mark"]
    assert "iteration 71: the trace begins after it" in done.err
    assert "iteration 73: the trace is complete after 2 iterations" in done.err


def test_without_an_end_it_goes_on_to_the_run_s(fake: FakeProcess) -> None:
    fake.python("-c", SCRIPT, STALLOC_MODE="Trace", STALLOC_TRACE_STEPS="1:")
    assert calls_of(fake) == ["mark", "start_trace", "mark", "mark", "mark", "mark"]


def test_without_the_variable_or_in_another_mode_it_does_not(fake: FakeProcess) -> None:
    fake.python("-c", SCRIPT, STALLOC_MODE="Trace")
    fake.python("-c", SCRIPT, STALLOC_MODE="Alloc", STALLOC_TRACE_STEPS="1:3")
    assert set(calls_of(fake)) == {"mark"}


def test_stop_ends_it_anywhere(fake: FakeProcess) -> None:
    assert fake.python("-c", "import stalloc; stalloc.stop()", STALLOC_MODE="Trace").code == 0
    assert any(call.startswith("stop_trace") for call in fake.calls())
    assert fake.python("-c", "import stalloc; stalloc.stop()").code == 0, "nothing where stalloc is not active"


@pytest.mark.parametrize("value", ["0", "-1", "5:2", "2:2", ":5", "all", "1:2:3"])
def test_other_values_are_refused(value: str) -> None:
    with pytest.raises(ValueError, match=f"STALLOC_TRACE_STEPS must be .*'{value}'"):
        config.read_config({"STALLOC_MODE": "Trace", "STALLOC_TRACE_STEPS": value})


def test_ranks_that_are_not_listed_stay_as_they_are(fake: FakeProcess) -> None:
    listed = fake.python("-c", SCRIPT, STALLOC_MODE="Trace", STALLOC_TRACE_RANKS="0,3-5", RANK="4")
    assert listed.code == 0
    assert "mark" in calls_of(fake)
    fake.forget_calls()
    other = fake.python(
        "-c", SCRIPT, STALLOC_MODE="Trace", STALLOC_TRACE_RANKS="0,3-5", RANK="2", STALLOC_LOG_LEVEL="debug"
    )
    assert other.code == 0
    assert fake.calls() == []
    assert "rank 2 is not traced: STALLOC_TRACE_RANKS=0,3-5" in other.err


@pytest.mark.parametrize("value", ["0,", "a", "3-1", "1-", "0 3"])
def test_no_list_of_ranks_is_refused(value: str) -> None:
    with pytest.raises(ValueError, match=f"STALLOC_TRACE_RANKS must be .*'{value}'"):
        config.read_config({"STALLOC_MODE": "Trace", "STALLOC_TRACE_RANKS": value})


# -- Real training on the CPU


def report_of(training: Training) -> dict[str, Any]:
    return view_of(training.build, training.info / "trace" / "rank00000.trace")


def test_a_short_trace_of_a_long_run_plans_it(training: Training) -> None:
    plain = training.run(None, "--iterations", "8")
    traced = training.run("Trace", "--iterations", "8", STALLOC_TRACE_STEPS="4")
    assert traced["losses"] == plain["losses"]
    assert report_of(training)["rank"]["trace_complete"]
    report = training.plan()["ranks"][0]["report"]
    assert report["marks"]["iterations"] == 4
    assert report["trace_complete"]
    assert training.run("Alloc", "--iterations", "8")["losses"] == plain["losses"]
    steady = training.summary()["steady"]
    assert steady["hits"] >= 0.99 * steady["requests"]


@pytest.mark.parametrize("marks", ["full", pytest.param("none", marks=pytest.mark.slow)])
def test_a_late_trace_has_the_peak_and_classes_of_the_whole_one(training: Training, marks: str) -> None:
    """From the third iteration on nothing changes any more, so that its peak is that of any later one."""
    arguments = ("--iterations", "8", "--marks", marks)
    plain = training.run("Trace", *arguments)
    whole = report_of(training)
    late_run = training.run("Trace", *arguments, STALLOC_TRACE_STEPS="3:6")
    late = report_of(training)
    assert late_run["losses"] == plain["losses"]
    assert late["rank"]["trace_complete"]
    segments = [view["rank"]["devices"][0]["segments"] for view in (whole, late)]
    assert [len(rows) for rows in segments] == [9, 4]
    peaks = [[row["peak_live_bytes"] for row in rows] for rows in segments]
    assert set(peaks[1][1:]) == {peaks[0][-2]}, "an iteration in the middle"
    # What was live before is set-up, with its size; and named, state too.
    of_iterations = [row["requests"] for row in segments[1][1:]]
    assert len(set(of_iterations)) == 1
    by_class = [view["rank"]["devices"][0]["peak"]["by_class"] for view in (whole, late)]
    assert by_class[1]["weights"] == by_class[0]["weights"]
    assert by_class[1]["optimizer state"] == by_class[0]["optimizer state"]


def test_a_late_trace_plans_a_run_from_scratch(training: Training) -> None:
    """Whose first iteration makes what the trace found there: the optimizer's state."""
    arguments = ("--iterations", "6", "--marks", "full")
    traced = training.run("Trace", *arguments, STALLOC_TRACE_STEPS="3:6")
    training.plan()
    assert training.run("Alloc", *arguments)["losses"] == traced["losses"]
    summary = training.summary()
    assert summary["steady"]["hits"] >= 0.99 * summary["steady"]["requests"]
    assert summary["planned_hits"] >= 0.95 * summary["requests"]


def test_at_the_limit_of_events_the_trace_ends_and_the_run_goes_on(training: Training) -> None:
    plain = training.run("Trace", "--iterations", "8")
    every = report_of(training)["rank"]["events"]
    limited = training.run("Trace", "--iterations", "8", STALLOC_TRACE_MAX_EVENTS=str(every * 5 // 8))
    assert limited["losses"] == plain["losses"]
    assert "the trace has reached STALLOC_TRACE_MAX_EVENTS" in limited["stderr"]
    rank = report_of(training)["rank"]
    assert rank["trace_complete"]
    assert rank["events"] <= every * 5 // 8
    assert 3 <= rank["marks"]["iterations"] <= 5
