"""bench/estimates: which programs there are, and what is made of their peaks. Their libraries are not needed here."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from processes import ROOT

pytest.importorskip("torch")
sys.path.insert(0, str(ROOT / "bench" / "estimates"))

import estimates

ROWS: list[dict[str, Any]] = [
    {"program": "a", "assumed": "int=1", "fake": {"peak_live_bytes": 99 << 20}, "real": {"peak_live_bytes": 100 << 20}},
    {"program": "b", "assumed": None, "fake": {"peak_live_bytes": 103 << 20}, "real": {"peak_live_bytes": 100 << 20}},
    {"program": "c", "assumed": None, "fake": {"why": "no fake kernel"}, "real": {"peak_live_bytes": 1 << 20}},
]


def test_twenty_models_of_five_libraries() -> None:
    libraries = [name.split()[0] for name in estimates.PROGRAMS]
    assert len(libraries) == 20
    assert set(libraries) == {"timm", "torchvision", "transformers", "diffusers", "torch_geometric"}
    assert set(estimates.ASSUMED) <= set(estimates.PROGRAMS)


def test_what_is_refused_is_counted_and_has_no_error() -> None:
    found = estimates.summary(ROWS)
    assert (found["programs"], found["refused"]) == (3, 1)
    assert found["median_error"] == pytest.approx(0.02)
    assert found["worst_error"] == pytest.approx(0.03)
    lines = estimates.table(ROWS, True).splitlines()
    assert "99.00" in lines[2]
    assert "-1.00 %" in lines[2]
    assert "refused: no fake kernel" in lines[4]


def test_rows_of_programs_that_are_not_run_again_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "found.json"
    file.write_text(json.dumps({"rows": [{"program": "timm resnet18"}, {"program": "b"}]}))
    monkeypatch.setattr(sys, "argv", ["estimates.py", "--json", str(file), "timm resnet18"])
    assert estimates.kept(estimates.parse_arguments()) == [{"program": "b"}]
    monkeypatch.setattr(sys, "argv", ["estimates.py", "--json", str(file)])
    assert estimates.kept(estimates.parse_arguments()) == []
