"""Which operations use which blocks (STALLOC_TRACE_USES=1), and what is held without use."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from processes import SCRIPTS, Training, run, view_of
from stalloc import cli
from stalloc.tools.report import unused, wrappers

pytestmark = pytest.mark.usefixtures("real_libraries")

SCRIPT = str(SCRIPTS / "used_training.py")
KIB = 1 << 10
pytest.importorskip("torch")


def trace(training: Training, uses: str) -> str:
    """What the requests of the run were, as text."""
    variables = {"STALLOC_TRACE_USES": uses, "STALLOC_TRACE_STACKS": "1"}
    training.start_plain("Trace", "-m", "stalloc", "run", SCRIPT, "4", **variables).good()
    path = training.info / "trace" / "rank00000.trace"
    return run([str(training.build / "stalloc-planner"), "dump", str(path)]).good().out


@pytest.fixture(scope="module")
def used(build: Path, tmp_path_factory: pytest.TempPathFactory) -> Training:
    training = Training(build, tmp_path_factory.mktemp("used"))
    trace(training, "1")
    return training


@pytest.fixture(scope="module")
def rows(used: Training) -> list[dict[str, Any]]:
    path = used.info / "trace" / "rank00000.trace"
    view = view_of(used.build, path)
    wrappers.unwrap(view["devices"][0])
    return unused.rows(view, 0)


def of_size(rows: list[dict[str, Any]], kibibytes: int) -> list[dict[str, Any]]:
    return [row for row in rows if row["bytes"] == kibibytes * KIB]


def test_an_early_a_late_and_an_idle_block_are_told_apart(rows: list[dict[str, Any]]) -> None:
    def kinds(kibibytes: int) -> set[str]:
        return {row["kind"] for row in of_size(rows, kibibytes)}

    assert kinds(1000) == {"early"}
    assert {row["after"] for row in of_size(rows, 1000)} == {"aten::fill_"}
    assert kinds(1100) == {"late"}
    assert {row["before"] for row in of_size(rows, 1100)} == {"aten::zeros"}
    assert kinds(1200) == {"idle"}
    assert {row["after"] for row in of_size(rows, 1200)} == {"aten::add_"}
    assert kinds(1300) == {"late"}  # its shape is no use
    assert kinds(1400) == set()  # not judged
    assert all(row["call_site"].startswith("used_training.py:") for row in rows if row["bytes"] >= 1000 * KIB)
    assert all(row["events"] >= 120 for row in rows if row["bytes"] >= 1000 * KIB)  # what passes the time in between


def test_operations_of_the_backward_pass_on_its_own_thread_are_seen(used: Training) -> None:
    """No early block: without the fill in the backward pass the first use would not be known at all."""
    path = used.info / "trace" / "rank00000.trace"
    table = view_of(used.build, path)["devices"][0]["unused"]
    assert table["unseen_blocks"] == 4 * 2  # the 1400 KiB, and the empty_like: not those of the backward pass


def test_the_peak_is_what_it_would_be(used: Training, capsys: pytest.CaptureFixture[str]) -> None:
    """At the peak there are all five, the 700 KiB, and the empty_like; used later on are 1000 and 1200."""
    assert cli.main(["advise", str(used.info), "--json"]) == 0
    device = json.loads(capsys.readouterr().out)["devices"][0]
    assert 8000 * KIB <= device["peak_live_bytes"] < 8080 * KIB
    found = next(row for row in device["advice"] if row["what"].startswith("allocate every block at its first use"))
    assert found["saves_bytes"] == pytest.approx((700 + 1100 + 1300) * KIB, abs=40 * KIB)
    assert not any("late by the marks" in row["how_known"] for row in device["advice"])


def test_a_report_shows_them(used: Training, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["report", str(used.info), "--md"]) == 0
    told = capsys.readouterr().out
    assert "What is held without use" in told
    assert "every block allocated at its first use" in told
    assert "used_training.py:" in told


def test_recording_uses_changes_no_request(build: Path, tmp_path: Path, used: Training) -> None:
    other = Training(build, tmp_path)
    without = trace(other, "0")
    path = used.info / "trace" / "rank00000.trace"
    assert run([str(used.build / "stalloc-planner"), "dump", str(path)]).out == without
