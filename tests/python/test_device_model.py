"""How long a step takes on the device: what the profiler saw in parts, and steps of other sizes predicted from it."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Optional

import pytest

from stalloc.tools.fitting import device_model, layer_times, packed, step_model
from stalloc.tools.fitting.device_model import WatchedStep
from stalloc.tools.fitting.replayed import TracedRun
from stalloc.tools.fitting.work import Lengths, Load, Work, load_of
from stalloc.tools.report.collect import CollectError
from stalloc.train.marking.device_work import PARTS, DeviceWork, in_parts
from stalloc.train.marking.steps import FreeSteps

Kernel = tuple[int, int, str]
LAUNCH = 50_000  # nanoseconds of the host, from one kernel to the next


def kernels(lengths: list[int], layers: int = 20) -> list[Kernel]:
    """Of a step with a row of each length, one after another on the device, each not before the host has launched it.
    Nanoseconds: a product of matrices takes as long as its row, attention the square, what is small as long as ever."""
    found: list[Kernel] = []
    free = 0
    for length in lengths:
        for _ in range(layers):
            tile = "gemm_large" if length > 150 else "gemm_small"
            for name, duration in ((tile, 400 * length), ("attention", length * length), ("norm", 2000)):
                begin = max(free, len(found) * LAUNCH)
                found.append((begin, begin + duration, name))
                free = begin + duration
    return found


def watched(lengths: list[int], most: int) -> WatchedStep:
    told = in_parts(kernels(lengths))
    sizes = [length / most for length in lengths]
    return WatchedStep.of(json.loads(json.dumps(told)), Load(len(sizes), sum(sizes), sum(size**2 for size in sizes)))


def ran(lengths: list[int], most: int = 100) -> tuple[float, Load]:
    """A step that nothing watched."""
    return seconds_of(lengths), load_of([length / most for length in lengths])


def seconds_of(lengths: list[int]) -> float:
    made = kernels(lengths)
    return (made[-1][1] - made[0][0]) / 1e9


def test_steps_that_the_host_bounds_tell_how_long_larger_ones_take_on_the_device() -> None:
    small = [[60, 100], [80, 90], [30, 50], [40, 45]]
    model = device_model.from_steps([watched(lengths, 100) for lengths in small], [ran([30, 30])])
    assert model is not None
    # So small, the device waits for the host: 120 kernels, 50 us apart.
    assert seconds_of([60, 100]) == pytest.approx(seconds_of([30, 50]), rel=0.02) == pytest.approx(0.006, rel=0.02)
    for lengths in ([400, 700], [1000, 1000]):
        sizes = [length / 100 for length in lengths]
        load = Load(2, sum(sizes), sum(size**2 for size in sizes))
        assert model.seconds(load) == pytest.approx(seconds_of(lengths), rel=0.05)
    assert model.seconds(Load(2, 0.6, 0.18)) == pytest.approx(seconds_of([30, 30]), rel=0.05), "the host's time is left"
    assert model.seconds(Load(4, 1.2, 0.36)) == pytest.approx(2 * seconds_of([30, 30]), rel=0.05)


def test_what_watching_costs_the_host_does_not_count() -> None:
    steps = [watched(lengths, 100) for lengths in ([60, 100], [30, 50])]
    model = device_model.from_steps(steps, [(0.003, steps[1].load), (0.004, steps[1].load), (9.0, steps[1].load)])
    assert model is not None
    assert model.seconds(steps[1].load) == pytest.approx(0.004, rel=1e-3), "the middle one's: something made one longer"
    assert sum(model.host) < 0.005


def test_large_micro_batches_tell_how_slow_a_host_is_that_bounds_them() -> None:
    steps = [watched(lengths, 100) for lengths in ([60, 100], [30, 50])]
    large, small = (step.load for step in steps)
    free = [(0.012, large), (0.013, large), (0.007, small), (0.008, small), (0.009, small)]
    model = device_model.from_steps(steps, free)
    assert model is not None
    assert model.host_share(large) > 0.9
    assert model.seconds(large) == pytest.approx(0.0125, rel=0.05), "new shapes cost the host more"


def test_all_tell_where_the_device_bounds_large_ones() -> None:
    steps = [watched(lengths, 100) for lengths in ([600, 1000], [30, 50])]
    large, small = (step.load for step in steps)
    free = [(seconds_of([600, 1000]), large), (0.012, small), (0.012, small)]
    model = device_model.from_steps(steps, free)
    assert model is not None
    assert model.host_share(large) < 0.1
    assert model.seconds(small) == pytest.approx(0.012, rel=0.05)


def test_one_size_does_not_tell_what_grows() -> None:
    assert device_model.from_steps([watched([60, 100], 100)] * 2, []) is None
    assert device_model.from_steps([], []) is None


def test_a_step_is_as_long_as_the_device_works() -> None:
    steps = [watched(lengths, 100) for lengths in ([60, 100], [80, 90], [30, 50], [40, 45])]
    traced = step_model.from_traces(0.001, 0.02, 2, 0.015, 0.5)
    free = [step_model.FreeStep(0.0061, 2, step.load.size) for step in steps]
    load = Load(2, 14.0, 98.0)
    assert step_model.with_free_steps(traced, free).at_least(load)
    known = step_model.with_free_steps(traced, free, watched=steps)
    assert not known.at_least(load)
    assert known.seconds(load) == pytest.approx(seconds_of([700, 700]), rel=0.05)
    assert known.seconds(load, growing_cost=0.004) == pytest.approx(known.seconds(load) + known.passes(load) / 5)


def test_short_micro_batches_between_long_ones_are_bound_by_the_host() -> None:
    model = device_model.from_steps([watched(lengths, 100) for lengths in ([60, 100], [30, 50])], [ran([30, 30])])
    assert model is not None
    short, long = Load(1, 0.3, 0.09), Load(1, 9.0, 81.0)
    both = Load(2, 9.3, 81.09, ((1, short.size, short.square), (1, long.size, long.square)))
    assert model.seconds(both) == pytest.approx(model.seconds(short) + model.seconds(long))
    assert model.seconds(both) > model.seconds(Load(2, 9.3, 81.09)) * 1.01


def test_waiting_for_other_ranks_makes_nothing_longer() -> None:
    def told(size: float, waited: float) -> WatchedStep:
        busy = {"gemm": (0.1 * size, 4), "ncclDevKernel_AllGather": (0.05 + waited, 2)}
        return WatchedStep(Load(2, size, size * size / 2), (0.5,), (busy,))

    model = device_model.from_steps([told(2.0, 0.0), told(1.8, 0.3), told(1.0, 0.0), told(0.9, 0.1)], [])
    assert model is not None
    assert model.seconds(Load(2, 20.0, 200.0)) == pytest.approx(2.0 + 0.05)


def test_a_recomputed_layer_takes_as_long_as_it_grew_in_the_traces() -> None:
    def layers(*seconds: float) -> list[dict[str, Any]]:
        return [{"name": "m.mlp", "iteration_ns": [9e9, *(second * 1e9 for second in seconds)]}]

    loads = [Load(2, size, size * size / 2) for size in (2.0, 2.0, 1.2)]
    halves = [Load(2, size, size * size / 2) for size in (1.0, 1.0, 0.6)]
    # 2 ms whatever the size, which the host takes, and 10 ms by the size.
    grown = [(layers(0.022, 0.014), loads), (layers(0.012, 0.008), halves)]
    terms = layer_times.forward_terms(grown)
    assert terms["m.mlp"] == pytest.approx((0.001, 0.01, 0.0))
    assert layer_times.forward_terms([(layers(0.02, 0.02), [loads[0]] * 3)]) == {}, "one size"
    model = device_model.from_steps([watched(lengths, 100) for lengths in ([60, 100], [30, 50])], [ran([30, 30])])
    assert model is not None
    load = Load(2, 14.0, 98.0)
    assert model.seconds(load, terms["m.mlp"]) == pytest.approx(model.seconds(load) + 0.002 + 0.14)


def test_communication_counts_where_nothing_computes() -> None:
    told = in_parts([(0, 100, "ncclDevKernel"), (20, 50, "gemm"), (40, 70, "gemm"), (90, 140, "gemm")], most=1)
    assert told is not None
    names, part = told["kernels"], told["parts"][0]
    busy = {names[int(i)]: found for i, found in part["busy"].items()}
    assert busy["gemm"] == pytest.approx([100e-9, 3])
    assert busy["ncclDevKernel"] == pytest.approx([40e-9, 1]), "0 to 20, 70 to 90"
    assert part["seconds"] == pytest.approx(140e-9)


def test_parts_have_all_kernels() -> None:
    made = kernels([60, 100])
    told = in_parts(made)
    assert told is not None
    assert len(told["parts"]) == PARTS
    assert sum(found[1] for part in told["parts"] for found in part["busy"].values()) == len(made)
    assert sum(part["seconds"] for part in told["parts"]) == pytest.approx(seconds_of([60, 100]))
    assert in_parts([]) is None
    assert in_parts(made[:3]) is not None, "fewer than there are parts"


class Profiler:
    """torch's, of a device that has done two things."""

    def __init__(self) -> None:
        self.cuda = SimpleNamespace(is_initialized=lambda: True)
        self.autograd = SimpleNamespace(_profiler_enabled=lambda: self.running, DeviceType=SimpleNamespace(CUDA="cuda"))
        kinds = SimpleNamespace(CUDA="cuda")
        self.profiler = SimpleNamespace(profile=lambda activities: self, ProfilerActivity=kinds)
        self.running, self.profiled = False, 0
        self.profiler.kineto_results = SimpleNamespace(events=self.events)

    def start(self) -> None:
        self.running, self.profiled = True, self.profiled + 1

    def stop(self) -> None:
        self.running = False

    def events(self) -> list[Any]:
        def event(begin: int, name: str, kind: str, noted: bool = False) -> Any:
            return SimpleNamespace(
                start_ns=lambda: begin,
                duration_ns=lambda: 10,
                name=lambda: name,
                device_type=lambda: kind,
                is_user_annotation=lambda: noted,
            )

        return [event(0, "gemm", "cuda"), event(5, "launch", "cpu"), event(0, "mine", "cuda", True)]


def left_by(path: Path, torch: Optional[Any], steps: int) -> dict[str, Any]:
    free = FreeSteps(path, lambda: None, DeviceWork(torch))
    for _ in range(steps):
        free.iteration_finished()
        free.add(8)
    free.write()
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def test_two_steps_behind_a_trace_are_watched(tmp_path: Path) -> None:
    torch = Profiler()
    told = left_by(tmp_path / "rank00000.steps.json", torch, 12)
    assert torch.profiled == 2
    assert not torch.running
    assert len(told["seconds"]) == len(told["tokens"]) == 9, "eleven have an end, two of them were watched"
    assert [(step["tokens"], step["kernels"], len(step["parts"])) for step in told["device"]] == [
        ([8], ["gemm"], 1)
    ] * 2
    assert left_by(tmp_path / "other.steps.json", None, 12)["device"] == []


def test_a_program_that_ends_is_watched_no_more(tmp_path: Path) -> None:
    torch = Profiler()
    free = FreeSteps(tmp_path / "rank00000.steps.json", lambda: None, DeviceWork(torch))
    for _ in range(5):
        free.iteration_finished()
    assert torch.running, "the next step would be watched"
    free.close()
    assert not torch.running, "a profiler that runs while a process ends can take it down"


def test_a_program_that_is_profiled_is_left_alone(tmp_path: Path) -> None:
    torch = Profiler()
    torch.running = True
    assert left_by(tmp_path / "rank00000.steps.json", torch, 12)["device"] == []


def test_what_is_beside_a_trace_is_read(tmp_path: Path) -> None:
    trace = tmp_path / "rank00000.trace"
    assert TracedRun(trace).watched_steps() == []
    trace.with_suffix(".tokens.json").write_text(json.dumps({"least": [10], "most": [100]}))
    step = {"tokens": [50, 100], **(in_parts(kernels([50, 100])) or {})}
    trace.with_suffix(".steps.json").write_text(json.dumps({"seconds": [], "tokens": [], "device": [step]}))
    assert [one.load for one in TracedRun(trace).watched_steps()] == [Load(2, 1.5, 1.25)]
    trace.with_suffix(".steps.json").write_text(json.dumps({"device": [{"tokens": [50]}]}))
    with pytest.raises(CollectError, match=r"rank00000\.steps\.json: expected what the device did"):
        TracedRun(trace).watched_steps()


def test_what_a_kernel_took_least_on_ranks_that_did_the_same_counts(tmp_path: Path) -> None:
    trace = tmp_path / "rank00000.trace"
    trace.with_suffix(".tokens.json").write_text(json.dumps({"least": [100], "most": [100]}))

    def leave(rank: int, tokens: int, names: list[str], *parts: dict[str, Any]) -> None:
        told = {"device": [{"tokens": [tokens], "kernels": names, "parts": list(parts)}]}
        (tmp_path / f"rank{rank:05d}.steps.json").write_text(json.dumps(told))

    def part(seconds: float, **busy: tuple[float, int]) -> dict[str, Any]:
        return {"seconds": seconds, "busy": {name[1:]: times for name, times in busy.items()}}

    # The second rank's halves begin elsewhere; it computed in half the time, and waited to communicate.
    leave(0, 100, ["gemm", "nccl"], part(0.5, k0=(0.2, 2), k1=(0.1, 1)), part(0.3, k0=(0.2, 2)))
    leave(1, 100, ["nccl", "gemm"], part(0.4, k1=(0.1, 2)), part(0.4, k1=(0.1, 2), k0=(0.9, 1)))
    leave(2, 90, ["gemm", "nccl"], part(0.1, k0=(0.01, 4), k1=(0.01, 1)), part(0.1))  # other tokens
    leave(3, 100, ["gemm"], part(0.1, k0=(0.01, 4)), part(0.1))  # other kernels
    (step,) = TracedRun(trace).watched_steps()
    assert step.seconds == (0.4, 0.3)
    assert step.busy == (
        {"gemm": (pytest.approx(0.1), 2), "nccl": (pytest.approx(0.1), 1)},
        {"gemm": (pytest.approx(0.1), 2)},
    )


def test_tokens_of_iterations_are_read(tmp_path: Path) -> None:
    trace = tmp_path / "rank00000.trace"
    assert TracedRun(trace).traced_loads() == [], "an older trace tells none"
    told = trace.with_suffix(".tokens.json")
    told.write_text(json.dumps({"most": [100, 50], "iterations": [[100, 50], [20]]}))
    assert TracedRun(trace).traced_loads() == [[Load(2, 1.5, 1.25), Load(1, 0.2, pytest.approx(0.04))]]
    told.write_text(json.dumps({"most": [100], "iterations": [5]}))
    with pytest.raises(CollectError, match=r"rank00000\.tokens\.json: expected the tokens of iterations, found \[5\]"):
        TracedRun(trace).traced_loads()


@pytest.mark.parametrize("together", [True, False])
def test_whether_packed_rows_attend_to_each_other_is_seen(together: bool) -> None:
    """Rows of 50 to 100 tokens: two of a micro-batch in the first trace, one in the other."""

    def step(row: int, rows: int) -> WatchedStep:
        square = (row * rows) ** 2 if together else row**2 * rows
        busy = {"gemm": (row * rows * 2e-6, 4), "attention": (square * 1e-9, 4), "norm": (1e-4, 4)}
        return WatchedStep(load_of([row * rows / 200]), (0.1,), (busy,))

    def steps(share: float) -> list[WatchedStep]:
        found = [step(100, 2), step(70, 2), step(90, 1), step(50, 1)]
        size = [one.load.size for one in found]
        rows = [1.0, 1.0, share, share]
        return [dataclasses.replace(one, load=load_of([s], r)) for one, s, r in zip(found, size, rows)]

    assert packed.are_together(steps(1.0), steps(0.5)) == together
    assert not packed.are_together(steps(1.0)[:1], steps(0.5)[:1]), "one size tells nothing"
    assert not packed.are_together(steps(1.0)[:2], steps(1.0)[:2]), "nor do traces with as many rows"


def test_the_squares_of_lengths_are_over_the_largest_traced_micro_batch_s() -> None:
    rows = (100, 50, 50, 50)
    padded = Work(traced=2, rows=4, lengths=Lengths(rows, 100.0, in_order=True))  # two rows of 50 were traced
    assert padded.load(2) == Load(2, 3.0, (2 * 100**2 + 2 * 50**2) / (2 * 50**2))
    lengths = Lengths(rows, 100.0, packed=True, in_order=True)
    assert Work(traced=2, rows=4, lengths=lengths).load(2) == Load(2, 2.5, (100**2 + 3 * 50**2) / (2 * 50**2))
    together = dataclasses.replace(lengths, together=True)
    assert Work(traced=2, rows=4, lengths=together).load(2) == Load(2, 2.5, (150**2 + 100**2) / 100**2)
    assert Work(traced=2, accumulation=1, keeps_accumulation=True).load(4) == Load(1, 2.0, 2.0), "rows of one length"
    assert Work(traced=2, accumulation=1, keeps_accumulation=True, longer=True).load(4) == Load(1, 2.0, 4.0)
