"""NCCL over buffers of the arena, DDP and FSDP2, a rank a GPU: the numbers are those of plain torch, bit for bit."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable

import pytest
from adapter_process import Adapter
from gpu_process import MODES, RANKS, free_port

pytestmark = [pytest.mark.gpu, pytest.mark.two_gpus]

# With the least share of the requests that the plan serves. FSDP2 requests from several streams, whose order the host's
# timing decides in part.
CASES = [("collectives", 0.9), ("side_stream", 0.9), ("mem_pool", 0.9), ("ddp", 0.9), ("fsdp2", 0.5)]


def run(two_gpus: Adapter, case: str, *options: str, **settings: Any) -> list[dict[str, Any]]:
    """The case on all ranks at once, as torchrun starts them; the ranks' results."""
    port = str(free_port())

    def rank(number: int) -> dict[str, Any]:
        place = {"RANK": str(number), "LOCAL_RANK": str(number), "WORLD_SIZE": str(RANKS)}
        deterministic = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8", "NCCL_ALGO": "Ring", "NCCL_PROTO": "Simple"}
        result: dict[str, Any] = two_gpus.run(
            "distributed_cases.py",
            case,
            *options,
            MASTER_ADDR="127.0.0.1",
            MASTER_PORT=port,
            **place,
            **deterministic,
            **settings,
        ).result
        return result

    with ThreadPoolExecutor(RANKS) as pool:
        return list(pool.map(rank, range(RANKS)))


@pytest.mark.parametrize(("case", "hit_rate"), CASES)
def test_results_are_those_of_plain_torch(
    two_gpus: Adapter, case: str, hit_rate: float, record_property: Callable[[str, Any], None]
) -> None:
    native = run(two_gpus, case, mode=None)
    traced = run(two_gpus, case, "--install", **MODES["fast"])
    two_gpus.plan()
    served = run(two_gpus, case, "--install", **MODES["alloc"])
    for number in range(RANKS):
        assert traced[number]["results"] == native[number]["results"], number
        assert served[number]["results"] == native[number]["results"], number
        stats = served[number]["stats"]
        record_property(f"rank_{number}_steady", f"{stats['steady']['hits']} of {stats['steady']['requests']}")
        assert stats["degraded"] is None
        assert stats["unknown_frees"] == 0
        assert stats["steady"]["hits"] >= hit_rate * stats["steady"]["requests"] > 0, stats["misses"]


def test_collectives_run_over_an_exact_trace(two_gpus: Adapter) -> None:
    for result in run(two_gpus, "collectives", "--install", **MODES["exact"]):
        assert result["stats"]["heap_hits"] > 0
        assert result["stats"]["unknown_frees"] == 0


def test_buffers_of_an_arena_of_many_chunks_can_be_registered_with_nccl(
    two_gpus: Adapter, record_property: Callable[[str, Any], None]
) -> None:
    """torch registers what the allocator holds with NCCL, which it does not where segments are expandable."""
    settings = {
        "TORCH_NCCL_USE_TENSOR_REGISTER_ALLOCATOR_HOOK": "1",
        "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:False",
        "NCCL_DEBUG": "INFO",
        "NCCL_DEBUG_SUBSYS": "INIT,REG",
        "NCCL_DEBUG_FILE": str(two_gpus.directory / "nccl.%p.log"),
    }
    native = run(two_gpus, "collectives", mode=None, **settings)
    for log in two_gpus.directory.glob("nccl.*.log"):
        log.unlink()
    run(two_gpus, "collectives", "--install", **MODES["fast"])
    two_gpus.plan()
    served = run(two_gpus, "collectives", "--install", **MODES["alloc"], **settings)
    logs = [log.read_text(errors="replace") for log in two_gpus.directory.glob("nccl.*.log")]
    record_property("nccl_register_lines", sum("egister" in line for log in logs for line in log.splitlines()))
    for number in range(RANKS):
        assert served[number]["results"] == native[number]["results"], number
        stats = served[number]["stats"]
        record_property(f"rank_{number}_arena_bytes", stats["arena_bytes"])
        assert stats["degraded"] is None
        assert stats["planned_hits"] > 0
