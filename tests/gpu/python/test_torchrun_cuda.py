"""A GPT trained the way the README says, a rank a GPU: torchrun, the package, its marks; a trace and a plan a rank."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Callable

import pytest
from adapter_process import ROOT, Adapter
from gpu_process import PROGRAMS, RANKS, free_port

pytestmark = [pytest.mark.gpu, pytest.mark.two_gpus]


def torchrun(two_gpus: Adapter, kind: str, mode: str) -> list[dict[str, Any]]:
    """What each rank left behind."""
    results = two_gpus.directory / f"results_{mode}"
    results.mkdir()
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("STALLOC_", "PYTHON"))}
    environment |= {
        "PYTHONPATH": os.pathsep.join([str(ROOT / "patches"), str(ROOT / "bench")]),
        "STALLOC_LIB_PATH": str(two_gpus.library.parent),
        "STALLOC_MODE": mode,
        "STALLOC_MODEL_INFO_PATH": str(two_gpus.directory),
        "STALLOC_TRACE_FAST_MODE": "1",
        "STALLOC_STRICT": "1",
        "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
        "NCCL_ALGO": "Ring",
        "NCCL_PROTO": "Simple",
        "OMP_NUM_THREADS": "2",
    }
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(RANKS)]
    command += ["--master-port", str(free_port()), "-m", "stalloc", "run"]
    command += [str(PROGRAMS / "torchrun_training.py"), kind, str(results)]
    done = subprocess.run(
        command, env=environment, cwd=results, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return [json.loads(Path(results / f"{rank}.json").read_text()) for rank in range(RANKS)]


# FSDP2 requests from several streams, whose order the host's timing decides in part.
@pytest.mark.parametrize(("kind", "hit_rate"), [("ddp", 0.9), ("fsdp2", 0.5)])
def test_losses_are_those_of_torch_mode(
    two_gpus: Adapter, kind: str, hit_rate: float, record_property: Callable[[str, Any], None]
) -> None:
    native = torchrun(two_gpus, kind, "Torch")
    traced = torchrun(two_gpus, kind, "Trace")
    two_gpus.plan()
    served = torchrun(two_gpus, kind, "Alloc")
    for rank in range(RANKS):
        stats = served[rank]["stats"]
        record_property(f"rank_{rank}_steady", f"{stats['steady']['hits']} of {stats['steady']['requests']}")
        record_property(f"rank_{rank}_efficiency", stats["efficiency"])
        assert traced[rank]["losses"] == native[rank]["losses"]
        assert served[rank]["losses"] == native[rank]["losses"]
        assert stats["degraded"] is None
        assert stats["unknown_frees"] == 0
        assert stats["steady"]["hits"] >= hit_rate * stats["steady"]["requests"] > 0, stats["misses"]
