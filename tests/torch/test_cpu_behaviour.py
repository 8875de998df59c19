"""What programs do with CPU tensors besides training, under the adapter."""

from __future__ import annotations

import pytest
from adapter_process import Adapter

MIB = 1 << 20
EXACT, FAST = "0", "1"  # STALLOC_TRACE_FAST_MODE: the allocator is ours, or torch's own with a recorder


def first_of(quick: str, slow: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("fast", [quick, pytest.param(slow, marks=pytest.mark.slow)])


@pytest.mark.every_torch
@first_of(EXACT, FAST)
def test_data_loader_workers_read_the_parents_tensors_and_write_to_their_own(adapter: Adapter, fast: str) -> None:
    result = adapter.run("behaviour.py", "dataloader", STALLOC_TRACE_FAST_MODE=fast).result
    assert result == {"wrong": 0, "scratch": 0.0, "unknown_frees": 0}


@first_of(EXACT, FAST)
def test_a_forked_child_is_on_its_own(adapter: Adapter, fast: str) -> None:
    result = adapter.run("behaviour.py", "fork", STALLOC_TRACE_FAST_MODE=fast).result
    assert result["child"] == 0
    assert result["kept"], "the child's writes must not show in the parent"
    assert result["requests_of_child_in_parent"] <= 2
    assert result["more"] == MIB
    summary = adapter.summary()
    assert summary["trace"]["write_error"] is None
    assert summary["trace"]["unpaired"] == 0


def test_blocks_pass_between_threads_with_their_contents(adapter: Adapter) -> None:
    result = adapter.run("behaviour.py", "threads").result
    assert result == {"wrong": [], "unknown_frees": 0}


def test_numpy_shares_memory_both_ways(adapter: Adapter) -> None:
    result = adapter.run("behaviour.py", "numpy_interop").result
    count = 50_000
    assert result["view"] == result["copied"] == count * (count - 1) / 2 + count
    assert result["array"] == pytest.approx(100_000 * 99_999, rel=1e-6)
    assert result["address"] == 0, "torch promises 64-byte alignment"


@pytest.mark.every_torch
def test_storages_grow_are_shared_and_copied_on_write(adapter: Adapter) -> None:
    result = adapter.run("behaviour.py", "storages").result
    assert result["other"] == [5, 6, 7, 8, 9]
    assert result["lazy"] == [6, 7, 8, 9, 10]
    assert result["storage"] == 3000
    assert result["shared"] == 499_500
    assert result["empty"] == [0, 0.0]
    assert result["unknown_frees"] == 0


def test_models_are_saved_loaded_and_copied(adapter: Adapter) -> None:
    assert adapter.run("behaviour.py", "pickling").result == {"loaded": True, "copied": True}


@pytest.mark.every_torch
@first_of(FAST, EXACT)
def test_the_profiler_sees_the_same_memory_as_under_plain_torch(adapter: Adapter, fast: str) -> None:
    result = adapter.run("behaviour.py", "profiler", STALLOC_TRACE_FAST_MODE=fast).result
    assert 3 * MIB in result["sizes"]
    assert -3 * MIB in result["sizes"]


def test_an_exact_trace_holds_what_fits_alive_and_reports_what_does_not(adapter: Adapter) -> None:
    result = adapter.run("behaviour.py", "cap", STALLOC_MEMORY_LIMIT="160M").result
    assert result["intact"]
    assert result["large"] == [200, 200]
    assert f"you tried to allocate {200 * MIB} bytes" in result["error"]
    assert str(160 * MIB) in result["error"]
    assert result["again"] == 5


def test_failing_operations_leave_no_memory_behind(adapter: Adapter) -> None:
    result = adapter.run("behaviour.py", "exceptions").result
    assert result["failures"] == 20
    assert result["left"] <= 4096


@pytest.mark.every_torch
@first_of(EXACT, FAST)
def test_a_process_ends_cleanly_with_live_tensors_and_threads(adapter: Adapter, fast: str) -> None:
    finished = adapter.run("behaviour.py", "exit_with_live_tensors", STALLOC_TRACE_FAST_MODE=fast)
    assert finished.result == {"sum": MIB}
    assert finished.err == ""
    assert adapter.summary()["peak_live_bytes"] >= 4 * MIB
