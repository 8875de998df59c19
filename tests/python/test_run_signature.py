"""Which starts are of one plan, by what they request."""

from __future__ import annotations

import collections
import dataclasses
import json
import random
from collections.abc import Sequence
from typing import Any, Optional

import pytest

from stalloc.core.run_signature import Later, Phase, Signature

MIB = 1 << 20
WEIGHTS = [4 * MIB, 2 * MIB, 3 * MIB, MIB]


def counted(sizes: Sequence[int], growth: Optional[int] = None) -> dict[str, Any]:
    """As the library tells of a phase."""
    return {
        "requests": len(sizes),
        "bytes": sum(sizes),
        "growth": sum(sizes) if growth is None else growth,
        "order": f"{abs(hash(tuple(sizes))) % 16**16:016x}",
        "others": [0, 0],
        "sizes": [number for one in sorted(collections.Counter(sizes).items()) for number in one],
    }


def batch(rows: int) -> list[int]:
    """Of one iteration: activations, temporaries and gradients."""
    return [rows * 1024 * width for width in (64, 256, 256, 64, 512, 512)] * 4 + WEIGHTS


def state() -> list[int]:
    return [*WEIGHTS, *WEIGHTS]


def signature(
    iterations: Sequence[Sequence[int]], set_up: Sequence[int] = tuple(WEIGHTS), device: str = "cpu"
) -> Signature:
    fields = {"set_up": counted(set_up), "iterations": [counted(sizes) for sizes in iterations]}
    found = Signature.of_run(fields, len(iterations), device)
    assert found is not None
    return found


def fresh(rows: int, iterations: int = 6) -> Signature:
    return signature([batch(rows) + state(), *([batch(rows)] * (iterations - 1))])


def resumed(rows: int, iterations: int = 6) -> Signature:
    return signature([batch(rows)] * iterations, [*WEIGHTS, *WEIGHTS, *state(), *state()])


def test_the_same_run_is_told_by_its_first_iterations() -> None:
    assert fresh(6).begins_as(fresh(6, 1))
    assert fresh(6).fits(fresh(6, 2))
    assert fresh(6, 1).fits(fresh(6, 2))


@pytest.mark.parametrize("rows", [1, 2, 5, 7, 12, 60])
def test_another_batch_is_another_run(rows: int) -> None:
    assert not fresh(6).begins_as(fresh(rows, 1))
    assert not fresh(6).fits(fresh(rows, 2))


def test_a_resumed_start_and_one_from_scratch_are_of_one_plan() -> None:
    assert not fresh(6).begins_as(resumed(6, 1)), "which does not tell yet"
    assert fresh(6).fits(resumed(6, 2))
    assert resumed(6).fits(fresh(6, 2))
    assert not resumed(6).fits(fresh(8, 2))


def test_what_is_tuned_or_compiled_in_the_first_iteration_does_not_count() -> None:
    tuned = signature([batch(6) + state() + [128 * MIB] * 3, batch(6), batch(6)])
    assert not tuned.begins_as(fresh(6, 1))
    assert tuned.fits(fresh(6, 2))


def test_a_model_of_more_layers_or_other_widths_is_another_run() -> None:
    deeper = signature([batch(6) * 2 + state(), batch(6) * 2], [*WEIGHTS, *WEIGHTS])
    assert not fresh(6).fits(deeper)
    wider = signature([batch(6) + state(), batch(6)], [5 * size for size in WEIGHTS])
    assert not fresh(6).fits(wider)


def test_where_more_lives_at_a_time_it_is_another_run() -> None:
    fields = {
        "set_up": counted(WEIGHTS),
        "iterations": [counted(batch(60), sum(batch(60)) // 3), counted(batch(60), sum(batch(60)) // 3)],
    }
    kept = Signature.of_run(fields, 2, "cpu")
    assert kept is not None
    assert not signature([batch(60)] * 3).fits(kept)


def test_a_plan_of_another_device_is_not_its_own() -> None:
    assert not signature([batch(6)] * 2, device="H100").fits(signature([batch(6)] * 2, device="H200"))
    assert signature([batch(6)] * 2, device="").fits(signature([batch(6)] * 2, device="H200"))


def test_a_plan_for_other_changes_of_the_program_is_not_its_own() -> None:
    """However small a part of the requests they are."""
    plain = fresh(6)
    fitted = dataclasses.replace(plain, changes="7ee968984d1f")
    assert not plain.fits(fitted)
    assert not fitted.begins_as(plain)
    assert fitted.fits(Signature.read(fitted.written()))
    earlier = {name: value for name, value in plain.written().items() if name != "changes"}
    assert Signature.read(earlier).fits(plain), "a stalloc before --fit has written it"


def varying(seed: int, scale: int, iterations: int) -> Signature:
    lengths = random.Random(seed)

    def iteration() -> list[int]:
        return WEIGHTS + [scale * lengths.randrange(400, 1600) * 1024 for _ in range(40)]

    return signature([iteration() for _ in range(iterations)])


def test_sizes_that_follow_the_data_fit_other_data_and_no_larger_batch() -> None:
    plan = varying(1, 1, 6)
    for seed in range(2, 12):
        assert plan.fits(varying(seed, 1, 2))
        assert not plan.fits(varying(seed, 4, 2))


def test_a_part_that_follows_the_data_is_no_reason_to_take_another_batch() -> None:
    def experts(seed: int, rows: int, iterations: int) -> Signature:
        tokens = random.Random(seed)
        return signature(
            [batch(rows) + [tokens.randrange(100, 200) * 4096 for _ in range(8)] for _ in range(iterations)]
        )

    plan = experts(1, 24, 6)
    assert plan.later is not None
    assert 0.8 < plan.later.likeness < 0.98
    assert plan.fits(experts(2, 24, 2))
    assert not plan.fits(experts(2, 12, 2))


def test_iterations_of_several_kinds_are_all_its_own() -> None:
    accumulates = signature([batch(6), batch(6), batch(12), batch(6), batch(12), batch(6)])
    assert accumulates.later is not None
    assert len(accumulates.later.kinds) == 2
    assert accumulates.fits(signature([batch(12), batch(6)]))
    assert accumulates.fits(signature([batch(6) + state(), batch(12)]))
    assert not accumulates.fits(signature([batch(9), batch(9)]))


def test_a_program_whose_iterations_request_nothing_is_told_by_its_set_up() -> None:
    captured = signature([[], [], []])
    assert not captured.begins_as(signature([[]]))
    assert captured.fits(signature([[], []]))
    assert not captured.fits(fresh(6, 2))
    assert not captured.fits(signature([[], []], [11 * MIB]))


def test_of_two_that_fit_the_one_with_the_same_order_is_nearer() -> None:
    run = signature([batch(6)])
    assert signature([batch(6)] * 2).likeness(run) > signature([batch(6)[::-1]] * 2).likeness(run)


def test_it_is_written_and_read(tmp_path: Any) -> None:
    for one in (fresh(6), fresh(6, 1), varying(1, 1, 6)):
        assert Signature.read(json.loads(json.dumps(one.written()))) == one


@pytest.mark.parametrize(
    "wrong",
    [{}, {"version": 0}, [], {"version": 1, "device": "", "set_up": {}, "first": {}, "later": None}],
)
def test_what_is_no_signature_is_an_error(wrong: Any) -> None:
    with pytest.raises((ValueError, KeyError, TypeError)):
        Signature.read(wrong)


def test_nothing_is_told_before_an_iteration_is_over() -> None:
    assert Signature.of_run({}, 3, "") is None
    assert Signature.of_run({"set_up": counted([]), "iterations": [counted(batch(6))]}, 0, "") is None


def test_further_sizes_than_are_told_apart_count_as_shared() -> None:
    def phase(others: int) -> Phase:
        return Phase.read({**counted([MIB]), "bytes": MIB + others, "others": [2, others]})

    assert phase(MIB).likeness(phase(MIB)) == 1
    assert phase(0).likeness(phase(MIB)) == 0.5
    assert Later.of([phase(MIB)]).best(phase(MIB)) == 1
