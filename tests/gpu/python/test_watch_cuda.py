"""Watched blocks (STALLOC_WATCH=1) on a GPU: planted faults are found, rightful programs are not disturbed."""

from __future__ import annotations

from typing import Any

import pytest
from adapter_process import Adapter, Finished
from gpu_process import MODES

pytestmark = pytest.mark.gpu
PROGRAM = "watch_cases.py"


def case(adapter: Adapter, name: str, mode: str = "alloc") -> tuple[dict[str, Any], Finished]:
    done = adapter.run(PROGRAM, name, **MODES[mode], STALLOC_WATCH="1")
    return done.result, done


def lines(done: Finished) -> list[str]:
    return [line for line in done.err.splitlines() if "watch:" in line]


@pytest.mark.parametrize("mode", list(MODES))
def test_a_rightful_run_has_no_findings(looped: Adapter, mode: str) -> None:
    result, done = case(looped, "clean", mode)
    assert (result["findings"], result["open"], lines(done)) == (0, 0, [])
    assert result["tails"] >= 5
    if mode == "alloc":
        assert result["planned_hits"] >= 8
        assert result["freed"] >= 6
        assert result["unchecked"] == 0


@pytest.mark.parametrize("mode", list(MODES))
def test_a_write_beyond_the_end_is_found_though_the_free_comes_first(looped: Adapter, mode: str) -> None:
    result, done = case(looped, "tail", mode)
    assert result["findings"] == 1
    (line,) = lines(done)
    assert "a write beyond the end of the block of 67108964 bytes" in line
    assert "its byte 67108969 has 0x41, expected 0xff" in line


def test_a_write_into_a_freed_block_is_found(looped: Adapter) -> None:
    result, done = case(looped, "freed")
    assert result["same"], "the plan must give the block its place again, or nothing was shown"
    assert result["findings"] == 1
    (line,) = lines(done)
    assert "byte 12345 of the block of 67108864 bytes" in line
    assert "has 0x42, expected 0xff" in line


def test_readers_after_the_free_see_nan(looped: Adapter) -> None:
    result, _ = case(looped, "nan")
    assert result["nan"]
    assert result["findings"] == 0


def test_what_another_stream_still_reads_is_not_filled(looped: Adapter) -> None:
    result, _ = case(looped, "streams")
    assert result["equal"]
    assert result["findings"] == 0
    assert result["unchecked"] >= 4


def test_captures_are_left_alone(looped: Adapter) -> None:
    result, _ = case(looped, "capture")
    assert result["sums"] == [5000.0, 5000.0]
    assert result["findings"] == 0
