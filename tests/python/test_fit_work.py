"""What a step has to do, and how long it takes: `stalloc.tools.fitting.work` and `step_model`, without a trace."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from stalloc.tools.fitting import choose, step_model, terms
from stalloc.tools.fitting.device_model import WatchedStep
from stalloc.tools.fitting.replayed import Change, Outcome, TracedRun
from stalloc.tools.fitting.step_model import FreeStep
from stalloc.tools.fitting.work import Lengths, Load, Work
from stalloc.train.marking.device_work import DeviceWork
from stalloc.train.marking.steps import FreeSteps

ROWS = (100, 10, 60, 40, 80, 20, 30, 50)  # of two steps of four


def alike(count: int, size: float) -> Load:
    """Micro-batches of one length, their sizes together."""
    return Load(count, size, size * size / count)


def work(**changed: Any) -> Work:
    return Work(traced=1, accumulation=2, rows=4, lengths=Lengths(ROWS, 100.0, **changed))


def test_a_micro_batch_is_padded_to_its_longest() -> None:
    assert work().largest(2) == pytest.approx(2.0), "whatever comes together, the longest may be in it"
    assert work(in_order=True).largest(2) == pytest.approx(2.0)
    assert work().load(1).size == pytest.approx(sum(ROWS) / 100 / 2), "nothing is padded"
    assert work().load(2).size == pytest.approx((200 + 120 + 160 + 100) / 100 / 2)
    assert work().load(4).size == pytest.approx((400 + 320) / 100 / 2)


def test_what_is_packed_has_no_padding() -> None:
    assert work(packed=True).largest(2) == pytest.approx(1.8), "the two longest of all"
    assert work(packed=True, in_order=True).largest(2) == pytest.approx(1.1)
    assert work(packed=True).load(2).size == work(packed=True).load(4).size == pytest.approx(sum(ROWS) / 100 / 2)


def test_what_comes_first_in_a_step_is_another_size_than_what_comes_behind_it() -> None:
    assert work(packed=True, in_order=True).largest_of_step(2) == pytest.approx((1.1, 1.0)), "100 + 10, 60 + 40"
    assert work(packed=True, in_order=True).largest_of_step(1) == pytest.approx((1.0, 0.6))
    assert work(packed=True, in_order=True).largest_of_step(4) == pytest.approx((2.1, 2.1)), "nothing is behind it"
    assert work(packed=True).largest_of_step(2) == pytest.approx((1.8, 1.8)), "any may come first"


def test_only_steps_that_are_asked_for_are_timed() -> None:
    timed = Work(traced=1, accumulation=2, rows=4, lengths=Lengths(ROWS, 100.0, timed=ROWS[4:]))
    assert timed.largest(1) == pytest.approx(1.0)
    assert timed.load(4).size == pytest.approx(3.2)


def test_rows_of_a_step_make_as_many_micro_batches_as_it_takes() -> None:
    twelve = Work(rows=12)
    assert twelve.sizes() == [1, 2, 3, 4, 6, 12]
    assert [twelve.count(size) for size in (1, 5, 12)] == [12, 3, 1]
    assert Work(rows=10).sizes() == [1, 2, 3, 4, 5, 10], "4, 4 and 2 are no more than 3 micro-batches"
    assert Work(rows=10, divides=True).sizes() == [1, 2, 5, 10]
    assert Work(traced=4, accumulation=2).sizes() is None
    assert Work(traced=4, accumulation=2).count(2) == 4


def test_steps_that_ran_untraced_tell_what_stays_and_what_grows() -> None:
    traced = step_model.from_traces(0.2, 2.0, 2, 1.4, 0.5)
    assert traced.seconds(alike(2, 2.0)) == pytest.approx(2.2)
    ran = [FreeStep(0.1 + 2 * 0.05 + 0.4 * size, 2, size) for size in (0.5, 0.9, 1.3, 2.0)]
    free = step_model.with_free_steps(traced, ran)
    for count, size in ((2, 1.0), (2, 4.0)):
        assert free.seconds(alike(count, size)) == pytest.approx(0.2 + 0.4 * size)
    # A recomputed layer keeps its share of the passes.
    share = 0.5 / 2.0
    assert free.seconds(alike(2, 2.0), growing_cost=0.5) - free.seconds(alike(2, 2.0)) == pytest.approx(
        free.passes(alike(2, 2.0)) * share
    )


def test_steps_of_one_size_tell_only_how_much_slower_tracing_is() -> None:
    traced = step_model.from_traces(0.2, 2.0, 2)
    free = step_model.with_free_steps(traced, [FreeStep(1.1, 2, 2.0)] * 3)
    assert free.seconds(alike(2, 2.0)) == pytest.approx(1.1)
    assert free.seconds(alike(4, 4.0)) == pytest.approx(2.1)


def test_time_grows_with_the_square_of_a_sequence_s_length() -> None:
    traced = step_model.from_traces(0.0, 0.4, 1, 0.2, 0.5)
    ran = [FreeStep(0.2 * size + 0.1 * size * size, 1, size) for size in (0.5, 0.5, 1.0)]
    free = step_model.with_free_steps(traced, ran, of_length=True)
    assert free.seconds(alike(1, 5.0)) == pytest.approx(1.0 + 2.5)
    flat = step_model.with_free_steps(traced, [FreeStep(0.3 * s, 1, s) for s in (0.5, 1.0)], of_length=True)
    assert flat.seconds(alike(1, 5.0)) == pytest.approx(1.5)


def test_measured_steps_of_long_sequences_are_predicted_from_shorter_ones() -> None:
    """One H100, the longest row of bench/worth: 15 of 16 blocks recomputed, then all of them."""
    unit = 16384
    ran = [FreeStep(1.6484, 1, 37120 / unit), FreeStep(1.8884, 1, 40448 / unit)]
    free = step_model.with_free_steps(step_model.from_traces(0.0, 0.6, 1), ran, of_length=True)
    assert free.seconds(alike(1, 45568 / unit)) == pytest.approx(2.2993, 0.02)
    # The slope between two short traces, of 4096 and 8192 tokens: from it a linear model had 1.11 s at 40448 tokens.
    slope = (free.seconds(alike(1, 8192 / unit)) - free.seconds(alike(1, 4096 / unit))) / 4096
    assert slope * 40448 == pytest.approx(1.11, 0.02)


def test_free_pages_of_expandable_segments_go_back_at_the_limit() -> None:
    outcome = Outcome(1000, {"native": 1300, "expandable": 1200, "stalloc": 1004})
    assert outcome.needed("native") == 1300
    assert outcome.needed("expandable") == 1010
    assert outcome.needed("stalloc") == 1004
    assert Outcome(1000, {"expandable": 1005}).needed("expandable") == 1005


def test_micro_batches_between_the_fastest_and_its_neighbours_are_tried() -> None:
    known = [(48, 0.0), (8, 1.0), (30, 3.7), (38, 3.9)]
    assert choose._beside_the_best(known) == [34, 43]
    assert choose._beside_the_best([(3, 1.0), (4, 2.0), (5, 0.0)]) == [], "nothing lies between them"
    assert choose._beside_the_best([(8, 0.0), (4, 0.0)]) == []


class Asked:
    """A traced run, and its planner, that notes what it is asked for."""

    beside, ratio, trace = None, 0.0, Path("none.trace")

    def __init__(self) -> None:
        self.sizes: list[Change] = []

    def most_tokens(self) -> None:
        return None

    def free_steps(self, accumulation: int) -> list[FreeStep]:
        return [FreeStep(5e-9, accumulation, accumulation)]

    def watched_steps(self) -> list[WatchedStep]:
        return []

    def traced(self, bus: float, candidates: bool) -> dict[str, Any]:
        return {"devices": [{"device": 0, "peak": 1, "step_ns": 10, "passes_ns": 8}], "beside": []}

    def search(self, device: int, memory: int, sizes: list[Change], bus: float, graphs: int) -> list[dict[str, Any]]:
        self.sizes += sizes
        found = {"growing_cost_ns": 0, "fixed_cost_ns": 0, "fits": True, "peak": 1, "bound": "", "pool": 0}
        result = {**found, "outside_pool": 0, "recompute": [], "offload": [], "offload_state": False}
        return [result] * len(sizes)


def test_a_step_of_one_micro_batch_has_no_gradients_of_others() -> None:
    for traced, changes in ((2, [(False, True), (False, False)]), (1, [(False, False), (True, False)])):
        run = Asked()
        chooser = choose._Chooser(run, run, choose.Wish(1, accumulation=traced, rows=4), print)  # type: ignore[arg-type]
        found = [each.change for each in chooser._search(1, [4, 2])]
        assert [(each.accumulated, each.single) for each in found] == changes
        assert [(each.accumulated, each.single) for each in run.sizes] == changes
        # A fifth of the 5 ns that a step took untraced is in no pass.
        assert chooser._seconds(2) == pytest.approx((1 + 4 * 2 if traced == 2 else 1 + 4 * 4) * 1e-9)


def test_the_first_micro_batch_of_a_step_is_scaled_alone() -> None:
    run = Asked()
    chooser = choose._Chooser(run, run, choose.Wish(1, accumulation=2, rows=4), print)  # type: ignore[arg-type]
    chooser._work = work(packed=True, in_order=True)
    found = chooser._search(1, [2])[0].change
    assert (found.scale, found.first) == pytest.approx((1.0, 1.1)) == (run.sizes[-1].scale, run.sizes[-1].first)


class Watched(Asked):
    """Its device was watched; half of a layer's time in the trace is the host's."""

    def most_tokens(self) -> int:  # type: ignore[override]
        return 100

    def watched_steps(self) -> list[WatchedStep]:
        return [WatchedStep(alike(2, size), (0.4,), ({"gemm": (0.1 * size, 2)},)) for size in (1.0, 2.0)]

    def free_steps(self, accumulation: int = 2) -> list[FreeStep]:
        return [FreeStep(0.4, 2, size) for size in (1.0, 2.0)]

    def traced_loads(self) -> list[list[Load]]:
        return [[alike(2, 2.0), alike(2, 2.0), alike(2, 1.0)]]

    def traced(self, bus: float, candidates: bool) -> dict[str, Any]:
        layer = {"name": "m.mlp", "forward_ns": 0.09e9, "iteration_ns": [1e9, 0.12e9, 0.09e9]}
        times = {"step_ns": 0.45e9, "passes_ns": 0.4e9}
        return {"devices": [{"device": 0, "peak": 1, **times, "layers": [layer]}], "beside": []}

    def search(self, *args: Any) -> list[dict[str, Any]]:
        (found,) = super().search(*args)
        return [{**found, "recompute": ["m.mlp"], "growing_cost_ns": 0.59e9, "fixed_cost_ns": 0}]


def test_a_recomputed_layer_costs_what_the_device_takes_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Watched()
    monkeypatch.setattr(choose, "TracedRun", lambda trace: run)
    chooser = choose._Chooser(run, run, choose.Wish(1, accumulation=2, keep_accumulation=True), print)  # type: ignore[arg-type]
    # Micro-batches are three quarters of the largest: 10 x 2 x 0.75. The layer takes 0.06 s whatever the size, and 0.03
    # by the size. What is offloaded took 0.5 s of the 0.4 s of passes, and grows as they do; 0.05 s are in no pass.
    step = 0.1 * 15.0 + 0.06 + 0.03 * 15.0
    offloaded = 0.5 * (step - 0.05) / 0.4
    assert chooser._search(1, [10])[0].step_seconds == pytest.approx(step + offloaded)


def test_what_makes_steps_longer_does_not_count() -> None:
    traced = step_model.from_traces(0.0, 2.0, 2)
    steps = [FreeStep(0.5 * size, 2, size) for size in (1.0, 2.0, 3.0)]
    evaluated = [*steps, FreeStep(9.0, 2, 2.0)]
    assert step_model.with_free_steps(traced, evaluated).seconds(alike(2, 2.0)) == pytest.approx(1.0)
    # One H200 beside other programs, the row of experts: 24 576 tokens a step took 1.47 s at the median.
    crowded = [FreeStep(second, 4, 4.0) for second in (1.594, 1.550, 1.163)]
    crowded += [FreeStep(second, 4, 2.0) for second in (1.172, 1.037, 1.319)]
    model = step_model.with_free_steps(step_model.from_traces(0.05, 2.0, 4), crowded)
    assert model.seconds(alike(4, 10.5)) == pytest.approx(1.47, 0.1)


def test_steps_that_the_host_bounds_tell_the_least_that_larger_ones_take() -> None:
    traced = step_model.from_traces(0.0, 1.0, 2)
    by_host = step_model.with_free_steps(traced, [FreeStep(0.75, 2, size) for size in (0.5, 1.0, 1.1)])
    assert by_host.at_least(alike(2, 4.0))
    assert not by_host.at_least(alike(2, 1.0)), "so large ones were traced"
    by_device = step_model.with_free_steps(traced, [FreeStep(0.1 + size, 2, size) for size in (0.5, 1.0, 1.1)])
    assert not by_device.at_least(alike(2, 4.0))


def test_a_line_has_a_quarter_of_the_points_below_it() -> None:
    draw = random.Random(5)
    sizes = [draw.uniform(0.5, 3.0) for _ in range(60)]
    seconds = [0.2 + 0.7 * size + draw.expovariate(20) for size in sizes]
    always, growing = terms.line(sizes, seconds)
    below = sum(second < always + growing * size - 1e-12 for size, second in zip(sizes, seconds))
    assert 13 <= below <= 15
    assert (always, growing) == pytest.approx((0.2, 0.7), abs=0.05)
    assert terms.line([1.0, 2.0], [3.0, 1.0])[1] == 0.0, "nothing takes less time where there is more"


def test_steps_behind_a_trace_are_noted_with_their_tokens(tmp_path: Path) -> None:
    trace = tmp_path / "rank00000.trace"
    steps = FreeSteps(tmp_path / "rank00000.steps.json", lambda: None, DeviceWork(None))
    steps.add(5)  # of the iteration in which the trace ended
    steps.iteration_finished()
    steps.write()
    assert TracedRun(trace).free_steps() == []
    for tokens in ((99,), (98,), (50, 100), (25,)):
        for count in tokens:
            steps.add(count)
        steps.iteration_finished()
    steps.close()
    steps.add(7)  # of the last iteration, which has no end of its own
    steps.iteration_finished()
    steps.write()
    told = [(step.count, step.size) for step in TracedRun(trace).free_steps(4)]
    assert told == [(4, 4.0)] * 2, "nothing tells tokens, and the first half warms up"
    (tmp_path / "rank00000.tokens.json").write_text(json.dumps({"least": [10], "most": [100]}))
    assert TracedRun(trace).most_tokens() == 100
    assert [(step.count, step.size) for step in TracedRun(trace).free_steps()] == [(2, 1.5), (1, 0.25)]
