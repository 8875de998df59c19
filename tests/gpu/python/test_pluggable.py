"""The torch-free library as torch.cuda's pluggable allocator: trace, plan and Alloc of a training run on a GPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from adapter_process import Adapter
from gpu_process import PROGRAMS


@pytest.fixture
def pluggable(library: Path, tmp_path: Path) -> Adapter:
    if not library.with_name("libstalloc.so").exists():
        pytest.skip("no libstalloc.so beside the adapter")
    return Adapter(library.with_name("libstalloc.so"), PROGRAMS, tmp_path)


def train(pluggable: Adapter, mode: str, steps: int, **variables: str) -> dict[str, Any]:
    done = pluggable.run("pluggable_training.py", str(pluggable.library), str(steps), mode=mode, **variables)
    result: dict[str, Any] = done.result
    return result


@pytest.mark.parametrize("fast", ["0", "1"])
def test_a_run_is_traced_planned_and_served(pluggable: Adapter, fast: str) -> None:
    native = pluggable.run("pluggable_training.py", "-", "12", mode=None).result["losses"]
    traced = train(pluggable, "Trace", 4, STALLOC_TRACE_FAST_MODE=fast)
    assert traced["losses"] == native[:4]
    pluggable.plan()
    served = train(pluggable, "Alloc", 12)
    assert served["losses"] == native
    assert served["stats"]["degraded"] is None
    assert served["stats"]["steady"]["hits"] >= 0.999 * served["stats"]["steady"]["requests"] > 0
