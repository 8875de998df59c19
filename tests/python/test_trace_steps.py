"""A trace that ends before its run: STALLOC_TRACE_STEPS and stalloc.stop()."""

from __future__ import annotations

import json

import pytest

from processes import FakeProcess, Training, run
from stalloc import _config

SCRIPT = "import stalloc\nfor i in range(5): stalloc.iteration(i + 70)\n"


def test_the_trace_ends_behind_so_many_iterations(fake: FakeProcess) -> None:
    assert fake.python("-c", SCRIPT, STALLOC_MODE="Trace", STALLOC_TRACE_STEPS="3").code == 0
    calls = [call for call in fake.calls() if call.startswith(("mark", "stop_trace"))]
    assert [call.split()[0] for call in calls] == ["mark", "mark", "mark", "stop_trace", "mark", "mark"]


def test_without_the_variable_or_in_another_mode_it_does_not(fake: FakeProcess) -> None:
    fake.python("-c", SCRIPT, STALLOC_MODE="Trace")
    fake.python("-c", SCRIPT, STALLOC_MODE="Alloc", STALLOC_TRACE_STEPS="3")
    assert not [call for call in fake.calls() if call.startswith("stop_trace")]


def test_stop_ends_it_anywhere(fake: FakeProcess) -> None:
    assert fake.python("-c", "import stalloc; stalloc.stop()", STALLOC_MODE="Trace").code == 0
    assert any(call.startswith("stop_trace") for call in fake.calls())
    assert fake.python("-c", "import stalloc; stalloc.stop()").code == 0, "nothing where stalloc is not active"


@pytest.mark.parametrize("value", ["0", "-1", "2:5", "all"])
def test_other_values_are_refused(value: str) -> None:
    with pytest.raises(ValueError, match=f"STALLOC_TRACE_STEPS must be .*'{value}'"):
        _config.read_config({"STALLOC_MODE": "Trace", "STALLOC_TRACE_STEPS": value})


def test_a_short_trace_of_a_long_run_plans_it(training: Training) -> None:
    plain = training.run(None, "--iterations", "8")
    traced = training.run("Trace", "--iterations", "8", STALLOC_TRACE_STEPS="4")
    assert traced["losses"] == plain["losses"]
    report = training.plan()["ranks"][0]["report"]
    assert report["marks"]["iterations"] == 4
    assert report["trace_complete"]
    assert training.run("Alloc", "--iterations", "8")["losses"] == plain["losses"]
    steady = training.summary()["steady"]
    assert steady["hits"] >= 0.99 * steady["requests"]


def test_the_report_of_a_stopped_trace_is_readable(training: Training) -> None:
    training.run("Trace", "--iterations", "6", STALLOC_TRACE_STEPS="3")
    trace = training.info / "trace" / "rank00000.trace"
    done = run([str(training.build / "stalloc-planner"), "report", str(trace), "--json"])
    assert json.loads(done.out)["rank"]["trace_complete"]
