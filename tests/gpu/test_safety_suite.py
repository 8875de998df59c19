"""What the safety suite passes on to its parts, without a GPU."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

from safety_suite import is_inherited


@pytest.mark.parametrize(
    ("variable", "inherited"),
    [("PATH", True), ("STALLOC_MODE", False), ("STALLOC_LIB_PATH", False), ("STALLOC_FRAMEWORKS_PATH", True)],
)
def test_a_suite_within_a_run_of_stalloc_is_not_one_but_finds_its_frameworks(variable: str, inherited: bool) -> None:
    assert is_inherited(variable) == inherited
