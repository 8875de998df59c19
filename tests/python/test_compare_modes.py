"""Figures of bench/compare_modes.py that need no run."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))

from compare_modes import add_device_efficiency, tell_device_efficiency

GIB = 1 << 30


def plan_with(graphs: Any) -> dict[str, Any]:
    return {"ranks": [{"report": {"devices": [{"graphs": graphs}]}}]}


def test_with_captured_graphs_each_mode_has_e_of_the_device(capsys: pytest.CaptureFixture[str]) -> None:
    rows: list[dict[str, Any]] = [
        {"mode": "native", "held_bytes": 4 * GIB},
        {"mode": "alloc", "held_bytes": 2 * GIB},
        {"mode": "expandable", "out_of_memory": "no memory"},
    ]
    add_device_efficiency(rows, plan_with({"needed_bytes": 3 * GIB}))
    assert [row.get("device_efficiency") for row in rows] == [0.75, 1.0, None]
    tell_device_efficiency(rows)
    assert capsys.readouterr().out == (
        "captured graphs: the device needs 3.000 GiB; E of the device: native 75.00 %, alloc 100.00 %\n"
    )


@pytest.mark.parametrize("plan", [None, plan_with(None)])
def test_without_graphs_there_is_none(plan: Any, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"mode": "native", "held_bytes": 4 * GIB}]
    add_device_efficiency(rows, plan)
    tell_device_efficiency(rows)
    assert (rows, capsys.readouterr().out) == ([{"mode": "native", "held_bytes": 4 * GIB}], "")
