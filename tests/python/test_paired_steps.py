"""What bench/paired_steps.py makes of step times."""

from __future__ import annotations

import importlib
import random
import sys
from types import ModuleType

import pytest

from processes import ROOT


@pytest.fixture(scope="module")
def paired_steps() -> ModuleType:
    sys.path.insert(0, str(ROOT / "bench"))
    try:
        return importlib.import_module("paired_steps")
    finally:
        sys.path.remove(str(ROOT / "bench"))


def test_the_interval_is_that_of_the_sign_test(paired_steps: ModuleType) -> None:
    # Tables of the sign test: with 20 values the 6th and the 15th, with 9 the 2nd and the 8th.
    assert paired_steps.median_interval([float(i) for i in range(1, 21)]) == [6.0, 15.0]
    assert paired_steps.median_interval([float(i) for i in range(9, 0, -1)]) == [2.0, 8.0]
    assert paired_steps.median_interval([3.0, 1.0, 2.0]) == [1.0, 3.0], "too few"


def test_the_interval_holds_the_true_median_as_often_as_it_says(paired_steps: ModuleType) -> None:
    numbers = random.Random(7)
    hit = 0
    for _ in range(1000):
        low, high = paired_steps.median_interval([numbers.expovariate(1.0) for _ in range(25)])
        hit += low <= 0.6931 <= high
    assert 940 <= hit <= 985


def test_ratios_are_those_of_the_same_iteration(paired_steps: ModuleType) -> None:
    native = [9.0, 1.0, 2.0, 4.0, 8.0]
    rows = paired_steps.compare({"native": native, "alloc": [1.0] + [1.1 * s for s in native[1:]]}, warm_up=1)
    assert rows["alloc"]["median_ratio"] == pytest.approx(1.1)
    assert rows["alloc"]["ratio_of_sums"] == pytest.approx(1.1)
    assert rows["native"]["median_interval"] == [1.0, 1.0]
