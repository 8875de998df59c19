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


def test_a_replicas_plan_serves_the_gpu_of_this_rank_and_no_other(two_gpus: Adapter) -> None:
    """Rank 0 traces on the first GPU; rank 1 is served from its plan on the second, and also uses the first."""
    two_gpus.run("replica_case.py", "0", **MODES["fast"], RANK="0", WORLD_SIZE="2", LOCAL_RANK="0")
    two_gpus.plan()
    ranks = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "STALLOC_PLAN_RANK": "0", "STALLOC_STRICT": "1"}
    run = two_gpus.run("replica_case.py", "1", "0", **MODES["alloc"], **ranks)
    by_device = {device["device"]: device for device in run.result["devices"]}
    assert by_device[1]["arena_bytes"] > 0
    assert by_device[1]["planned_hits"] >= 15, by_device[1]["misses"]
    assert by_device[0]["arena_bytes"] == 0
    assert run.result["degraded"] is None
    assert "serves another device; what is allocated on this one is not planned" in run.err
    assert "device: plan cuda:1, this run cuda:0" in run.err


@pytest.fixture
def planned_peers(two_gpus: Adapter) -> Adapter:
    """With the plan of peer_release_cases.py's loop."""
    assert two_gpus.run("peer_release_cases.py", "loop", **MODES["fast"]).result["of_other"] == {}
    two_gpus.plan()
    return two_gpus


@pytest.mark.parametrize("case", ["emptied", "moved", "asleep", "loop"])
def test_what_the_other_device_still_reads_stays(
    planned_peers: Adapter, case: str, record_property: Callable[[str, Any], None]
) -> None:
    moves = {"STALLOC_TEST_MOVES": "1"} if case == "moved" else {}
    stats = planned_peers.run("peer_release_cases.py", case, **MODES["alloc"], **moves).result["stats"]
    device = next(device for device in stats["devices"] if device["device"] == 0)
    record_property("figures", str({key: device[key] for key in device if key.startswith("arena_")}))
    assert device["planned_hits"] > 0, device["misses"]
    assert device["unknown_frees"] == 0
    if case == "emptied":
        assert device["arena_times_lent"] > 0, "the block's memory went back once it had been read"


def test_what_the_other_device_still_reads_stays_in_an_exact_traces_heap(two_gpus: Adapter) -> None:
    stats = two_gpus.run("peer_release_cases.py", "traced", **MODES["exact"]).result["stats"]
    assert all(device["unknown_frees"] == 0 for device in stats["devices"])
    assert next(device for device in stats["devices"] if device["device"] == 0)["heap_hits"] > 0


def test_what_is_asked_for_on_another_devices_stream_is_the_native_allocators(planned_peers: Adapter) -> None:
    result = planned_peers.run("peer_release_cases.py", "allocated", **MODES["alloc"]).result
    assert result["of_other"]["planned_hits"] == result["of_other"]["dynamic_hits"] == 0
    assert all(device["unknown_frees"] == 0 for device in result["stats"]["devices"])
