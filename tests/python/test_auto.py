"""STALLOC_MODE=Auto: one start traces, plans and takes its plan up; the next one has a plan from its beginning on."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from processes import SCRIPTS, Training, run_python
from stalloc.core import coordinates
from stalloc.core.run_files import identity, in_use

MARKED = ("--iterations", "12")


def stages(training: Training) -> list[dict[str, Any]]:
    path = training.info / "log_output" / "rank00000.auto.json"
    return list(json.loads(path.read_text())["stages"])


def reached(training: Training) -> list[str]:
    return [stage["stage"] for stage in stages(training)]


def await_planner(run: Path) -> None:
    """Until no start's process or planner works in the directory."""
    until = time.monotonic() + 60
    while in_use(run):
        assert time.monotonic() < until
        time.sleep(0.05)


def waiting(training: Training, *arguments: str, **extra: str) -> dict[str, Any]:
    return training.run("Auto", *arguments, STALLOC_AUTO_WAIT="1", **extra)


def same(left: dict[str, Any], right: dict[str, Any]) -> bool:
    return all(left[key] == right[key] for key in ("losses", "evaluations", "weights"))


@pytest.mark.parametrize(
    "marks", ["none", *(pytest.param(marks, marks=pytest.mark.slow) for marks in ("iteration", "full"))]
)
def test_a_run_takes_its_plan_up_and_the_next_start_begins_with_one(training: Training, marks: str) -> None:
    plain = training.run(None, "--marks", marks, *MARKED)
    first = waiting(training, "--marks", marks, *MARKED)
    assert same(first, plain)
    assert reached(training) == ["tracing", "planning", "planned"]
    summary = training.summary()
    since = summary["since_plan"]
    assert since["iterations"] in (6, 7)
    assert summary["steady"]["hits"] >= 0.99 * summary["steady"]["requests"] > 100
    assert since["held_peak_bytes"] <= since["peak_live_bytes"] + (2 << 20)
    assert 140 <= summary["dynamic_hits"] <= 160, "weights and state, and little else"
    assert summary["gave_up"] is False

    second = training.run("Auto", "--marks", marks, *MARKED)
    assert same(second, plain)
    assert reached(training) == ["planned"]
    summary = training.summary()
    assert "since_plan" not in summary
    assert summary["steady"]["hits"] == summary["steady"]["requests"]


def test_graphs_that_come_after_the_trace_are_in_the_plan_of_the_start_after_the_next(training: Training) -> None:
    def start(iterations: int = 18) -> tuple[list[Any], dict[str, int]]:
        arguments = (str(SCRIPTS / "late_graphs.py"), str(training.info), str(iterations), "9")
        done = training.start_plain(None, *arguments, STALLOC_AUTO_WAIT="1")
        assert done.code == 0, done.err
        note = json.loads((training.info / "output" / "plan" / "rank00000.graphs.json").read_text())
        return [(stage["stage"], stage.get("to_trace")) for stage in stages(training)], note

    planned, traced = ("planned", None), ("tracing", 13)
    first, note = start()
    assert first[0] == ("tracing", 6)
    assert note["traced"] == 6 < note["captured_by"] == 10
    assert start(iterations=11) == ([planned, traced], note), "it ended too early: nothing is lost"
    trace = training.info / "trace" / "rank00000.trace"
    before = trace.stat().st_size
    assert start() == ([planned, traced, planned], {"captured_by": 10, "traced": 13})
    assert trace.stat().st_size > 1.5 * before, "the plan is of 13 iterations now"
    assert start() == ([planned], {"captured_by": 10, "traced": 13})
    (training.info / "output" / "plan" / "rank00000.plan").unlink()
    assert start()[0] == [traced, ("planning", None), planned], (
        "a run that is known is traced for long enough from the first start on"
    )


def test_another_program_takes_its_own_plan_up_though_the_known_ones_graphs_came_late(training: Training) -> None:
    def start(*width: str) -> list[str]:
        arguments = (str(SCRIPTS / "late_graphs.py"), str(training.info), "18", "9", *width)
        done = training.start_plain(None, *arguments, STALLOC_AUTO_WAIT="1")
        assert done.code == 0, done.err
        return reached(training)

    start()
    assert start("384") == ["planned", "tracing", "planning", "planned"]
    assert training.summary()["since_plan"]["iterations"] >= 4


def test_evaluations_and_fences_stay_where_they_are(training: Training) -> None:
    arguments = ("--iterations", "14", "--eval-at", "0", "4", "8", "11")
    plain = training.run(None, *arguments)
    assert same(waiting(training, *arguments), plain)
    assert reached(training)[-1] == "planned"
    assert same(training.run("Auto", *arguments), plain)


def test_what_a_plan_does_not_know_costs_memory_only(training: Training) -> None:
    arguments = ("--iterations", "16", "--extra-from", "9", "--rows-from", "11", "7")
    plain = training.run(None, *arguments)
    assert same(waiting(training, *arguments), plain)


@pytest.mark.parametrize("iterations", [pytest.param("1", marks=pytest.mark.slow), "7"])
def test_a_run_that_ends_too_soon_has_no_plan(training: Training, iterations: str) -> None:
    done = training.run("Auto", "--iterations", iterations)
    assert same(done, training.run(None, "--iterations", iterations))
    assert "error" not in done["stderr"]


def test_a_run_that_ends_behind_its_trace_leaves_a_plan_for_the_next_start(training: Training) -> None:
    done = training.run("Auto", "--iterations", "6")
    assert reached(training) == ["tracing", "planning", "ended"]
    assert "ended before its plan was there; it is made for the next start" in done["stderr"]
    await_planner(training.info)
    assert "no plan served this run" in run_python("-m", "stalloc", "status", str(training.info)).out
    assert same(training.run("Auto", *MARKED), training.run(None, *MARKED))
    assert reached(training) == ["planned"]


def test_a_program_without_iterations_is_told_what_marks_them(training: Training, tmp_path: Path) -> None:
    loop = tmp_path / "no_optimizer.py"
    loop.write_text("import torch\nw = torch.zeros(512, 2048)\nfor _ in range(8):\n    w += 0.1 * w.exp()\n")
    done = training.start_plain("Auto", "-m", "stalloc", "run", str(loop))
    assert done.code == 0, done.err
    assert "has nothing to plan: no iteration was seen: step an optimizer" in done.err
    assert reached(training) == ["tracing", "ended"]


def test_a_directory_may_have_any_bytes_in_its_name(training: Training, tmp_path: Path) -> None:
    training.info = tmp_path / os.fsdecode(b"no utf-8 \xff\xfe")
    done = training.run("Auto", "--iterations", "6")
    assert same(done, training.run(None, "--iterations", "6"))
    assert reached(training) == ["tracing", "planning", "ended"]
    assert training.summary()["trace"]["path"].startswith(str(training.info))


def test_a_planner_that_fails_leaves_the_run_as_it_is(training: Training, tmp_path: Path) -> None:
    broken = tmp_path / "lib"
    broken.mkdir()
    for name in ("libstalloc_torch.so", "libstalloc.so"):
        (broken / name).symlink_to(training.build / name)
    planner = broken / "stalloc-planner"
    planner.write_text("#!/bin/sh\necho 'error: the planner was ended' >&2\nkill -9 $$\n")
    planner.chmod(0o755)
    done = waiting(training, *MARKED, STALLOC_LIB_PATH=str(broken))
    assert same(done, training.run(None, *MARKED))
    assert reached(training) == ["tracing", "planning", "unplanned"]
    assert done["stderr"].count("the planner was ended") == 1
    assert "stays on PyTorch's allocator" in done["stderr"]


def test_a_corrupt_plan_is_made_anew(training: Training) -> None:
    plan = training.info / "output" / "plan" / "rank00000.plan"
    plan.parent.mkdir(parents=True)
    plan.write_bytes(b"no plan")
    done = waiting(training, *MARKED)
    assert str(plan) in done["stderr"]
    assert "made anew" in done["stderr"]
    assert reached(training)[-1] == "planned"
    assert same(training.run("Auto", *MARKED), done)
    assert reached(training) == ["planned"]


OTHER_MODEL = """
import stalloc
import torch
model = torch.nn.Sequential(*(torch.nn.Linear(96 + 8 * i, 104 + 8 * i) for i in range(12)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(12):
    model(torch.ones(40, 96)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


def test_a_plan_of_another_model_is_left_and_the_next_start_has_a_plan_of_its_own(training: Training) -> None:
    other = training.directory / "other.py"
    other.write_text(OTHER_MODEL)
    assert training.start_plain("Auto", str(other), STALLOC_AUTO_WAIT="1").code == 0
    plan = training.info / "output" / "plan" / "rank00000.plan"
    assert plan.is_file()
    before = identity(plan)
    done = waiting(training, *MARKED, STALLOC_LOG_LEVEL="debug")
    assert same(done, training.run(None, *MARKED))
    assert "requests other sizes than the plan that it began with" in done["stderr"]
    assert reached(training) == ["planned", "tracing", "planning", "planned"]
    assert identity(plan) not in (None, before), "of the run that came last"
    waiting(training, *MARKED)
    assert reached(training) == ["planned"]


def test_a_replica_begins_with_the_plan_of_a_rank_at_its_place(training: Training) -> None:
    script = training.directory / "replica.py"
    script.write_text(OTHER_MODEL)
    words = [str(script), "--micro-batch-size", "40"]

    def start(rank: int) -> list[str]:
        place = {"RANK": str(rank), "LOCAL_RANK": "0", "WORLD_SIZE": "2"}
        done = training.start_plain("Auto", *words, STALLOC_AUTO_WAIT="1", **place)
        assert done.code == 0, done.err
        path = training.info / "log_output" / f"rank{rank:05d}.auto.json"
        return [stage["stage"] for stage in json.loads(path.read_text())["stages"]]

    assert start(0) == ["tracing", "planning", "planned"]
    own = coordinates.of_command_line(words[1:], 0, 2)
    assert own is not None
    coordinates.write(training.info, 0, own)  # as Megatron's hooks do
    assert start(1) == ["planned"]
    assert not (training.info / "output" / "plan" / "rank00001.plan").exists()


def test_a_run_that_becomes_another_is_traced_anew_and_takes_another_plan_up(training: Training) -> None:
    arguments = ("--iterations", "32", "--rows-from", "10", "7")
    plain = training.run(None, *arguments)
    done = waiting(training, *arguments, STALLOC_LOG_LEVEL="debug")
    assert same(done, plain)
    assert reached(training) == ["tracing", "planning", "planned"] * 2
    assert stages(training)[3]["iterations"] in range(13, 17), "three iterations tell, and every fourth is looked at"
    assert "requests other sizes than its plan has: 6 iterations are traced anew" in done["stderr"]
    summary = training.summary()
    assert (summary["departed"], summary["gave_up"], summary["unknown_frees"]) == (False, False, 0)
    assert summary["steady"]["hits"] >= 0.99 * summary["steady"]["requests"] > 100, "counted from the second plan on"
    since = summary["since_plan"]
    assert since["held_peak_bytes"] <= since["peak_live_bytes"] + (4 << 20)


AUTO_IN_CODE = """
import sys
import stalloc
import torch
stalloc.auto(sys.argv[1])
assert stalloc.mode() == "Auto"
"""


def test_a_program_starts_it_in_code_and_status_tells_how_far_it_came(training: Training, tmp_path: Path) -> None:
    program = tmp_path / "own.py"
    program.write_text(AUTO_IN_CODE + OTHER_MODEL)
    info = tmp_path / "elsewhere"
    assert training.start_plain(None, str(program), str(info), STALLOC_AUTO_WAIT="1").code == 0
    told = run_python("-m", "stalloc", "status", str(info))
    assert told.code == 0, told.err
    lines = told.out.splitlines()
    assert lines[0] == str(info)
    held, *stages = lines[1:]
    assert held.startswith("rank 0  Auto: held ")
    assert [line.split()[6] for line in stages] == ["tracing", "planning", "planned", "ended"]
    assert "6 iterations to trace" in stages[0]
    assert "predicted E" in stages[2]
    ranks = json.loads(run_python("-m", "stalloc", "status", str(info), "--json").out)["ranks"]
    assert [stage["stage"] for stage in ranks[0]["stages"]] == ["tracing", "planning", "planned"]


def test_status_of_what_is_no_run_is_an_error(tmp_path: Path) -> None:
    told = run_python("-m", "stalloc", "status", str(tmp_path))
    assert told.code == 1
    assert str(tmp_path) in told.err
    broken = tmp_path / "log_output" / "rank00000.auto.json"
    broken.parent.mkdir()
    broken.write_text("[]")
    assert str(broken) in run_python("-m", "stalloc", "status", str(tmp_path)).err


def test_a_trace_that_another_process_writes_in_the_directory_stays(training: Training) -> None:
    trace = training.info / "trace" / "rank00000.trace"
    trace.parent.mkdir(parents=True)
    with trace.open("wb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)  # as a run in mode Trace has it
        done = waiting(training, *MARKED)
        assert os.path.samestat(os.fstat(held.fileno()), trace.stat())
    assert trace.read_bytes() == b""
    assert same(done, training.run(None, *MARKED))
    assert reached(training)[-1] == "planned"
    assert (training.info / "output" / "plan" / "rank00000.plan").is_file()


@pytest.mark.slow
def test_workers_and_an_exception_at_the_end(training: Training) -> None:
    for workers in ("fork", "spawn"):
        shutil.rmtree(training.info, ignore_errors=True)
        plain = training.run(None, *MARKED, "--workers", workers)
        assert same(waiting(training, *MARKED, "--workers", workers), plain)
        assert reached(training)[-1] == "planned"
    done = training.try_run("Auto", *MARKED, "--end", "raise", STALLOC_AUTO_WAIT="1")
    assert done.code == 1
    assert "the script's own error" in done.err


# Under stress --------------------------------------------------------------------------------------------------------


def disturbed(training: Training, *arguments: str) -> tuple[dict[str, Any], str]:
    """What a disturbed loop computes under Auto, which must be what it computes without; and what it was told."""
    script = str(SCRIPTS / "disturbed_training.py")
    plain = training.start_plain(None, script, *arguments)
    assert plain.code == 0, plain.err
    done = training.start_plain("Auto", "-m", "stalloc", "run", script, *arguments, STALLOC_AUTO_WAIT="1")
    assert done.code == 0, done.err
    result = dict(json.loads(done.out.splitlines()[-1]))
    assert result == json.loads(plain.out.splitlines()[-1])
    return result, done.err


# The plan comes after the sixth iteration that has an optimizer step.
@pytest.mark.parametrize(
    "arguments",
    [
        ("--evaluate-first", "--raise-at", "2", "7", "9", "--fork-at", "1", "8", "11"),
        ("--evaluate-first", "--thread", "--raise-at", "2", "7", "9", "--fork-at", "1", "8", "11"),
        *(
            pytest.param(alone, marks=pytest.mark.slow)
            for alone in (("--evaluate-first",), ("--thread",), ("--raise-at", "6"), ("--fork-at", "6", "7"))
        ),
    ],
    ids=lambda arguments: "-".join(word.strip("-") for word in arguments if word.startswith("--")),
)
def test_evaluations_exceptions_forks_and_threads_at_any_time(training: Training, arguments: tuple[str, ...]) -> None:
    result, told = disturbed(training, *arguments)
    stages = reached(training)
    assert stages[:3] == ["tracing", "planning", "planned"], told
    assert all(code == 0 for code in result["children"])
    assert result["wrong"] == 0
    summary = training.summary()
    assert summary["unknown_frees"] == 0
    # What the other thread asks for, and when, is chance: a plan that serves little of it is left, which is said.
    left = "does not resemble its plan" in told or "requests other sizes" in told
    assert stages == ["tracing", "planning", "planned"] or left, told
    assert not left or "--thread" in arguments, told
    assert left or summary["planned_hits"] > 100, told


def test_a_loop_that_never_repeats_is_told_so_at_most_once(training: Training) -> None:
    _, told = disturbed(training, "--never-repeats", "--iterations", "16")
    assert "planning" in reached(training)
    assert told.count("warning") + told.count(" W ") <= 1, told
    assert training.summary()["unknown_frees"] == 0


# Where plans are kept ------------------------------------------------------------------------------------------------


def test_without_a_directory_plans_are_in_the_cache(training: Training, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    extra = {"STALLOC_MODEL_INFO_PATH": "", "XDG_CACHE_HOME": str(cache)}
    waiting(training.cold(), *MARKED, **extra)
    (run,) = (cache / "stalloc" / "runs").iterdir()
    assert run.name.startswith("train-")
    assert (run / "output" / "plan" / "rank00000.plan").is_file()


def test_a_cache_that_cannot_be_written_is_a_line(training: Training, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    cache.write_text("a file")
    extra = {"STALLOC_MODEL_INFO_PATH": "", "XDG_CACHE_HOME": str(cache), "TMPDIR": str(tmp_path)}
    done = waiting(training, *MARKED, **extra)
    assert done["stderr"].count("cannot be kept for the next start") == 1
    assert "is served from its plan" in done["stderr"]
