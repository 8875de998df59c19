"""bench/worth: the search for the fastest configuration that fits, over a made-up card; and the toy programs."""

from __future__ import annotations

import json
import sys
from typing import Optional

import pytest

from processes import ROOT, run_with_torch

sys.path.insert(0, str(ROOT / "bench" / "worth"))

from search import Attempt, Outcome, best_of, search

WORTH = ROOT / "bench" / "worth"
CARD = 1000
EACH = 60  # bytes of a sequence; 100 are there in any case


def proposed(assumed: int) -> Optional[int]:
    """The largest batch that a prediction would take for so many bytes."""
    return (assumed - 100) // EACH or None if assumed > 100 else None


def trainer(waste: float) -> tuple[list[int], object]:
    tried: list[int] = []

    def attempt(batch: int) -> Outcome:
        tried.append(batch)
        held = round((100 + EACH * batch) * waste)
        return Outcome(held <= CARD, float(batch), held)

    return tried, attempt


def largest(waste: float) -> int:
    return max(batch for batch in range(1, 20) if round((100 + EACH * batch) * waste) <= CARD)


@pytest.mark.parametrize("waste", [1.0, 1.05, 1.12, 0.97])
def test_the_largest_that_fits_is_found_within_few_attempts(waste: float) -> None:
    tried, attempt = trainer(waste)
    best = best_of(search(CARD, proposed, attempt, most=5))  # type: ignore[arg-type]
    assert best is not None
    assert best.configuration == largest(waste)
    assert len(tried) <= 5
    assert len(set(tried)) == len(tried), "nothing is tried twice"


def test_nothing_fits_where_the_card_is_too_small() -> None:
    tried, attempt = trainer(20)
    assert best_of(search(CARD, proposed, attempt)) is None  # type: ignore[arg-type]
    assert len(tried) == 4
    assert search(50, proposed, attempt) == []  # type: ignore[arg-type]


def test_room_that_is_left_is_tried_once_more() -> None:
    tried, attempt = trainer(0.9)
    best = best_of(search(CARD, proposed, attempt, most=6))  # type: ignore[arg-type]
    assert best is not None
    assert best.configuration > proposed(CARD)  # type: ignore[operator]
    assert tried[0] == proposed(CARD)


def test_the_longest_is_the_largest_however_slow() -> None:
    attempts = [
        Attempt(900, 3, Outcome(True, 9.0)),
        Attempt(1000, 4, Outcome(True, 5.0)),
        Attempt(1100, 5, Outcome(False)),
    ]
    fastest, longest = best_of(attempts), best_of(attempts, longest=True)
    assert fastest is not None
    assert longest is not None
    assert (fastest.configuration, longest.configuration) == (3, 4)


@pytest.mark.parametrize("program", ["fsdp2-packed", "lora", "trainer", "experts", "rollout", "long"])
def test_toy_programs_train(program: str) -> None:
    if program == "trainer":
        pytest.importorskip("transformers")
    words = [program, "--size", "toy", "--micro-batch", "2", "--steps", "2", "--device", "cpu"]
    done = run_with_torch(str(WORTH / "train.py"), *words)
    assert done.code == 0, done.err
    result = json.loads(done.out.splitlines()[-1].removeprefix("RESULT "))
    assert len(result["seconds"]) == 2
    assert all(count > 0 for count in result["tokens"])
