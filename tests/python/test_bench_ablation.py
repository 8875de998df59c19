"""bench/plan_quality/ablation.py: the table of what a pass is worth."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from processes import ROOT

SCRIPT = ROOT / "bench" / "plan_quality" / "ablation.py"


def _part(path: Path, limit: float, rows: list[dict[str, object]]) -> Path:
    path.write_text(json.dumps({"date": "2026-01-01", "time_limit_s": limit, "command_line": "x", "results": rows}))
    return path


def _plan(without: str, height: int, scatter: float) -> dict[str, object]:
    row = {"instance": "plan/b", "without": without, "load_bound": 100, "height": height, "seconds": 2}
    return {**row, "held": height + 4, "live": 90, "hand_overs": height // 10, "scatter": scatter}


def test_the_table_compares_each_pass_with_the_whole_portfolio(tmp_path: Path) -> None:
    packings = [
        {"instance": name, "without": without, "load_bound": 100, "height": height, "seconds": 1}
        for name, without, height in [("a", "", 100), ("a", "rings", 101), ("c", "", 100), ("c", "rings", 103)]
    ]
    parts = [
        _part(tmp_path / "1.json", 2, packings),
        _part(tmp_path / "2.json", 5, [_plan("", 100, 0.5), _plan("rings", 100, 0.5), _plan("sink", 110, 0.75)]),
    ]
    words = [sys.executable, str(SCRIPT), *map(str, parts), "--json", str(tmp_path / "whole.json")]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in done.stdout.splitlines()]
    assert cells[0][:4] == ["without", "packings", "plans", "held"]
    assert cells[2] == ["rings", "2.000 (3.000 c)", "0.000", "0.000", "+0", "+0.00", "4 -> 4"]
    assert cells[3] == ["sink", "-", "10.000 (10.000 b)", "9.615 (9.615 b)", "+1", "+25.00", "2 -> 2"]
    whole = json.loads((tmp_path / "whole.json").read_text())
    assert [row["time_limit_s"] for row in whole["results"]] == [2, 2, 2, 2, 5, 5, 5]
    words = [sys.executable, str(SCRIPT), str(tmp_path / "whole.json")]
    again = subprocess.run(words, capture_output=True, text=True, check=True)
    assert again.stdout == done.stdout
