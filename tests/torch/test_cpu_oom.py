"""Out of memory under a plan, on the CPU with a cap: what is given back, what the error and the report say."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from adapter_process import PROGRAMS, Adapter

GIB = 1 << 30
LIMIT = "4G"  # the arena takes three of them


@pytest.fixture(scope="module")
def traced(library: Path, tmp_path_factory: pytest.TempPathFactory) -> Adapter:
    adapter = Adapter(library, PROGRAMS, tmp_path_factory.mktemp("oom"))
    adapter.run("oom.py", "loop", STALLOC_TRACE_FAST_MODE="1")
    adapter.plan()
    return adapter


@pytest.fixture
def planned(traced: Adapter, adapter: Adapter) -> Adapter:
    """On a directory of its own, with the plan."""
    shutil.copytree(traced.directory / "output", adapter.directory / "output")
    return adapter


def run(adapter: Adapter, case: str, **variables: str) -> dict[str, Any]:
    """With slots alone, so that what the plan does not have is the native allocator's."""
    finished = adapter.run("oom.py", case, mode="Alloc", **({"STALLOC_DYNAMIC": "0"} | variables))
    result: dict[str, Any] = finished.result
    return result | {"err": finished.err}


@pytest.mark.every_torch
def test_idle_chunks_make_room_and_come_back_when_the_plan_needs_them(planned: Adapter) -> None:
    result = run(planned, "idle", STALLOC_MEMORY_LIMIT=LIMIT)
    assert 3 * GIB <= result["lent"] < 3.1 * GIB, "the whole arena"
    assert result["arena_times_lent"] == 1
    assert result["arena_lent_bytes"] == 0
    assert result["misses"]["unbacked"] == 0
    assert result["planned_hits"] >= 12
    assert not result["gave_up"]


def test_the_arenas_idle_room_is_used_before_memory_is_asked_for(planned: Adapter) -> None:
    result = run(planned, "idle", STALLOC_MEMORY_LIMIT=LIMIT, STALLOC_DYNAMIC="1")
    assert result["dynamic_hits"] >= 1
    assert result["lent"] == 0
    assert result["arena_times_lent"] == 0
    assert not result["gave_up"]


@pytest.mark.every_torch
def test_an_error_says_what_the_arena_holds_and_the_run_goes_on(planned: Adapter) -> None:
    result = run(planned, "too_large", STALLOC_MEMORY_LIMIT=LIMIT)
    assert "DefaultCPUAllocator: can't allocate memory" in result["message"]
    assert "the plan's arena holds" in result["message"]
    assert "this run requested 20.00 GiB, the plan expects 1.50 GiB next" in result["message"]
    assert "What to do: this run needs more than the traced one did" in result["message"]
    assert "STALLOC_OOM_REPORT=<directory>" in result["message"]
    assert result["intact"]
    assert result["planned_hits"] >= 10
    assert result["misses"]["unbacked"] == 0


def test_the_report_holds_what_was_alive(planned: Adapter) -> None:
    reports = planned.directory / "reports" / "new"
    result = run(planned, "too_large", STALLOC_MEMORY_LIMIT=LIMIT, STALLOC_OOM_REPORT=str(reports))
    files = list(reports.iterdir())
    assert len(files) == 1
    assert str(files[0]) in result["message"]
    assert re.fullmatch(r"rank00000\.pid\d+\.oom1\.json", files[0].name)
    report = json.loads(files[0].read_text())
    assert report["request"] == {"bytes": 20 * GIB, "stream": 0}
    assert report["device_memory"]["total"] == 4 * GIB
    assert report["plan"]["in_sync"]
    assert report["plan"]["expected_bytes"] == 3 * GIB // 2
    arena = [block for block in report["live_blocks"] if block["from"] == "arena"]
    assert [block["requested"] for block in arena if block["requested"] > GIB] == [3 * GIB // 2]
    assert all(block["entries"] for block in arena)
    assert report["live_blocks_omitted"] == 0
    assert report["figures"]["planned_hits"] >= 7
    kinds = {event["event"] for event in report["events"]}
    assert kinds == {"allocated", "freed", "mark", "out_of_memory"}
    times = [event["us"] for event in report["events"]]
    assert times == sorted(times, reverse=True)


def test_no_report_is_written_without_a_failure(planned: Adapter) -> None:
    reports = planned.directory / "reports"
    run(planned, "idle", STALLOC_MEMORY_LIMIT=LIMIT, STALLOC_OOM_REPORT=str(reports))
    assert list(reports.iterdir()) == []


def test_an_arena_that_does_not_fit_is_a_warning_with_both_figures(planned: Adapter) -> None:
    result = run(planned, "half", STALLOC_MEMORY_LIMIT="2G")
    assert re.search(r"needed 3\.00 GiB, free \d\.\d\d GiB of 2\.00 GiB", result["degraded"])
    assert result["degraded"] in result["err"]
    assert "the run goes on unplanned" in result["err"]
    assert result["planned_hits"] == 0
