"""What a step has to do (`stalloc.tools.fitting.work`), and how long it takes by steps that ran untraced."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from stalloc.tools.fitting import choose
from stalloc.tools.fitting.replayed import Change, Outcome
from stalloc.tools.fitting.work import Lengths, Load, Work
from stalloc.train.marking.device_work import DeviceWork
from stalloc.train.marking.steps import FreeSteps
from timed_runs import Beside, cost, trace

CHECKPOINT = 0.0002  # seconds of the host, in a step with one visit of the layer
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
    assert work(packed=True, in_order=True).largest_of_step(4) == pytest.approx((2.1, 2.1)), "nothing follows it"
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


def test_steps_that_ran_untraced_tell_what_stays_and_what_grows(build: Path, tmp_path: Path) -> None:
    """0.2 s of a traced step are in no pass; 0.5 of 2 s of passes are a layer's."""
    other = trace(build, tmp_path / "other.trace", 1.4, 0.2)
    with cost(build, tmp_path, Beside(), 2, 2.0, rest=0.2, second=(other, 0.5)) as traced:
        assert traced.seconds(alike(2, 2.0)) == pytest.approx(2.2)
    ran = [(0.1 + 2 * 0.05 + 0.4 * size, [50 * size] * 2) for size in (0.5, 0.9, 1.3, 2.0)]
    with cost(build, tmp_path, Beside(ran), 2, 2.0, rest=0.2, layer=[0.5] * 3, second=(other, 0.5)) as free:
        for count, size in ((2, 1.0), (2, 4.0)):
            assert free.seconds(alike(count, size)) == pytest.approx(0.2 + 0.4 * size)
        # A recomputed layer keeps its share of the passes: all of a step but 0.2 s, which are in none.
        share = 0.5 / 2.0
        again = free.seconds(alike(2, 2.0), ["m.mlp"]) - free.seconds(alike(2, 2.0))
        assert again == pytest.approx(0.4 * 2.0 * share + CHECKPOINT)


def test_steps_of_one_size_tell_only_how_much_slower_tracing_is(build: Path, tmp_path: Path) -> None:
    with cost(build, tmp_path, Beside([(1.1, [100, 100])] * 3), 2, 2.0, rest=0.2) as free:
        assert free.seconds(alike(2, 2.0)) == pytest.approx(1.1)
        assert free.seconds(alike(4, 4.0)) == pytest.approx(2.1)


def test_time_grows_with_the_square_of_a_sequence_s_length(build: Path, tmp_path: Path) -> None:
    other = trace(build, tmp_path / "other.trace", 0.2)
    ran = [(0.2 * size + 0.1 * size * size, [100 * size]) for size in (0.5, 0.5, 1.0)]
    with cost(build, tmp_path, Beside(ran), 1, 0.4, second=(other, 0.5), of_length=True) as free:
        assert free.seconds(alike(1, 5.0)) == pytest.approx(1.0 + 2.5)
    flat = [(0.3 * size, [100 * size]) for size in (0.5, 1.0)]
    with cost(build, tmp_path, Beside(flat), 1, 0.4, second=(other, 0.5), of_length=True) as free:
        assert free.seconds(alike(1, 5.0)) == pytest.approx(1.5)


def test_measured_steps_of_long_sequences_are_predicted_from_shorter_ones(build: Path, tmp_path: Path) -> None:
    """One H100, the longest row of bench/worth: 15 of 16 blocks recomputed, then all of them."""
    unit = 16384
    ran = [(1.6484, [100 * 37120 / unit]), (1.8884, [100 * 40448 / unit])]
    with cost(build, tmp_path, Beside(ran), 1, 0.6, of_length=True) as free:
        assert free.seconds(alike(1, 45568 / unit)) == pytest.approx(2.2993, 0.02)
        # The slope between two short traces, of 4096 and 8192 tokens: by it a linear model had 1.11 s at 40448 tokens.
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
    assert choose._next_to_the_best(known) == [34, 43]
    assert choose._next_to_the_best([(3, 1.0), (4, 2.0), (5, 0.0)]) == [], "nothing lies between them"
    assert choose._next_to_the_best([(8, 0.0), (4, 0.0)]) == []


class Asked:
    """A traced run, and its planner, that notes what it is asked for."""

    def __init__(self) -> None:
        self.sizes: list[Change] = []

    def most_tokens(self) -> None:
        return None

    def traced(self, bus: float, candidates: bool) -> dict[str, Any]:
        return {"devices": [{"device": 0, "peak": 1}], "truncation": ""}

    def cost(self, device: int, micro_batches: int, of_length: bool, packed: bool) -> dict[str, Any]:
        return {"usual": 1.0, "together": False}

    def seconds(self, device: int, loads: list[Load]) -> list[dict[str, Any]]:
        return [{"step_seconds": load.size} for load in loads]

    def search(
        self, device: int, memory: int, sizes: list[tuple[Change, Load]], bus: float, **_: Any
    ) -> list[dict[str, Any]]:
        self.sizes += [size for size, _ in sizes]
        found = {"fits": True, "peak": 1, "bound": "", "pool": 0, "outside_pool": 0, "at_least": False}
        found |= {"host_bytes": 0, "host_bound": False}
        chosen = {"host_share": None, "recompute": [], "offload": [], "offload_state": False}
        return [{**found, **chosen, "step_seconds": load.size} for _, load in sizes]


def test_a_step_of_one_micro_batch_has_no_gradients_of_others() -> None:
    for traced, changes in ((2, [(False, True), (False, False)]), (1, [(False, False), (True, False)])):
        run = Asked()
        chooser = choose._Chooser(run, run, choose.Wish(1, Work(accumulation=traced, rows=4)), print)  # type: ignore[arg-type]
        found = [each.change for each in chooser._search(1, [4, 2])]
        assert [(each.accumulated, each.single) for each in found] == changes
        assert [(each.accumulated, each.single) for each in run.sizes] == changes


class Timed(Asked):
    """24 rows a step, which take so long by their micro-batches; 24 at once do not fit."""

    def __init__(self, seconds_of: dict[int, float]) -> None:
        super().__init__()
        self._seconds_of = seconds_of

    def seconds(self, device: int, loads: list[Load]) -> list[dict[str, Any]]:
        return [{"step_seconds": self._seconds_of.get(round(24 / load.count), 9.0)} for load in loads]

    def search(self, device: int, memory: int, sizes: Any, bus: float, **_: Any) -> list[dict[str, Any]]:
        seconds = self.seconds(device, [load for _, load in sizes])
        found = super().search(device, memory, sizes, bus)
        fits = [{"fits": load.count > 1} for _, load in sizes]
        return [{**one, **second, **fit} for one, second, fit in zip(found, seconds, fits)]

    def outcome(self, change: Change, device: int, plans: bool) -> Outcome:
        return Outcome(1, {"stalloc": 1})


@pytest.mark.parametrize(
    ("seconds_of", "chosen"),
    [
        ({24: 0.9, 12: 1.0, 8: 0.995, 6: 0.996}, 12),
        ({24: 0.9, 12: 1.0, 8: 0.98, 6: 0.985}, 8),
        ({24: 0.9, 12: 1.0, 8: 0.98, 6: 0.96}, 6),
        ({24: 9.0, 12: 1.0, 8: 0.9951, 6: 0.9899}, 8),
    ],
)
def test_of_choices_that_are_as_fast_the_fewest_micro_batches_are_taken(
    seconds_of: dict[int, float], chosen: int
) -> None:
    run = Timed(seconds_of)
    wish = choose.Wish(10, Work(traced=6, accumulation=2, rows=24, divides=True, least=6))
    best, _ = choose._Chooser(run, run, wish, lambda _: None)._fastest()  # type: ignore[arg-type]
    assert (best.micro_batch, best.accumulation) == (chosen, 24 // chosen)


def test_a_step_keeps_what_is_in_no_pass(build: Path, tmp_path: Path) -> None:
    """A fifth of the 5 s that a step took untraced is in no pass; tokens are not known."""
    for traced, told in ((2, 1 + 4 * 2), (1, 1 + 4 * 4)):
        with cost(build, tmp_path, Beside([(5.0, [])], tokens=False), traced, 8.0, rest=2.0) as model:
            assert model.seconds(Work(1, traced, rows=4).load(2)) == pytest.approx(told)


def test_the_first_micro_batch_of_a_step_is_scaled_alone() -> None:
    run = Asked()
    chooser = choose._Chooser(run, run, choose.Wish(1, Work(accumulation=2, rows=4)), print)  # type: ignore[arg-type]
    chooser._work = work(packed=True, in_order=True)
    found = chooser._search(1, [2])[0].change
    assert (found.scale, found.first) == pytest.approx((1.0, 1.1)) == (run.sizes[-1].scale, run.sizes[-1].first)


def test_what_makes_steps_longer_does_not_count(build: Path, tmp_path: Path) -> None:
    steps = [(0.5 * size, [50 * size] * 2) for size in (1.0, 2.0, 3.0)]
    with cost(build, tmp_path, Beside([*steps, (9.0, [100, 100])]), 2, 2.0) as evaluated:
        assert evaluated.seconds(alike(2, 2.0)) == pytest.approx(1.0)
    # One H200 beside other programs, the row of experts: 24 576 tokens a step took 1.47 s at the median.
    crowded = [(second, [100] * 4) for second in (1.594, 1.550, 1.163)]
    crowded += [(second, [50] * 4) for second in (1.172, 1.037, 1.319)]
    with cost(build, tmp_path, Beside(crowded), 4, 2.0, rest=0.05) as model:
        assert model.seconds(alike(4, 10.5)) == pytest.approx(1.47, 0.1)


def test_steps_that_the_host_bounds_tell_the_least_that_larger_ones_take(build: Path, tmp_path: Path) -> None:
    with cost(build, tmp_path, Beside([(0.75, [50 * size] * 2) for size in (0.5, 1.0, 1.1)]), 2, 1.0) as by_host:
        assert by_host.step(alike(2, 4.0))["at_least"]
        assert not by_host.step(alike(2, 1.0))["at_least"], "so large ones were traced"
    ran = [(0.1 + size, [50 * size] * 2) for size in (0.5, 1.0, 1.1)]
    with cost(build, tmp_path, Beside(ran), 2, 1.0) as by_device:
        assert not by_device.step(alike(2, 4.0))["at_least"]


def test_a_line_has_a_quarter_of_the_points_below_it(build: Path, tmp_path: Path) -> None:
    draw = random.Random(5)
    sizes = [draw.uniform(0.5, 3.0) for _ in range(60)]
    seconds = [0.2 + 0.7 * size + draw.expovariate(20) for size in sizes]
    steps = [(second, [100 * size]) for size, second in zip(sizes, seconds)]
    with cost(build, tmp_path, Beside(steps), 1, 1.0, rest=0.1) as model:
        below = sum(second < model.seconds(alike(1, size)) - 1e-9 for size, second in zip(sizes, seconds))
        always = model.seconds(alike(1, 0.0))
        growing = model.seconds(alike(1, 1.0)) - always
    assert 13 <= below <= 15
    assert (always, growing) == pytest.approx((0.2, 0.7), abs=0.05)
    with cost(build, tmp_path, Beside([(3.0, [100]), (1.0, [200])]), 1) as falling:
        assert falling.seconds(alike(1, 2.0)) == falling.seconds(alike(1, 1.0)), "more takes no less"


def test_steps_after_a_trace_are_noted_with_their_tokens(tmp_path: Path) -> None:
    def told() -> list[list[int]]:
        path = tmp_path / "rank00000.steps.json"
        found: list[list[int]] = json.loads(path.read_text())["tokens"] if path.is_file() else []
        return found

    steps = FreeSteps(tmp_path / "rank00000.steps.json", lambda: None, DeviceWork(None))
    steps.add(5)  # of the iteration in which the trace ended
    steps.iteration_finished()
    steps.write()
    assert told() == []
    for tokens in ((99,), (98,), (50, 100), (25,)):
        for count in tokens:
            steps.add(count)
        steps.iteration_finished()
    steps.close()
    steps.add(7)  # of the last iteration, which has no end of its own
    steps.iteration_finished()
    steps.write()
    assert told() == [[99], [98], [50, 100], [25]]
