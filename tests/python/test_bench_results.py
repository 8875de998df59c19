"""bench/results: what is there is cited by name in README, docs/ or a README of bench/, and what is cited is there."""

from __future__ import annotations

import re
import subprocess

import pytest

from processes import ROOT

RESULTS = ROOT / "bench" / "results"
MOST = 40
_NAME = re.compile(r"((?:cpu|h100|h200)-\d{4}-\d\d-\d\d(?:-[a-z]+)?)/([\w.-]+\.(?:json|md))")


def cited() -> set[str]:
    """FOLDER/NAME, by all pages."""
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "bench").rglob("README.md")]
    return {f"{folder}/{name}" for page in pages for folder, name in _NAME.findall(page.read_text())}


def kept() -> set[str]:
    words = ["git", "ls-files", "bench/results"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0 or not done.stdout:
        pytest.skip("no checkout")
    return {name.removeprefix("bench/results/") for name in done.stdout.split()}


def test_all_results_are_cited_and_all_that_are_cited_are_there() -> None:
    there = kept()
    assert sorted(there - cited()) == [], "results that nothing cites"
    assert sorted(cited() - there) == [], "citations of results that are not there"
    assert len(there) <= MOST
