"""A plan that does not fit the run costs no memory: it is given up, or replaced, and what it came to is said."""

from __future__ import annotations

import json
from typing import Any

import pytest

from processes import SCRIPTS, Finished, Training

ROUNDED_UP = 4 << 20  # a chunk of the arena, and a small segment


def start(training: Training, mode: str, *arguments: str, **extra: str) -> Finished:
    program = ("-m", "stalloc", "run", str(SCRIPTS / "sized.py"))
    return training.start_plain(mode, *program, *arguments, **extra)


def run(training: Training, mode: str, *arguments: str, **extra: str) -> dict[str, Any]:
    done = start(training, mode, *arguments, **extra).good()
    result: dict[str, Any] = json.loads(done.out.splitlines()[-1])
    return {**result, "stderr": done.err}


def plain(training: Training, *arguments: str) -> str:
    done = training.start_plain(None, str(SCRIPTS / "sized.py"), *arguments).good()
    return str(json.loads(done.out.splitlines()[-1])["digest"])


def holds_what_lives(iteration: dict[str, int]) -> bool:
    live = iteration["peak_live_bytes"]
    return iteration["held_peak_bytes"] <= live + max(live // 50, ROUNDED_UP)


@pytest.fixture
def planned(training: Training) -> Training:
    run(training, "Trace", "--rows", "8192", "--steps", "4")
    training.plan()
    return training


def test_a_plan_of_a_larger_batch_is_given_up_and_holds_what_lives_from_then_on(planned: Training) -> None:
    arguments = ("--rows", "2048", "--steps", "12")
    done = run(planned, "Alloc", *arguments)
    assert done["digest"] == plain(planned, *arguments)
    assert planned.summary()["gave_up"]
    assert holds_what_lives(done["last_iterations"][0])
    held = [line for line in done["stderr"].splitlines() if "The run goes on without it" in line]
    assert len(held) == 1
    assert "MiB live (PyTorch's allocator would hold" in held[0]
    assert "; PyTorch would hold " in done["stderr"].splitlines()[-1]


def test_a_plan_of_the_run_is_kept_and_what_pytorch_would_hold_is_said(planned: Training) -> None:
    done = run(planned, "Alloc", "--rows", "8192", "--steps", "12", STALLOC_STRICT="1")
    summary = planned.summary()
    assert (summary["gave_up"], summary["departed"]) == (False, False)
    assert holds_what_lives(done["last_iterations"][0])
    native = summary["native"]
    assert native["peak_live_bytes"] == summary["peak_live_bytes"]
    analysis = json.loads((planned.info / "output" / "trace_analysis" / "rank00000.json").read_text())
    simulated = analysis["devices"][0]["simulated"]["native_bytes"]
    assert abs(native["held_bytes"] - simulated) <= 0.02 * simulated, "the planner's model of the same requests"


@pytest.mark.parametrize("marks", [(), ("--marks",)])
def test_strict_ends_the_loop_where_the_plan_is_of_another_program(planned: Training, marks: tuple[str, ...]) -> None:
    done = start(planned, "Alloc", "--rows", "2048", "--steps", "12", *marks, STALLOC_STRICT="1")
    assert done.code == 1
    assert "last_iterations" not in done.out
    error = next(line for line in done.err.splitlines() if "ForeignPlanError: " in line)
    assert f"STALLOC_STRICT=1: the plan {planned.info}/output/plan/rank00000.plan is of another program" in error
    assert "requests had slots in the plan so far, and the last iteration held " in error


def test_each_lasting_growth_is_planned_anew(training: Training) -> None:
    arguments = ("--rows", "2048", "4096", "6144", "--steps", "24")
    done = run(training, "Auto", *arguments, STALLOC_AUTO_WAIT="1")
    assert done["digest"] == plain(training, *arguments)
    status = json.loads((training.info / "log_output" / "rank00000.auto.json").read_text())
    assert [stage["stage"] for stage in status["stages"]] == ["tracing", "planning", "planned"] * 3
    assert all(map(holds_what_lives, done["last_iterations"])), done["last_iterations"]
    summary = training.summary()
    assert summary["steady"]["hits"] >= 0.99 * summary["steady"]["requests"] > 100


def test_a_batch_that_shrinks_for_good_is_planned_anew_and_one_that_alternates_is_not(training: Training) -> None:
    done = run(training, "Auto", "--rows", "6144", "2048", "--steps", "24", STALLOC_AUTO_WAIT="1")
    assert all(map(holds_what_lives, done["last_iterations"])), done["last_iterations"]
    path = training.info / "log_output" / "rank00000.auto.json"
    stages = [stage["stage"] for stage in json.loads(path.read_text())["stages"]]
    assert stages == ["tracing", "planning", "planned"] * 2
    training.info = training.directory / "alternates"
    run(training, "Auto", "--rows", *["6144", "2048"] * 20, "--steps", "1", STALLOC_AUTO_WAIT="1")
    path = training.info / "log_output" / "rank00000.auto.json"
    stages = [stage["stage"] for stage in json.loads(path.read_text())["stages"]]
    assert stages == ["tracing", "planning", "planned"]
