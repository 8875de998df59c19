"""Watched blocks (STALLOC_WATCH=1) on the CPU; tests/runtime/block_watch_test.cc has the rest."""

from __future__ import annotations

import json

import pytest

from processes import SCRIPTS, Training

pytest.importorskip("torch")


def test_a_write_beyond_the_end_is_found_and_the_run_goes_on(training: Training) -> None:
    """An exact trace has blocks of its own, and no plan is needed."""
    done = training.start_plain("Trace", "-m", "stalloc", "run", str(SCRIPTS / "watched.py"), STALLOC_WATCH="1").good()
    watched = json.loads(done.out)
    assert watched["findings"] == 1
    assert watched["tails"] >= 2
    (line,) = [line for line in done.err.splitlines() if "watch" in line]
    assert "a write beyond the end of the block of 1000 bytes" in line
    assert "its byte 1003 has 0x41, expected 0xff" in line
    assert training.summary()["watch"]["findings"] == 1


def test_a_planned_run_is_served_the_same_and_nothing_is_found(planned: Training) -> None:
    plain = planned.run("Alloc", "--iterations", "3")
    watched = planned.run("Alloc", "--iterations", "3", STALLOC_WATCH="1")
    assert watched["losses"] == plain["losses"]
    summary = planned.summary()
    assert summary["watch"]["findings"] == 0
    assert summary["watch"]["freed"] > 100
    assert summary["watch"]["unchecked"] == 0
    assert summary["steady"]["hits"] >= 0.99 * summary["steady"]["requests"] > 0
