"""Real training on the CPU: whatever the adapter does, losses and weights are those of plain torch, bit for bit."""

from __future__ import annotations

from typing import Any

import pytest
from adapter_process import Adapter

KINDS = ["mlp", "transformer", "recompute"]


def trained(adapter: Adapter, *arguments: str, mode: str | None = "Trace", **variables: str) -> dict[str, Any]:
    result: dict[str, Any] = adapter.run("train.py", *arguments, mode=mode, **variables).result
    return result


def same(left: dict[str, Any], right: dict[str, Any]) -> bool:
    return left["losses"] == right["losses"] and left["weights"] == right["weights"]


@pytest.mark.parametrize("fast", ["0", "1"], ids=["exact", "fast"])
@pytest.mark.parametrize("kind", KINDS)
def test_tracing_changes_no_bit_and_sees_every_request(adapter: Adapter, kind: str, fast: str) -> None:
    plain = trained(adapter, kind, mode=None)
    traced = trained(adapter, kind, "--install", STALLOC_TRACE_FAST_MODE=fast)
    assert same(plain, traced)
    stats = traced["stats"]
    assert stats["requests"] > 200
    assert stats["heap_hits" if fast == "0" else "upstream"] == stats["requests"]
    assert stats["unknown_frees"] == 0
    assert stats["trace"]["events"] > stats["requests"]
    summary = adapter.summary()
    assert summary["requests"] >= stats["requests"]
    assert summary["peak_live_bytes"] > 0


@pytest.mark.parametrize("kind", KINDS)
def test_a_planned_run_changes_no_bit_and_is_served_from_the_arena(adapter: Adapter, kind: str) -> None:
    plain = trained(adapter, kind, "--steps", "20", mode=None)
    trained(adapter, kind, "--install", "--steps", "4")
    adapter.plan()
    planned = trained(adapter, kind, "--install", "--steps", "20", mode="Alloc")
    assert same(plain, planned)
    stats = planned["stats"]
    assert stats["degraded"] is None
    assert stats["steady"]["hits"] >= 0.999 * stats["steady"]["requests"] > 100
    assert stats["unknown_frees"] == 0


def test_a_run_that_diverges_from_its_plan_is_still_right(adapter: Adapter) -> None:
    plain = trained(adapter, "transformer", "--steps", "12", "--extra-from", "5", mode=None)
    trained(adapter, "transformer", "--install", "--steps", "4")
    adapter.plan()
    planned = trained(adapter, "transformer", "--install", "--steps", "12", "--extra-from", "5", mode="Alloc")
    assert same(plain, planned)
    stats = planned["stats"]
    assert stats["steady"]["hits"] >= 0.9 * stats["steady"]["requests"], "one extra request costs that request only"


def test_a_run_without_marks_is_right(adapter: Adapter) -> None:
    plain = trained(adapter, "mlp", mode=None)
    assert same(plain, trained(adapter, "mlp", "--install", "--no-marks"))
