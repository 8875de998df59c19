"""NCCL over buffers of the arena, DDP and FSDP2 on two GPUs: the numbers are those of plain torch, bit for bit."""

from __future__ import annotations

import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from adapter_process import Adapter
from gpu_process import MODES, PROGRAMS

pytestmark = pytest.mark.gpu

RANKS = 2


@pytest.fixture
def ranks(library: Path, tmp_path: Path) -> Adapter:
    torch = pytest.importorskip("torch")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTORCH_NVML_BASED_CUDA_CHECK", "1")  # asking must not initialise CUDA in this process
        if torch.cuda.device_count() < RANKS:
            pytest.skip(f"needs {RANKS} GPUs")
    return Adapter(library, PROGRAMS, tmp_path)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def run(ranks: Adapter, case: str, *options: str, **settings: Any) -> list[dict[str, Any]]:
    """The case on all ranks at once, as torchrun starts them; the ranks' results."""
    port = str(free_port())

    def rank(number: int) -> dict[str, Any]:
        place = {"RANK": str(number), "LOCAL_RANK": str(number), "WORLD_SIZE": str(RANKS)}
        deterministic = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8", "NCCL_ALGO": "Ring", "NCCL_PROTO": "Simple"}
        result: dict[str, Any] = ranks.run(
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


# FSDP2 requests from several streams, whose order the host's timing decides in part.
@pytest.mark.parametrize(("case", "hit_rate"), [("collectives", 0.9), ("ddp", 0.9), ("fsdp2", 0.5)])
def test_results_are_those_of_plain_torch(ranks: Adapter, case: str, hit_rate: float) -> None:
    native = run(ranks, case, mode=None)
    traced = run(ranks, case, "--install", **MODES["fast"])
    ranks.plan()
    served = run(ranks, case, "--install", **MODES["alloc"])
    for number in range(RANKS):
        assert traced[number]["results"] == native[number]["results"], number
        assert served[number]["results"] == native[number]["results"], number
        stats = served[number]["stats"]
        assert stats["degraded"] is None
        assert stats["unknown_frees"] == 0
        assert stats["steady"]["hits"] >= hit_rate * stats["steady"]["requests"] > 0, stats["misses"]


def test_collectives_run_over_an_exact_trace(ranks: Adapter) -> None:
    for result in run(ranks, "collectives", "--install", **MODES["exact"]):
        assert result["stats"]["heap_hits"] > 0
        assert result["stats"]["unknown_frees"] == 0
