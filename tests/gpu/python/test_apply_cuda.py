"""`stalloc.apply` on a GPU: what is recomputed draws the numbers it drew, what is offloaded comes back as it was."""

from __future__ import annotations

import pytest
from adapter_process import ROOT, Adapter

pytestmark = pytest.mark.gpu

SETTINGS = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8", "PYTHONPATH": str(ROOT / "patches")}


def check(adapter: Adapter, *words: str) -> None:
    found = adapter.run("apply_cases.py", *words, mode=None, **SETTINGS).result
    assert found
    assert not [name for name, right in found.items() if not right], found


@pytest.mark.parametrize("case", ["recompute", "compiled", "offload", "overlap", "bus", "optimizer_state"])
def test_the_changed_model_trains_as_the_model_did(adapter: Adapter, case: str) -> None:
    check(adapter, case)


@pytest.mark.two_gpus
@pytest.mark.parametrize("case", ["several_devices", "optimizer_state"])
def test_on_two_devices(two_gpus: Adapter, case: str) -> None:
    check(two_gpus, case, "cuda:0", "cuda:1")
