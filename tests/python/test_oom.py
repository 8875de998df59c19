"""`stalloc oom`, on a report as the library writes it (tests/torch/test_cpu_oom.py makes real ones)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from stalloc import cli

MIB = 1 << 20
REPORT: dict[str, Any] = {
    "report": "stalloc out of memory",
    "version": 1,
    "rank": 3,
    "pid": 4711,
    "device": 0,
    "request": {"bytes": 77 * MIB, "stream": 9},
    "device_memory": {"free": 4 * MIB, "total": 80 * MIB},
    "figures": {
        "requests": 3,
        "planned_hits": 2,
        "misses": {"unplanned": 0, "unknown_size": 1},
        "live_bytes": 5 * MIB,
        "peak_live_bytes": 6 * MIB,
        "arena_live_bytes": MIB,
        "upstream_reserved_bytes": 20 * MIB,
    },
    "plan": {
        "arena_mapped_bytes": 4 * MIB,
        "arena_planned_bytes": 4 * MIB,
        "iterations": 7,
        "script": 1,
        "entry": 1,
        "entries": 2,
        "in_sync": True,
        "expected_bytes": MIB,
    },
    "live_blocks": [
        {"address": "0x100", "bytes": 512, "requested": 5, "stream": 0, "from": "upstream"},
        {
            "address": "0x200",
            "bytes": MIB,
            "requested": MIB,
            "stream": 0,
            "from": "arena",
            "pending": True,
            "candidates": 9,
            "entries": [[0, 4], [1, 7]],
        },
    ],
    "live_blocks_omitted": 0,
    "events": [
        {"us": 20, "event": "mark", "mark": "iteration", "edge": "begin"},
        {"us": 10, "event": "allocated", "address": "0x100", "bytes": 5, "stream": 0, "from": "upstream", "miss": "x"},
        {"us": 0, "event": "out_of_memory", "bytes": 77 * MIB, "stream": 9},
    ],
}


def shown(report: dict[str, Any], directory: Path, capsys: pytest.CaptureFixture[str], *options: str) -> str:
    file = directory / "report.json"
    file.write_text(json.dumps(report))
    assert cli.main(["oom", str(file), *options]) == 0
    return capsys.readouterr().out


def test_shows_request_plan_blocks_and_events(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(REPORT, tmp_path, capsys)
    assert "rank 3, device 0, process 4711" in text
    assert "77.00 MiB on stream 0x9" in text
    assert "4.00 MiB free of 80.00 MiB" in text
    assert "2 of 3 requests served; missed: unknown_size 1\n" in text
    assert "iteration 7, script 1, request 1 of 2, in step, expects 1.00 MiB next" in text
    assert "2 live blocks, 1.00 MiB" in text
    assert "0x200  arena plan 0:4 1:7...; freed, in use by another stream" in text
    assert text.index("0x200") < text.index("0x100"), "the largest first"
    assert "iteration begin" in text
    assert "upstream (miss: x)" in text


def test_shows_as_much_as_is_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(REPORT, tmp_path, capsys, "--blocks", "1", "--events", "0")
    assert "0x100" not in text
    assert "iteration begin" not in text


def test_an_unplanned_run_has_no_plan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(REPORT | {"plan": None, "device_memory": None}, tmp_path, capsys)
    assert "arena  " not in text


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("{", "Expecting"),
        ("[]", "expected a report"),
        ("{}", "expected a report"),
        (json.dumps(REPORT | {"version": 2}), "expected version 1, found 2"),
    ],
)
def test_another_file_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str, why: str) -> None:
    file = tmp_path / "report.json"
    file.write_text(content)
    assert cli.main(["oom", str(file)]) == 1
    error = capsys.readouterr().err
    assert str(file) in error
    assert why in error


def test_a_missing_file_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["oom", str(tmp_path / "none.json")]) == 1
    assert "No such file" in capsys.readouterr().err
