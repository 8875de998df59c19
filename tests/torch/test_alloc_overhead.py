"""bench/alloc_overhead.py runs where there is no GPU, and its planned requests are planned ones."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from adapter_process import ROOT


def test_planned_requests_are_served_and_others_are_not(library: Path, tmp_path: Path) -> None:
    timer = library.with_name("libstalloc_allocation_times.so")
    if not timer.exists():
        pytest.skip(f"built without benchmarks: no {timer.name} beside the adapter")
    output = tmp_path / "overhead.json"
    command = [sys.executable, str(ROOT / "bench" / "alloc_overhead.py"), "--device", "cpu", "--library", str(timer)]
    command += ["--allocators", "native", "planned", "fallback", "--threads", "2", "--blocks", "8", "--rounds", "12"]
    environment = os.environ | {"STALLOC_LIB_PATH": str(library.parent), "PYTHONPATH": str(ROOT / "patches")}
    done = subprocess.run(
        [*command, "--json", str(output)], env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    native, planned, fallback = json.loads(output.read_text())["results"]
    assert planned["planned_hits"] == planned["requests"] == 2 * 8 * 12
    assert fallback["planned_hits"] == fallback["requests"] * 3 / 4
    for result in (native, planned, fallback):
        assert 0 < result["allocate"]["p50_ns"] <= result["allocate"]["p99_ns"]
