"""What checkers.py reads from compute-sanitizer's logs; no GPU is needed."""

from __future__ import annotations

from pathlib import Path

import checkers
import pytest

WRITE = """========= Invalid __global__ write of size 1 bytes
=========     at stray+0x{offset}
=========     by thread ({thread},0,0) in block (0,0,0)
=========     Access to 0x7f{offset}000 is out of bounds
=========     Saved host backtrace up to driver entry point at kernel launch time
=========         Host Frame: main [0x{offset}]
=========
"""
HAZARD = """========= Error: Race reported between Write access at race+0x70 in x.cu:5
=========     and Read access at race+0x90 in x.cu:6 [96 hazards]
=========
"""


def read(tmp_path: Path, tool: str, text: str) -> checkers.Findings:
    log = tmp_path / "log"
    log.write_text("========= COMPUTE-SANITIZER\n" + text)
    return checkers.findings(tool, log)


def test_a_clean_run_has_no_findings(tmp_path: Path) -> None:
    assert read(tmp_path, "memcheck", "========= ERROR SUMMARY: 0 errors\n") == checkers.Findings(0, frozenset())
    summary = "========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)\n"
    assert read(tmp_path, "racecheck", summary) == checkers.Findings(0, frozenset())


def test_findings_at_other_addresses_and_threads_are_of_one_kind(tmp_path: Path) -> None:
    text = (
        WRITE.format(offset="50", thread=0)
        + WRITE.format(offset="60", thread=7)
        + "========= ERROR SUMMARY: 2 errors\n"
    )
    found = read(tmp_path, "memcheck", text)
    assert found == checkers.Findings(2, frozenset({"Invalid __global__ write of size 1 bytes | at stray+"}))


def test_hazards_are_counted_with_warnings(tmp_path: Path) -> None:
    text = HAZARD + "========= RACECHECK SUMMARY: 1 hazard displayed (0 errors, 1 warning)\n"
    found = read(tmp_path, "racecheck", text)
    assert found.count == 1
    (kind,) = found.kinds
    assert kind.startswith("Error: Race reported between Write access at race+ in x.cu:5")


def test_a_log_without_a_summary_is_no_clean_run(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="no summary from memcheck"):
        read(tmp_path, "memcheck", "========= Error: Device not supported\n")
    with pytest.raises(AssertionError, match="no summary"):
        checkers.findings("racecheck", tmp_path / "missing")
