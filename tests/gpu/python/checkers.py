"""NVIDIA's compute-sanitizer around a program: the command, and what it found.

memcheck sees accesses outside of what the driver has mapped; a cache's blocks, ours or torch's, are one allocation to
it. racecheck sees hazards of a kernel's threads in shared memory.
"""

from __future__ import annotations

import dataclasses
import os
import re
import shutil
from pathlib import Path
from typing import Optional

TOOLS = ("memcheck", "racecheck")
_PREFIX = "========= "
_MEMCHECK_SUMMARY = re.compile(r"ERROR SUMMARY: (\d+) errors?")
_RACECHECK_SUMMARY = re.compile(r"RACECHECK SUMMARY: (\d+) hazards? displayed")
_ADDRESS = re.compile(r"0x[0-9a-f]+|\(\d+,\d+,\d+\)|\bhost frame.*", re.IGNORECASE)


@dataclasses.dataclass(frozen=True)
class Findings:
    """What one run of the tool reported."""

    count: int  # errors; hazards, with warnings
    kinds: frozenset[str]  # the findings' first lines and kernels, without addresses and threads


def compute_sanitizer() -> Optional[str]:
    """$COMPUTE_SANITIZER, else the one on the PATH, else that of the CUDA toolkit."""
    toolkit = os.environ.get("CUDA_HOME", "/usr/local/cuda")
    places = (os.environ.get("COMPUTE_SANITIZER"), "compute-sanitizer", f"{toolkit}/bin/compute-sanitizer")
    return next((found for place in places if place and (found := shutil.which(place))), None)


def command(sanitizer: str, tool: str, log: Path) -> list[str]:
    """What to put before a program's command.

    Errors of API calls are left out: torch and the adapter ask the driver what it can do by trying, and the tests make
    calls fail on purpose.
    """
    options = ["--tool", tool, "--report-api-errors", "no", "--target-processes", "application-only"]
    return [sanitizer, *options, "--log-file", str(log)]


def findings(tool: str, log: Path) -> Findings:
    """Reads what the tool wrote. AssertionError where it has no summary: the tool itself failed."""
    text = log.read_text(errors="replace") if log.exists() else ""
    pattern = _MEMCHECK_SUMMARY if tool == "memcheck" else _RACECHECK_SUMMARY
    summaries = pattern.findall(text)
    assert summaries, f"no summary from {tool}:\n{text[-2000:]}"
    return Findings(sum(int(count) for count in summaries), frozenset(_kinds(text)))


def _kinds(text: str) -> set[str]:
    """Each finding is a paragraph; the second line, where there is one, names the kernel."""
    kinds = set()
    for paragraph in re.split(rf"^{_PREFIX.rstrip()}\s*$", text, flags=re.MULTILINE):
        lines = [line.removeprefix(_PREFIX).strip() for line in paragraph.strip().splitlines()]
        lines = [line for line in lines if "SUMMARY" not in line and line != "COMPUTE-SANITIZER"]
        if lines:
            kinds.add(" | ".join(_ADDRESS.sub("", line).strip() for line in lines[:2]))
    return kinds
