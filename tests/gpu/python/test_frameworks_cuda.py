"""transformers' Trainer, Lightning and DeepSpeed (ZeRO 1 and 3) on a GPU: trained from a plan as they are natively.

Each needs its package in this Python, or in the one that STALLOC_FRAMEWORKS_PYTHON names; STALLOC_FRAMEWORKS_PATH may
name a directory of packages. The scripts are those of tests/python/test_frameworks_real.py, with deterministic kernels.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Callable

import pytest

from test_frameworks_real import CASES, Framework

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(280)]

STEPS = 8


@pytest.mark.parametrize("name", ["trainer", "lightning", "deepspeed-1", "deepspeed-3"])
def test_a_framework_trains_from_its_plan_as_it_does_natively(
    name: str, library: Path, tmp_path: Path, record_property: Callable[[str, Any], None]
) -> None:
    package, script, ranks, environment = CASES[name]
    framework = Framework(library.parent, tmp_path, package, script, ranks, device="cuda", **environment)
    (plain,) = framework.train(None, STEPS)
    for mode in ("Torch", "Trace"):
        (ours,) = framework.train(mode, STEPS)
        assert (ours["losses"], ours["weights"]) == (plain["losses"], plain["weights"]), mode
    framework.plan()
    planned = framework.train("Alloc", STEPS)
    framework.record(name, planned)
    (served,) = planned
    assert served["losses"] == plain["losses"]
    assert served["weights"] == plain["weights"]
    figures = served["figures"]
    device = figures["devices"][0]
    record_property(f"{name}_steady", f"{figures['steady']['hits']} of {figures['steady']['requests']}")
    record_property(f"{name}_misses", str(device["misses"]))
    assert figures["degraded"] is None
    assert figures["unknown_frees"] == 0
    assert device["planned_hits"] > 100
    missed = sum(count for reason, count in device["misses"].items() if reason != "fenced")
    assert missed <= 0.02 * device["planned_hits"], device["misses"]
