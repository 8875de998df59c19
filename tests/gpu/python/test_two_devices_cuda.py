"""Two GPUs in one process, a plan for each: bytes that go between their arenas, and a model spread over both."""

from __future__ import annotations

from typing import Any, Callable

import pytest
from adapter_process import Adapter
from gpu_process import MODES

pytestmark = [pytest.mark.gpu, pytest.mark.two_gpus]

DETERMINISTIC = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"}


@pytest.mark.parametrize("case", ["copies", "pipeline"])
def test_results_are_those_of_plain_torch(
    two_gpus: Adapter, case: str, record_property: Callable[[str, Any], None]
) -> None:
    native = two_gpus.run("two_device_cases.py", case, mode=None, **DETERMINISTIC).result
    traced = two_gpus.run("two_device_cases.py", case, "--install", **MODES["fast"], **DETERMINISTIC).result
    two_gpus.plan()
    served = two_gpus.run("two_device_cases.py", case, "--install", **MODES["alloc"], **DETERMINISTIC).result
    record_property("peer_access", all(native["peer"]))
    assert traced["results"] == native["results"]
    assert served["results"] == native["results"]
    devices = served["stats"]["devices"]
    assert len(devices) == 2
    for number, device in enumerate(devices):
        record_property(f"device_{number}_hits", f"{device['planned_hits']} of {device['requests']}")
        assert device["arena_bytes"] > 0, number
        assert device["planned_hits"] >= 0.8 * device["requests"] > 0, (number, device["misses"])
    assert served["stats"]["unknown_frees"] == 0
    assert served["stats"]["degraded"] is None


def test_bytes_go_between_heaps_of_an_exact_trace(two_gpus: Adapter) -> None:
    traced = two_gpus.run("two_device_cases.py", "copies", "--install", **MODES["exact"], **DETERMINISTIC).result
    assert all(device["heap_hits"] > 0 for device in traced["stats"]["devices"])
    assert traced["stats"]["unknown_frees"] == 0
