"""Lines for the user: which severity is printed, of which rank, and where nothing may follow."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from processes import FakeProcess, Finished, Training, clean_environment, run_python
from stalloc.core import alike as _alike
from stalloc.core import log

LEVELS = ("debug", "info", "warning", "error", "off")
SAYS_ALL = """
from stalloc.core import log
for say in (log.debug, log.info, log.figures, log.warning, log.error, log.fatal):
    say(say.__name__)
"""


def said(level: str, **environment: str) -> list[str]:
    done = run_python("-c", SAYS_ALL, environment={"STALLOC_LOG_LEVEL": level, **environment}).good()
    return [line.split()[-1] for line in done.err.splitlines()]


ALL = ["debug", "info", "figures", "warning", "error", "fatal"]
OF_LEVEL = {
    "debug": ALL,
    "0": ALL,
    "": ALL[1:],
    "3": ALL[1:],
    "info": ALL[1:],
    "no level": ALL[1:],
    "Warning": ALL[3:],
    "error": ALL[4:],
    "off": ALL[5:],
}


@pytest.mark.parametrize("level", OF_LEVEL)
def test_a_level_prints_itself_and_what_is_worse_and_always_why_a_program_ends(level: str) -> None:
    assert said(level) == OF_LEVEL[level]


def test_what_a_run_came_to_is_rank_0s_to_say() -> None:
    assert "info" in said("info", RANK="0")
    assert said("info", RANK="1") == ["figures", "warning", "error", "fatal"]
    assert said("debug", RANK="1") == ALL


def test_after_the_last_word_there_is_none(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "_silent", False)
    log.error("before")
    log.silence()
    log.error("after")
    assert capsys.readouterr().err == "[stalloc] rank 0 error: before\n"


# Ranks ---------------------------------------------------------------------------------------------------------------

RANK = """
import os, sys
from stalloc.core import log
rank = int(os.environ["RANK"])
sys.stdin.readline()
log.info("has a plan")
log.warning(f"/runs/rank{rank:05d}.plan: {10 + rank} requests differ")
if rank == 5:
    log.warning("its own trouble")
log.warning(f"/runs/rank{rank:05d}.plan: {10 + rank} requests differ")
print("said", flush=True)
sys.stdin.readline()
"""


def launch(ranks: int, **environment: str) -> list[str]:
    """What they print, all alive at once."""
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", RANK],
            env=clean_environment({"RANK": str(rank), "WORLD_SIZE": str(ranks), **environment}),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(ranks)
    ]
    for step in ("says", "ends"):
        for process in processes:
            assert process.stdin is not None
            process.stdin.write(f"{step}\n")
            process.stdin.flush()
        if step == "says":
            assert [process.stdout.readline() for process in processes if process.stdout] == ["said\n"] * ranks
    return [line for process in processes for line in process.communicate()[1].splitlines()]


def test_of_ranks_that_are_alike_one_warns_and_one_that_differs_speaks() -> None:
    lines = launch(8, MASTER_PORT="29511")
    assert [line for line in lines if "has a plan" in line] == ["[stalloc] rank 0 has a plan"]
    own = [line for line in lines if "its own trouble" in line]
    assert own == ["[stalloc] rank 5 warning: its own trouble"]
    alike = [line for line in lines if "requests differ" in line]
    assert len(set(alike)) == 1, "one rank's, which may say it again"
    assert len(lines) <= 4


def test_at_level_debug_every_rank_says_everything() -> None:
    assert len(launch(3, MASTER_PORT="29512", STALLOC_LOG_LEVEL="debug")) == 3 * 3


def test_another_launch_and_a_process_without_a_rank_speak_for_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_alike, "_ours", {})
    here = {"MASTER_ADDR": "host", "MASTER_PORT": "29513"}
    assert _alike.is_first("a warning", here)
    asks = "import sys; from stalloc.core import alike; print(alike.is_first(sys.argv[1], {'MASTER_ADDR': 'host', "
    asks += "'MASTER_PORT': sys.argv[2]}))"
    assert run_python("-c", asks, "a warning", "29513").out == "False\n"
    assert run_python("-c", asks, "a warning", "29514").out == "True\n"
    assert run_python("-c", asks, "another warning", "29513").out == "True\n"


def test_beyond_what_is_remembered_everybody_speaks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_alike, "_ours", {str(number): False for number in range(_alike._MOST)})
    assert _alike.is_first("one more", {})


# Where a run ends ----------------------------------------------------------------------------------------------------

ENDS = {
    "raise ValueError('a bug')": "ValueError: a bug",
    "raise KeyboardInterrupt": "KeyboardInterrupt",
    "import no_such_module": "ModuleNotFoundError: No module named 'no_such_module'",
}
TRAINS = """
import stalloc, torch
model = torch.nn.Linear(512, 512)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    model(torch.ones(64, 512)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


@pytest.mark.parametrize("mode", ["Trace", "Auto", pytest.param("Alloc", marks=pytest.mark.slow)])
@pytest.mark.parametrize("end", list(ENDS))
def test_nothing_is_printed_after_a_traceback(training: Training, mode: str, end: str) -> None:
    script = training.directory / "script.py"
    script.write_text(TRAINS + end)
    for start in (("-m", "stalloc", "run", str(script)), (str(script),)):
        done = training.start_plain(mode, *start)
        assert done.code != 0
        assert done.err.splitlines()[-1] == ENDS[end]


def test_ctrl_c_in_the_imports_ends_with_pythons_word(training: Training) -> None:
    script = training.directory / "script.py"
    script.write_text("import stalloc, torch\nweights = torch.ones(1 << 20)\nraise KeyboardInterrupt")
    done = training.start_plain("Auto", str(script))
    assert done.err.splitlines()[-1] == "KeyboardInterrupt"
    assert "step an optimizer" not in done.err


def test_an_exit_code_is_no_traceback(training: Training) -> None:
    script = training.directory / "script.py"
    script.write_text(TRAINS + "import sys; sys.exit(3)")
    done = training.start_plain("Trace", str(script))
    assert done.code == 3
    assert done.err.splitlines()[-1].startswith("[stalloc] rank 0 traced to ")


def of_stalloc(done: Finished) -> list[str]:
    return [line for line in done.err.splitlines() if "stalloc" in line]


def test_a_run_says_two_lines_of_a_line_s_length_and_none_where_it_is_quiet(training: Training) -> None:
    """Under each mode, and Auto's first and second start."""
    training.info = Path("run1")  # below the directory of the test, so that lines have the length of a user's
    iterations = ("--iterations", "12")
    runs = [training.try_run("Trace", *iterations)]
    assert training.start_plain(None, "-m", "stalloc", "plan", "run1").code == 0
    runs.append(training.try_run("Alloc", *iterations))
    training.info = Path("run2")
    runs += [training.try_run("Auto", *iterations, STALLOC_AUTO_WAIT="1") for _ in range(2)]
    for done in runs:
        assert 1 <= len(done.err.splitlines()) <= 2, done.err
        shown = done.err.replace(str(training.directory), "~/.cache/stalloc/runs")
        assert max(map(len, shown.splitlines())) <= 150, done.err
    for level in ("off", "error", "warning"):
        assert training.try_run("Auto", *iterations, STALLOC_LOG_LEVEL=level).err == ""


def test_ranks_that_are_alike_say_nothing_under_auto(training: Training) -> None:
    lines = []
    for rank in range(3):
        world = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "3", "MASTER_PORT": "29515"}
        done = training.try_run("Auto", "--iterations", "12", STALLOC_AUTO_WAIT="1", **world)
        lines += of_stalloc(done)
    assert [line.split(" ", 4)[:3] for line in lines] == [["[stalloc]", "rank", "0"]] * 2


def test_without_a_plan_the_last_line_says_so(training: Training) -> None:
    done = training.try_run("Alloc", "--iterations", "4")
    assert "no usable plan" in of_stalloc(done)[0]
    assert "no plan served this run: held " in of_stalloc(done)[-1]
    assert " E " not in of_stalloc(done)[-1]
    summary = run_python("-m", "stalloc", "summary", str(training.info)).out
    assert "steady requests" not in summary
    assert "no plan served this run" in summary


def test_a_trace_without_iterations_is_not_said_to_be_planned(training: Training) -> None:
    done = training.start_plain("Trace", "-c", "import stalloc, torch; torch.ones(1 << 20)")
    assert of_stalloc(done) == [
        "[stalloc] rank 0 has nothing to plan: no iteration was seen: step an optimizer of torch's, or call "
        "stalloc.iteration() in the loop"
    ]


def test_a_bad_level_is_named_whatever_else_is_quiet(fake: FakeProcess) -> None:
    done = fake.python("-c", "import stalloc", STALLOC_MODE="Alloc", STALLOC_LOG_LEVEL="quiet")
    text = "STALLOC_LOG_LEVEL must be one of debug, info, warning, error, off, or 0 to 3: 'quiet'"
    assert (done.code, done.err) == (2, f"[stalloc] rank 0 error: {text}\n")
