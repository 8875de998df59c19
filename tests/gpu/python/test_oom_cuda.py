"""Out of memory on a GPU: what the arena gives back, what the error, observers, history and the report say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from adapter_process import Adapter, Finished

pytestmark = [pytest.mark.gpu, pytest.mark.whole_gpu]

GIB = 1 << 30
PROGRAM = "memory_pressure.py"


def run(adapter: Adapter, case: str, **variables: str) -> Finished:
    return adapter.run(PROGRAM, case, mode="Alloc", **variables)


def result_of(adapter: Adapter, case: str, **variables: str) -> dict[str, Any]:
    result: dict[str, Any] = run(adapter, case, **variables).result
    return result


def test_idle_chunks_make_room_and_come_back(looped: Adapter) -> None:
    result = result_of(looped, "idle", STALLOC_DYNAMIC="0")  # with slots alone, the large request is the native one's
    assert result["arena"] >= 3 * GIB
    assert result["lent"] >= 3 * GIB, "the whole arena was idle"
    assert (result["observed"], result["oom_entries"], result["ooms"]) == (0, 0, 0)
    assert result["segment_free"] >= 1, "trackers hear of the arena's end"
    assert result["lent_after"] < GIB // 8, "but for what only the first iteration needs"
    assert result["hits_after"] >= 6
    assert result["unbacked"] == 0


def test_the_arenas_idle_room_is_used_before_chunks_go_back(looped: Adapter) -> None:
    result = result_of(looped, "idle")
    assert (result["lent"], result["observed"], result["ooms"]) == (0, 0, 0)
    assert result["dynamic"] >= 1
    assert result["reserved_after"] < 4 * GIB, "an emptied cache gives back what the arena grew by"
    assert result["hits_after"] >= 6


def test_chunks_that_cannot_be_mapped_again_are_misses(looped: Adapter) -> None:
    result = result_of(looped, "not_mapped", STALLOC_DYNAMIC="0")
    assert result["unbacked"] >= 2
    assert result["lent"] > 0
    assert result["unbacked_after"] == 0
    assert result["hits_after"] >= 4
    assert result["lent_after"] < GIB // 8, "but for what only the first iteration needs"


def test_an_error_that_stands_is_torchs_with_what_the_arena_holds(looped: Adapter) -> None:
    result = result_of(looped, "too_large")
    message = result["message"]
    assert message.startswith("CUDA out of memory. Tried to allocate ")
    assert "GPU 0 has a total capacity of" in message
    assert "stalloc: the plan's arena holds" in message
    assert "Plan: this run requested" in message
    assert "What to do: this run needs more than the traced one did" in message
    assert (result["observed"], result["oom_entries"], result["ooms"]) == (1, 1, 1)
    assert result["hits"] >= 12


def test_the_report_has_blocks_events_and_the_place_in_the_plan(looped: Adapter, tmp_path: Path) -> None:
    reports = tmp_path / "reports"
    message = result_of(looped, "too_large", STALLOC_OOM_REPORT=str(reports))["message"]
    (file,) = reports.iterdir()
    assert str(file) in message
    report = json.loads(file.read_text())
    assert report["device"] == 0
    assert report["device_memory"]["total"] > report["device_memory"]["free"] > 0
    assert report["plan"]["iterations"] == 3
    assert report["figures"]["planned_hits"] >= 6
    assert {event["event"] for event in report["events"]} >= {"allocated", "freed", "mark", "out_of_memory"}
    assert report["events"][-1]["event"] == "out_of_memory"


def test_a_mempool_gets_the_memory_that_lies_idle_in_the_arena(looped: Adapter) -> None:
    result = result_of(looped, "pool_open")
    assert result["beyond_free"] >= 2 * GIB
    assert result["hits_after"] >= 6


def test_a_fraction_set_before_the_first_allocation_holds(looped: Adapter) -> None:
    result = result_of(looped, "fraction_first")
    assert 7 * GIB < result["reserved"] <= 8.1 * GIB
    assert result["hits"] >= 10


def test_a_fraction_below_the_arena_is_a_warning_with_both_figures_and_holds(looped: Adapter) -> None:
    finished = run(looped, "fraction_below")
    assert finished.result["reserved"] < GIB, "the idle arena went back"
    assert finished.result["failed"]
    assert finished.result["hits_after"] >= 4
    assert "the plan's arena holds 3.0" in finished.err
    assert "allows 1.00 GiB" in finished.err


def test_an_arena_that_cannot_be_mapped_is_a_warning_and_an_unplanned_run(looped: Adapter) -> None:
    finished = run(looped, "crowded")
    stats = finished.result["stats"]
    assert "needed 3.0" in stats["degraded"]
    assert "free " in stats["degraded"]
    assert stats["degraded"] in finished.err
    assert "the run goes on unplanned" in finished.err
    assert stats["planned_hits"] == 0
    assert stats["upstream"] == stats["requests"]
    assert not finished.result["expandable"], "a run without an arena is left as the user set it"
