"""What bench/paired_steps.py makes of step times, and how several of bench/megatron/paired.py share GPUs."""

from __future__ import annotations

import importlib
import random
import sys
import threading
from functools import partial
from pathlib import Path
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


def test_rounds_do_not_see_who_goes_first(paired_steps: ModuleType) -> None:
    # Whoever goes second takes a tenth longer; the modes are equally fast, and so are they in rounds.
    native = [1.0, 1.1] * 8
    alloc = [1.1, 1.0] * 8
    row = paired_steps.compare({"native": native, "alloc": alloc}, warm_up=1)["alloc"]
    assert row["quartiles"][1] - row["quartiles"][0] > 0.1
    assert row["median_round_ratio"] == pytest.approx(1.0)
    assert row["median_round_interval"] == pytest.approx([1.0, 1.0])
    assert paired_steps.round_sums([1.0, 2.0, 3.0, 4.0, 5.0], 2) == [3.0, 7.0], "no half of a round"


def test_in_a_round_each_mode_has_each_place_once(paired_steps: ModuleType) -> None:
    order: list[str] = []

    def step(mode: str) -> float:
        order.append(mode)
        return float(len(order))

    modes = ["native", "native-again", "alloc"]
    seconds = paired_steps.take_turns({mode: partial(step, mode) for mode in modes}, 3)
    rounds = [order[i : i + 3] for i in range(0, 9, 3)]
    assert all(sorted(places) == sorted(modes) for places in zip(*rounds))
    assert [sum(own) for own in seconds.values()] == [1 + 6 + 8, 2 + 4 + 9, 3 + 5 + 7]


def test_megatron_pairs_with_one_lock_train_one_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "bench" / "megatron"))
    alone = importlib.import_module("paired").alone
    trains = threading.Event()

    def other() -> None:
        with alone(tmp_path / "lock"):
            trains.set()

    waiting = threading.Thread(target=other)
    with alone(tmp_path / "lock"), alone(tmp_path / "another"), alone(None):
        waiting.start()
        assert not trains.wait(0.3)
    assert trains.wait(60)
    waiting.join()


def test_autos_steps_before_and_after_its_plan_are_told_apart(paired_steps: ModuleType) -> None:
    seconds = {"native": [1.0] * 8, "auto": [9.0, 1.2, 1.2, 1.2, 3.0, 0.8, 0.9, 0.8]}
    stages = [{"stage": "tracing", "iterations": 0}, {"stage": "planned", "iteration": 4}]
    parts = paired_steps.parts_of_auto(seconds, 1, stages)
    assert parts["switch_seconds"] == 3.0
    assert (parts["before"]["median_ratio"], parts["after"]["median_ratio"]) == (1.2, 0.8)
    assert paired_steps.parts_of_auto(seconds, 1, stages[:1]) == {"iteration": None}
