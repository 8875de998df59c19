"""A small part of the divergence matrix (bench/divergence.py): equal losses, and the plan serves what is left."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from processes import ROOT, run

CASES = ["raised-in-backward"]
MORE = pytest.param(["resized", "dropped", "inserted-known-size"], marks=pytest.mark.slow)


@pytest.mark.parametrize("cases", [CASES, MORE], ids=" ".join)
def test_a_run_that_departs_from_its_plan_is_right_and_served_again_at_once(
    build: Path, tmp_path: Path, cases: list[str]
) -> None:
    output = tmp_path / "rows.json"
    bench = str(ROOT / "bench" / "divergence.py")
    command = [sys.executable, bench, "--models", "dense", "--cases", *cases, "--build", str(build)]
    done = run([*command, "--json", str(output), "--check"], cwd=tmp_path)
    assert done.code == 0, done.err
    rows: list[dict[str, Any]] = json.loads(output.read_text())["rows"]
    assert [row["case"] for row in rows] == cases
    for row in rows:
        assert row["equal"], row
        assert row["before"]["share"] == 1.0, row
        assert row["rest"]["expected"] > 500 or row["case"] == "raised-in-backward", row
        assert row["following"]["share"] >= 0.99, row
