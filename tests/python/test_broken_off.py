"""A trace that was broken off: every command says so, where, and what its figures then mean."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from processes import Finished, Training, run_python

WHERE = "trace/rank00000.trace ends inside the chunk that starts at byte "
MEANING = "Figures are of these events alone: the run's peak is at least as high"


@pytest.fixture(scope="module")
def broken(planned: Training, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A planned run of which the trace lost its end, planned again from what is left; with the run's own summary."""
    directory = tmp_path_factory.mktemp("broken") / "run"
    shutil.copytree(planned.info, directory)
    trace = directory / "trace" / "rank00000.trace"
    trace.write_bytes(trace.read_bytes()[:-200])
    return directory


def command(build: Path, *words: str) -> Finished:
    return run_python("-m", "stalloc", *words, environment={"STALLOC_LIB_PATH": str(build)})


def expect_told(done: Finished, name: str, meaning: str = MEANING) -> None:
    assert done.code == 0, done.err
    told = [line for line in done.err.splitlines() if line.startswith(f"stalloc {name}: warning: ")]
    assert any(WHERE in line and meaning in line for line in told), done.err


@pytest.mark.parametrize(
    "words",
    [
        ["report", "--md"],
        ["report", "--json"],
        ["report", "--leaks"],
        ["advise"],
        ["advise", "--json"],
        ["whatif", "--memory=80G"],
        ["plan"],
    ],
)
def test_what_reads_a_broken_trace_says_where_it_ends(words: list[str], broken: Path, build: Path) -> None:
    expect_told(command(build, words[0], str(broken), *words[1:]), words[0])


def test_a_choice_from_a_broken_trace_is_of_what_is_left(broken: Path, build: Path) -> None:
    done = command(build, "fit", str(broken), "--memory=1T", "--keep-micro-batch", "--json")
    expect_told(done, "fit", "The choice holds for these events alone")
    assert WHERE in json.loads(done.out)["truncation"]


def test_a_comparison_names_which_of_both_is_broken(broken: Path, planned: Training, build: Path) -> None:
    done = command(build, "diff", str(planned.info), str(broken))
    expect_told(done, "diff")
    assert done.err.count("warning") == 1


def test_the_report_says_it_first(broken: Path, build: Path) -> None:
    told = command(build, "report", str(broken), "--md").out
    assert f"{MEANING}." in told.partition("| class |")[0]
    page = Path(command(build, "report", str(broken)).out.strip())
    assert MEANING in page.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["status", "summary"])
def test_what_a_run_held_is_its_own_and_what_is_saved_is_of_the_trace(name: str, broken: Path, build: Path) -> None:
    assert command(build, "plan", str(broken)).code == 0
    expect_told(command(build, name, str(broken)), name)


def test_a_whole_trace_is_no_reason_for_a_warning(planned: Training, build: Path) -> None:
    for words in (["advise"], ["report", "--md"], ["status"]):
        assert command(build, words[0], str(planned.info), *words[1:]).err == ""
