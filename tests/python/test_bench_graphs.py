"""bench/graphs: the program trains on the CPU, where it captures nothing."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from processes import ROOT, run_with_torch

PROGRAM = ROOT / "bench" / "graphs" / "captured_micro_batches.py"
TOY = ["--layers=2", "--width=32", "--hidden=32", "--rows=2", "--length=16", "--micro-batches=2", "--evaluated-rows=1"]


@pytest.mark.parametrize("experts", ["0", "4"])
def test_it_trains_and_evaluates(experts: str, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    done = run_with_torch(
        str(PROGRAM), *TOY, "--steps=5", f"--experts={experts}", environment={"OMP_NUM_THREADS": "1"}, cwd=tmp_path
    ).good()
    line = json.loads(done.out)
    assert len(line["seconds"]) == 5
    assert len(line["losses"]) == 6, "five steps, and an evaluation after the fifth"
    assert all(math.isfinite(loss) for loss in line["losses"])
    assert line["losses"][4] < line["losses"][0] + 0.2, "near log(64), whatever the tokens are"
    assert line["tokens_a_second"] > 0
