"""The CUDA adapter on a GPU: every memory function of torch works in every mode, and data stays right.

The cases are functions of programs/cuda_cases.py, which assert what each is about.
"""

from __future__ import annotations

import pytest
from adapter_process import Adapter
from gpu_process import MODES, ModedAdapter

pytestmark = pytest.mark.gpu

CASES = [
    "snapshot",
    "profiler",
    "gpu_trace",
    "deleters",
    "record_stream",
    "capture",
    "graph_gone",
    "mempool",
    "out_of_memory",
    pytest.param("fraction", marks=pytest.mark.whole_gpu),
    pytest.param("empty_cache", marks=pytest.mark.whole_gpu),
]


@pytest.mark.parametrize("case", CASES)
def test_case_holds_with_blocks_of_ours_alive(moded: ModedAdapter, case: str) -> None:
    result = moded.case(case)
    assert result["served"] == (moded.name != "fast"), "the case must have met our memory"


def test_a_mempool_is_planned_and_keeps_what_was_shown_of_it(moded: ModedAdapter) -> None:
    result = moded.case("mempool_planned")
    assert result["served"] == (moded.name != "fast")
    assert result["in_pool"] == result["afterwards"] == (moded.name == "alloc")


def test_statistics_count_both_parts_and_have_the_native_keys(moded: ModedAdapter) -> None:
    result = moded.case("statistics")
    assert result["served"] == (moded.name != "fast")
    assert result["keys"] == moded.case("native_keys")["keys"]


@pytest.mark.parametrize("case", ["raw", "cudnn_benchmark"])
def test_case_holds(moded: ModedAdapter, case: str) -> None:
    moded.case(case)


@pytest.mark.parametrize("case", ["uncached", "checkpoint"])
def test_no_free_goes_astray(moded: ModedAdapter, case: str) -> None:
    assert moded.case(case)["unknown_frees"] == 0


def test_threads_on_streams_of_their_own_keep_their_data(moded: ModedAdapter) -> None:
    assert moded.case("threads") == {"wrong": [], "unknown_frees": 0}


def test_an_uncached_process_is_left_to_the_native_allocator(moded: ModedAdapter) -> None:
    assert moded.case("always_uncached", PYTORCH_NO_CUDA_MEMORY_CACHING="1") == {"served": False}


@pytest.mark.two_gpus
def test_copies_between_devices_are_right(moded: ModedAdapter) -> None:
    result = moded.case("peers")
    if "skipped" in result:
        pytest.skip(str(result["skipped"]))


def test_installing_after_cuda_is_in_use_is_refused(adapter: Adapter) -> None:
    result = adapter.run("cuda_cases.py", "too_late", **MODES["fast"]).result
    assert "Can't swap an already initialized allocator" in result["error"]
    assert "before" in result["error"]


@pytest.mark.parametrize("kind", ["mlp", "transformer", "recompute"])
def test_training_is_bit_equal_in_every_mode(adapter: Adapter, kind: str) -> None:
    adapter.programs = adapter.programs.parents[2] / "torch" / "programs"
    deterministic = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
    common = (kind, "--device", "cuda", "--steps", "12")
    native = adapter.run("train.py", *common, mode=None, **deterministic).result
    for name, settings in MODES.items():
        if name == "alloc":
            adapter.plan()
        ours = adapter.run("train.py", *common, "--install", **settings, **deterministic).result
        assert ours["losses"] == native["losses"], name
        assert ours["weights"] == native["weights"], name
    assert ours["stats"]["steady"]["hits"] >= 0.999 * ours["stats"]["steady"]["requests"] > 100
