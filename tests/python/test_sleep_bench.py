"""The measurements of sleep and wake at toy sizes on the CPU: they run, and what must hold holds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from processes import ROOT, run_python

BENCH = ROOT / "bench" / "sleep"


def measured(build: Path, tmp_path: Path, what: str, *arguments: str) -> dict[str, Any]:
    output = tmp_path / "result.json"
    run_python(
        *(str(BENCH / "measure.py"), what, "--device", "cpu", *arguments, "--json", str(output)),
        environment={"STALLOC_LIB_PATH": str(build), "OMP_NUM_THREADS": "1"},
    ).good()
    result: dict[str, Any] = json.loads(output.read_text())
    return result


def test_cycles_change_nothing(build: Path, tmp_path: Path) -> None:
    result = measured(build, tmp_path, "cycles", "--cycles", "4", "--layers", "3")
    assert result["losses_are_equal"]
    assert result["weights_are_equal"]
    assert not result["grows"], result["grown_bytes"]
    assert all(row["asleep"]["device"] == 0 for row in result["rows"])


def test_a_hand_over_loses_nothing(build: Path, tmp_path: Path) -> None:
    result = measured(build, tmp_path, "handover", "--gigabytes", "0.02")
    assert result["whole"]
    for row in result["rounds"]:
        assert row["sleep"]["devices"][0]["arena_bytes"] == 0
        assert row["sleep"]["memory"]["device"] == 0
        assert row["others_had_bytes"] > 0.02e9 * 0.9


@pytest.mark.slow  # the trainer and the others' memory are tried above
def test_two_processes_take_turns(build: Path, tmp_path: Path) -> None:
    result = measured(
        build, tmp_path, "turns", "--trainer-gb", "0.02", "--generator-gb", "0.02", "--turns", "2", "--tokens", "4"
    )
    assert result["answers_are_equal"]
    assert len(result["turns"]) == 2
    assert 0 < result["median_share"] < 1
