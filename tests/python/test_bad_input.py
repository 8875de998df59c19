"""Bad input: a clear error, or an unplanned run with a warning; nothing half written."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from processes import Finished, Training, clean_environment, run_python

QUICK = ("--iterations", "2")


def expect_unplanned(done: Finished, *words: str) -> None:
    """The run went on, with one warning that says why."""
    assert done.code == 0, done.err
    assert "Traceback" not in done.err
    for word in words:
        assert word in done.err


def expect_error(done: Finished, *words: str, code: int = 1) -> None:
    assert done.code == code, done.err
    assert "Traceback" not in done.err
    for word in words:
        assert word in done.err


@pytest.mark.parametrize("mode", ["Trace", "Alloc"])
def test_a_directory_must_be_named(training: Training, mode: str) -> None:
    done = training.cold().try_run(mode, *QUICK, STALLOC_MODEL_INFO_PATH="")
    expect_error(done, "STALLOC_MODEL_INFO_PATH", code=2)


def test_alloc_without_a_plan_runs_unplanned_with_a_warning(training: Training) -> None:
    expect_unplanned(training.try_run("Alloc", *QUICK), "plan", str(training.info), "unplanned")
    expect_error(training.cold().try_run("Alloc", *QUICK, STALLOC_STRICT="1"), "plan", str(training.info))
    assert training.summary()["degraded"]


@pytest.mark.parametrize("level", ["info", pytest.param("off", marks=pytest.mark.slow)])
def test_a_trace_that_cannot_be_written_ends_the_program_before_it_begins(training: Training, level: str) -> None:
    blocking = training.directory / "file"
    blocking.write_text("not a directory")
    below = {"STALLOC_MODEL_INFO_PATH": str(blocking / "info"), "STALLOC_LOG_LEVEL": level}
    done = training.try_run("Trace", *QUICK, **below)
    expect_error(done, "STALLOC_MODEL_INFO_PATH must be a directory that can be written", str(blocking), code=2)
    assert len(done.err.splitlines()) == 1
    imported = training.start_plain("Trace", "-c", "import stalloc; print('trains')", **below)
    expect_error(imported, "Not a directory", str(blocking), code=2)
    assert imported.out == ""
    assert blocking.read_text() == "not a directory"


def test_a_trace_on_a_full_disk_ends_the_program_before_it_begins(training: Training) -> None:
    full = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (512, 512)); import stalloc"
    expect_error(training.start_plain("Trace", "-c", full), "File too large", str(training.info), code=2)


def test_a_plan_of_another_world_size_is_refused(planned: Training) -> None:
    world = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "4"}
    expect_unplanned(planned.try_run("Alloc", *QUICK, **world), "world size", "1", "4", "unplanned")
    expect_error(planned.cold().try_run("Alloc", *QUICK, **world, STALLOC_STRICT="1"), "world size")


def test_a_corrupt_plan_is_refused(planned: Training, training: Training) -> None:
    good = (planned.info / "output" / "plan" / "rank00000.plan").read_bytes()
    plan = training.info / "output" / "plan" / "rank00000.plan"
    plan.parent.mkdir(parents=True)
    for damaged in (good[: len(good) // 2], b"", good[:40] + bytes(b ^ 0xFF for b in good[40:80]) + good[80:]):
        plan.write_bytes(damaged)
        expect_unplanned(training.try_run("Alloc", *QUICK), str(plan), "unplanned")


def test_a_trace_whose_end_is_missing_is_planned_as_far_as_it_goes(planned: Training, training: Training) -> None:
    good = (planned.info / "trace" / "rank00000.trace").read_bytes()
    trace = training.info / "trace" / "rank00000.trace"
    trace.parent.mkdir(parents=True)
    trace.write_bytes(good[:-7])
    done = training.try_plan()
    assert done.code == 0, done.err
    assert f"{trace} ends inside the chunk" in done.err
    result = training.run("Alloc", "--iterations", "6")
    assert result["figures"][-1]["devices"][0]["planned_hits"] > 0


@pytest.mark.parametrize("keep", [0, 5, 60])
def test_a_trace_without_a_valid_chunk_is_refused_and_nothing_is_written(
    planned: Training, training: Training, keep: int
) -> None:
    good = (planned.info / "trace" / "rank00000.trace").read_bytes()
    trace = training.info / "trace" / "rank00000.trace"
    trace.parent.mkdir(parents=True)
    for damaged in (good[:keep], b"not a trace at all"[:keep] + good[keep + 1 :]):
        trace.write_bytes(damaged)
        done = training.try_plan()
        assert done.code == 1, done.out
        assert str(trace) in done.err
        assert not list(training.info.glob("output/plan/*"))


def test_planning_without_a_trace_is_an_error(training: Training) -> None:
    done = training.try_plan()
    assert done.code == 1
    assert str(training.info) in done.err
    training.info.mkdir()
    assert training.try_plan().code == 1


def test_two_processes_cannot_trace_into_one_file(training: Training) -> None:
    """The second one is told who has it, and trains untraced."""
    holder = "import stalloc, torch, sys; torch.ones(9); print('ready', flush=True); sys.stdin.read()"
    environment = clean_environment(training.environment("Trace"))
    with subprocess.Popen(
        [sys.executable, "-c", holder], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == "ready\n"
        done = training.try_run("Trace", *QUICK)
        first.communicate("")
    expect_unplanned(done, str(first.pid), "untraced")
    assert "traced to" not in done.err
    assert first.returncode == 0


NO_ROOM = """
import pathlib, resource, sys
from stalloc.core.files import write_whole
resource.setrlimit(resource.RLIMIT_FSIZE, (64, 64))
write_whole(pathlib.Path(sys.argv[1]), bytes(1000))
"""


def test_a_file_without_room_is_named_and_nothing_of_it_is_left(tmp_path: Path) -> None:
    done = run_python("-c", NO_ROOM, str(tmp_path / "file"))
    assert f"File too large: '{tmp_path / 'file'}'" in done.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "variable",
    ["STALLOC_LOG_LEVEL", "STALLOC_MEMORY_LIMIT", pytest.param("STALLOC_TRACE_FAST_MODE", marks=pytest.mark.slow)],
)
def test_a_variable_that_makes_no_sense_is_named(training: Training, variable: str) -> None:
    done = training.cold().try_run("Trace", *QUICK, **{variable: "sometimes"})
    assert done.code in (1, 2)
    assert variable in done.err
    assert "Traceback" not in done.err


def test_doctor_describes_the_real_libraries(build: Path) -> None:
    done = run_python("-m", "stalloc", "doctor", "--json", environment={"STALLOC_LIB_PATH": str(build)})
    facts = json.loads(done.out)["installed"]
    assert facts["adapter"]["error"] is None
    assert facts["adapter"]["fits_torch"] is True
    assert facts["libstalloc"]["error"] is None
    assert facts["libstalloc"]["version"] == facts["stalloc"]
    assert facts["planner"] == str(build / "stalloc-planner")


@pytest.mark.parametrize("command", ["plan", "dump", "pack", "check", "synth"])
def test_the_planners_help_ends_well(build: Path, command: str) -> None:
    done = run_python("-m", "stalloc", command, "--help", environment={"STALLOC_LIB_PATH": str(build)})
    assert done.code == 0, done.err
    assert command in done.out + done.err
