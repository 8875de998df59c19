"""Watched blocks (STALLOC_WATCH=1) on a GPU: planted faults are found, rightful programs are not disturbed."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from adapter_process import Adapter, Finished
from gpu_process import MODES, PROGRAMS

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def planned_watch(library: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the plan of watch_cases.py's loop."""
    adapter = Adapter(library, PROGRAMS, tmp_path_factory.mktemp("planned_watch"))
    assert adapter.run("watch_cases.py", "loop", **MODES["fast"]).result == {}
    adapter.plan()
    return adapter.directory


@pytest.fixture
def watched(library: Path, planned_watch: Path, tmp_path: Path) -> Adapter:
    shutil.copytree(planned_watch / "output", tmp_path / "output")
    return Adapter(library, PROGRAMS, tmp_path)


def case(adapter: Adapter, name: str, mode: str = "alloc") -> tuple[dict[str, Any], Finished]:
    done = adapter.run("watch_cases.py", name, **MODES[mode], STALLOC_WATCH="1")
    return done.result, done


def lines(done: Finished) -> list[str]:
    return [line for line in done.err.splitlines() if "watch:" in line]


@pytest.mark.parametrize("mode", list(MODES))
def test_a_rightful_run_has_no_findings(watched: Adapter, mode: str) -> None:
    result, done = case(watched, "clean", mode)
    assert (result["findings"], result["open"], lines(done)) == (0, 0, [])
    assert result["tails"] >= 5
    if mode == "alloc":
        assert result["planned_hits"] >= 8
        assert result["freed"] >= 6
        assert result["unchecked"] == 0


@pytest.mark.parametrize("mode", list(MODES))
def test_a_write_beyond_the_end_is_found_though_the_free_comes_first(watched: Adapter, mode: str) -> None:
    result, done = case(watched, "tail", mode)
    assert result["findings"] == 1
    (line,) = lines(done)
    assert "a write beyond the end of the block of 67108964 bytes" in line
    assert "its byte 67108969 has 0x41, expected 0xff" in line


def test_a_write_into_a_freed_block_is_found(watched: Adapter) -> None:
    result, done = case(watched, "freed")
    assert result["same"], "the plan must give the block its place again, or nothing was shown"
    assert result["findings"] == 1
    (line,) = lines(done)
    assert "byte 12345 of the block of 67108864 bytes" in line
    assert "has 0x42, expected 0xff" in line


def test_readers_after_the_free_see_nan(watched: Adapter) -> None:
    result, _ = case(watched, "nan")
    assert result["nan"]
    assert result["findings"] == 0


def test_what_another_stream_still_reads_is_not_filled(watched: Adapter) -> None:
    result, _ = case(watched, "streams")
    assert result["equal"]
    assert result["findings"] == 0
    assert result["unchecked"] >= 4


def test_captures_are_left_alone(watched: Adapter) -> None:
    result, _ = case(watched, "capture")
    assert result["sums"] == [5000.0, 5000.0]
    assert result["findings"] == 0
