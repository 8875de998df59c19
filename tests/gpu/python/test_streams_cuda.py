"""Reuse across streams on a GPU: delayed kernels find out whether anybody gets bytes too early.

That such cases can fail, tests/gpu/engine shows on a device, and tests/engine/stream_order_test.cc without one.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from adapter_process import Adapter
from gpu_process import MODES, PROGRAMS

pytestmark = pytest.mark.gpu
PROGRAM = "stream_cases.py"


@pytest.mark.parametrize("case", ["planned", "diverging", "recorded", "unrecorded"])
def test_bytes_that_change_streams_keep_what_was_written_last(looped: Adapter, case: str) -> None:
    result = looped.run(PROGRAM, case, **MODES["alloc"]).result
    assert result["shared"], "the plan must have put the blocks into the same bytes, or nothing was shown"
    assert result["hits"] >= 12
    assert result["waits"] > 0
    assert result["unknown_frees"] == 0


@pytest.mark.parametrize("dynamic", ["0", "1"])
def test_blocks_that_the_plan_does_not_know_keep_theirs_beside_planned_ones(looped: Adapter, dynamic: str) -> None:
    result = looped.run(PROGRAM, "fallback", **MODES["alloc"], STALLOC_DYNAMIC=dynamic).result
    assert result["hits"] >= 12
    assert (result["dynamic_hits"] > 0) == (dynamic == "1"), "else the native allocator has them"
    assert result["unknown_frees"] == 0


def test_bytes_change_streams_after_a_capture(looped: Adapter) -> None:
    result = looped.run(PROGRAM, "capture", **MODES["alloc"]).result
    assert result["hits"] >= 12
    assert result["unknown_frees"] == 0


@pytest.mark.two_gpus
def test_streams_of_another_device_are_waited_for(looped: Adapter) -> None:
    result = looped.run(PROGRAM, "peers", **MODES["alloc"]).result
    if "skipped" in result:
        pytest.skip(str(result["skipped"]))
    assert result["shared"], "the plan must have put the blocks into the same bytes, or nothing was shown"
    assert result["hits"] >= 12
    assert result["waits"] > 0
    assert result["unknown_frees"] == 0


@pytest.mark.parametrize("sanitizer", [False, True])
def test_training_with_a_side_stream_is_bit_equal_and_clean(library: Path, tmp_path: Path, sanitizer: bool) -> None:
    adapter = Adapter(library, PROGRAMS, tmp_path)
    variables = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"} | ({"TORCH_CUDA_SANITIZER": "1"} if sanitizer else {})
    runs = {"native": adapter.run("side_stream_training.py", "12", mode=None, **variables)}
    runs["fast"] = adapter.run("side_stream_training.py", "12", "--install", **MODES["fast"], **variables)
    assert runs["fast"].code == 0, runs["fast"].err
    adapter.plan()
    runs["alloc"] = adapter.run("side_stream_training.py", "12", "--install", **MODES["alloc"], **variables)
    for name, run in runs.items():
        assert run.result["losses"] == runs["native"].result["losses"], name
        assert "CSAN detected" not in run.err, run.err
    stats = runs["alloc"].result["stats"]
    assert stats["steady"]["hits"] >= 0.99 * stats["steady"]["requests"] > 0
