"""What training programs call around their tensors, with tensors of the arena (or an exact trace's) alive.

test_adapter_cuda.py has statistics' keys, the profiler, GPU trace callbacks, deleters, captures, MemPools, memory
fractions, empty_cache and uncached mode; test_ipc_cuda.py what is shared with another process; test_oom_cuda.py what
happens when memory runs out.
"""

from __future__ import annotations

from typing import Any

import pytest
from adapter_process import Adapter
from gpu_process import MODES, ModedAdapter

pytestmark = pytest.mark.gpu

PROGRAM = "torch_calls.py"
# What the plan has no slot for is the native allocator's, not the arena's.
SLOTS_ALONE = {"STALLOC_DYNAMIC": "0"}


def expect_served(moded: ModedAdapter, result: dict[str, Any]) -> None:
    assert result["served"] == (moded.name != "fast"), "the case must have met our memory"


@pytest.mark.parametrize("case", ["memory_viz", "consistent", "pinned"])
def test_case_holds_with_blocks_of_ours_alive(moded: ModedAdapter, case: str) -> None:
    expect_served(moded, moded.case(case, PROGRAM))


def test_a_free_is_complete_when_no_stream_uses_the_bytes(moded: ModedAdapter) -> None:
    result = moded.case("free_completed", PROGRAM)
    expect_served(moded, result)
    assert result["during"] == "free_requested"
    assert result["after"].count("free_requested") == result["after"].count("free_completed") > 0
    live = 0
    for action in result["after"]:
        live += {"alloc": 1, "free_completed": -1}.get(action, 0)
        assert live in (0, 1), "one block after the other"


@pytest.mark.two_gpus
def test_two_devices_in_one_process(moded: ModedAdapter) -> None:
    result = moded.case("devices", PROGRAM)
    if "skipped" in result:
        pytest.skip(str(result["skipped"]))
    assert result["unknown_frees"] == 0
    expect_served(moded, result)


def test_a_forked_child_gets_torchs_own_error(moded: ModedAdapter) -> None:
    result = moded.case("fork", PROGRAM)
    assert result["child"] == 0
    expect_served(moded, result)


def test_the_allocator_cannot_be_swapped_again(moded: ModedAdapter) -> None:
    result = moded.case("change_allocator", PROGRAM)
    if "skipped" in result:
        pytest.skip(str(result["skipped"]))
    assert "Can't swap an already initialized allocator" in result["message"]


def test_expandable_segments_come_with_an_arena(moded: ModedAdapter) -> None:
    result = moded.case("expandable", PROGRAM, **SLOTS_ALONE)
    assert result["settings"] == (moded.name == "alloc")
    assert result["segment"] == (moded.name != "fast"), "an exact trace's heap is an arena, next to PyTorch's allocator"


@pytest.mark.parametrize(
    ("given", "effective"),
    [
        ("max_split_size_mb:512", "max_split_size_mb:512,expandable_segments:True"),
        ("expandable_segments:False", "expandable_segments:False"),
    ],
)
def test_a_users_allocator_settings_stand(moded: ModedAdapter, given: str, effective: str) -> None:
    if moded.name != "alloc":
        pytest.skip("only an arena changes settings")
    result = moded.case("expandable", PROGRAM, PYTORCH_CUDA_ALLOC_CONF=given, **SLOTS_ALONE)
    assert result["conf"] == effective
    assert result["settings"] == result["segment"] == ("True" in effective)


def test_expandable_segments_are_left_alone_without_a_usable_plan(adapter: Adapter) -> None:
    finished = adapter.run(PROGRAM, "expandable", mode="Alloc")  # no plan in its directory
    assert "the run goes on unplanned" in finished.err
    assert finished.result == {"served": False, "settings": False, "segment": False, "conf": ""}


@pytest.mark.parametrize("case", ["exit_with_tensors", "exit_with_graphs"])
def test_a_process_ends_cleanly(moded: ModedAdapter, case: str) -> None:
    finished = moded.run(PROGRAM, case, **MODES[moded.name])
    expect_served(moded, finished.result)
    assert "terminate" not in finished.err
    assert "rror" not in finished.err, finished.err
    assert moded.summary()["requests"] > 0


def test_a_process_ends_while_threads_allocate(moded: ModedAdapter) -> None:
    finished = moded.run(PROGRAM, "exit_with_threads", **MODES[moded.name])
    if finished.code != 0 and moded.run(PROGRAM, "exit_with_threads", "--native", mode=None).code != 0:
        pytest.skip("a process that ends like this fails under the native allocator too")
    expect_served(moded, finished.result)
    assert "terminate" not in finished.err
