"""How long a step takes on the device: what the profiler saw in parts, and steps of other sizes predicted from it."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Optional

import pytest

from stalloc.tools.fitting.replayed import TracedRun
from stalloc.tools.fitting.work import Lengths, Load, Work
from stalloc.tools.report.collect import CollectError
from stalloc.train.marking.device_work import PARTS, DeviceWork, in_parts
from stalloc.train.marking.steps import FreeSteps
from timed_runs import Beside, Cost, Free, cost, loaded, trace

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


def watched(lengths: list[int]) -> dict[str, Any]:
    """As the program leaves it."""
    return {"tokens": lengths, **(in_parts(kernels(lengths)) or {})}


def part(seconds: float, **busy: tuple[float, int]) -> dict[str, Any]:
    return {"seconds": seconds, "busy": {name[1:]: times for name, times in busy.items()}}


def ran(lengths: list[int]) -> Free:
    """A step that nothing watched."""
    return seconds_of(lengths), lengths


def seconds_of(lengths: list[int]) -> float:
    made = kernels(lengths)
    return (made[-1][1] - made[0][0]) / 1e9


def test_steps_that_the_host_bounds_tell_how_long_larger_ones_take_on_the_device(build: Path, tmp_path: Path) -> None:
    small = [[60, 100], [80, 90], [30, 50], [40, 45]]
    # So small, the device waits for the host: 120 kernels, 50 us apart.
    assert seconds_of([60, 100]) == pytest.approx(seconds_of([30, 50]), rel=0.02) == pytest.approx(0.006, rel=0.02)
    with cost(build, tmp_path, Beside([ran([30, 30])], list(map(watched, small))), 2) as model:
        for lengths in ([400, 700], [1000, 1000]):
            assert model.seconds(loaded(lengths)) == pytest.approx(seconds_of(lengths), rel=0.05)
        assert model.seconds(loaded([30, 30])) == pytest.approx(seconds_of([30, 30]), rel=0.05), "the host's time"
        assert model.seconds(loaded([30] * 4)) == pytest.approx(2 * seconds_of([30, 30]), rel=0.05)


def test_what_watching_costs_the_host_does_not_count(build: Path, tmp_path: Path) -> None:
    steps, small = [watched([60, 100]), watched([30, 50])], [30, 50]
    with cost(build, tmp_path, Beside([(0.003, small), (0.004, small), (9.0, small)], steps), 2) as model:
        assert model.seconds(loaded(small)) == pytest.approx(0.004, rel=1e-3), "the middle one's"
        assert model.seconds(loaded([1, 1])) < 0.005, "the host's time alone"


def test_large_micro_batches_tell_how_slow_a_host_is_that_bounds_them(build: Path, tmp_path: Path) -> None:
    large, small = [60, 100], [30, 50]
    free = [(0.012, large), (0.013, large), (0.007, small), (0.008, small), (0.009, small)]
    with cost(build, tmp_path, Beside(free, [watched(large), watched(small)]), 2) as model:
        step = model.step(loaded(large))
        assert step["host_share"] > 0.9
        assert step["step_seconds"] == pytest.approx(0.0125, rel=0.05), "new shapes cost the host more"


def test_all_tell_where_the_device_bounds_large_ones(build: Path, tmp_path: Path) -> None:
    large, small = [600, 1000], [30, 50]
    free = [ran(large), (0.012, small), (0.012, small)]
    with cost(build, tmp_path, Beside(free, [watched(large), watched(small)]), 2) as model:
        assert model.step(loaded(large))["host_share"] < 0.1
        assert model.seconds(loaded(small)) == pytest.approx(0.012, rel=0.05)


def test_one_size_does_not_tell_what_grows(build: Path, tmp_path: Path) -> None:
    with cost(build, tmp_path, Beside([ran([60, 100])], [watched([60, 100])] * 2), 2) as model:
        assert model.step(loaded([60, 100]))["host_share"] is None, "the device is not known"
    with cost(build, tmp_path, Beside([ran([60, 100])]), 2) as model:
        assert model.step(loaded([60, 100]))["host_share"] is None


def test_a_step_is_as_long_as_the_device_works(build: Path, tmp_path: Path) -> None:
    sizes, load = [[60, 100], [80, 90], [30, 50], [40, 45]], loaded([700, 700])
    free = [(0.0061, lengths) for lengths in sizes]
    with cost(build, tmp_path, Beside(free), 2) as unknown:
        assert unknown.step(load)["at_least"]
    with cost(build, tmp_path, Beside(free, list(map(watched, sizes))), 2) as known:
        assert not known.step(load)["at_least"]
        assert known.seconds(load) == pytest.approx(seconds_of([700, 700]), rel=0.05)


def test_a_layer_of_which_the_device_tells_nothing_keeps_its_share_of_the_passes(build: Path, tmp_path: Path) -> None:
    """One traced size: 4 ms of 20 ms of passes, and 0.2 ms of the host for each checkpoint."""
    steps = [watched(lengths) for lengths in ([60, 100], [80, 90], [30, 50], [40, 45])]
    load = loaded([700, 700])
    with cost(build, tmp_path, Beside([ran([30, 30])], steps), 2, layer=[0.004] * 3) as known:
        step = known.seconds(load)
        assert known.seconds(load, ["m.mlp"]) == pytest.approx(step + step / 5 + 0.0002)


def test_short_micro_batches_between_long_ones_are_bound_by_the_host(build: Path, tmp_path: Path) -> None:
    with cost(build, tmp_path, Beside([ran([30, 30])], [watched([60, 100]), watched([30, 50])]), 2) as model:
        short, long = loaded([30]), loaded([900])
        both = model.seconds(loaded([30, 900]))
        assert both == pytest.approx(model.seconds(short) + model.seconds(long))
        assert both > model.seconds(Load(2, 9.3, 81.09)) * 1.01


def test_waiting_for_other_ranks_makes_nothing_longer(build: Path, tmp_path: Path) -> None:
    def told(size: float, waited: float) -> dict[str, Any]:
        busy = part(0.5, k0=(0.1 * size, 4), k1=(0.05 + waited, 2))
        return {"tokens": [50 * size] * 2, "kernels": ["gemm", "ncclDevKernel_AllGather"], "parts": [busy]}

    steps = [told(2.0, 0.0), told(1.8, 0.3), told(1.0, 0.0), told(0.9, 0.1)]
    with cost(build, tmp_path, Beside([(0.5, [100, 100])], steps), 2) as model:
        assert model.seconds(loaded([1000, 1000])) == pytest.approx(2.0 + 0.05)


def test_a_recomputed_layer_takes_as_long_as_it_grew_in_the_traces(build: Path, tmp_path: Path) -> None:
    """2 ms whatever the size, which the host takes, and 10 ms by the size; in the second trace, too."""
    steps = [watched([60, 100]), watched([30, 50])]
    other = trace(build, tmp_path / "other.trace", 0.02, layer=[0.9, 0.012, 0.008])
    Beside(iterations=[[50, 50], [50, 50], [30, 30]]).write(other)
    beside = Beside([ran([30, 30])], steps, iterations=[[100, 100], [100, 100], [60, 60]])
    with cost(build, tmp_path, beside, 2, passes=1.0, layer=[0.9, 0.022, 0.014], second=(other, 0.5)) as model:
        load = loaded([700, 700])
        assert model.seconds(load, ["m.mlp"]) == pytest.approx(model.seconds(load) + 0.002 + 0.14 + 0.0002)


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


def test_what_is_beside_a_trace_is_told_by_name(build: Path, tmp_path: Path) -> None:
    def refused(beside: Beside, expected: str) -> None:
        with pytest.raises(CollectError, match=expected):
            cost(build, tmp_path, beside, 2)

    refused(Beside(watched=[{"tokens": [50]}]), r"rank00000\.steps\.json: expected what the device did in a step")
    refused(Beside(iterations=5), r"rank00000\.tokens\.json: expected the tokens of iterations, found 5")  # type: ignore[arg-type]
    (tmp_path / "rank00000.tokens.json").write_text("[")
    with pytest.raises(CollectError, match=r"rank00000\.tokens\.json: "):
        Cost(TracedRun(tmp_path / "rank00000.trace"), 2)


def test_what_a_kernel_took_least_on_ranks_that_did_the_same_counts(build: Path, tmp_path: Path) -> None:
    """The device takes half as long as on the first rank alone: the second one computed in half the time."""

    def step(tokens: int, names: list[str], *parts: dict[str, Any]) -> dict[str, Any]:
        return {"tokens": [tokens], "kernels": names, "parts": list(parts)}

    def leave(rank: int, *steps: dict[str, Any]) -> None:
        (tmp_path / f"rank{rank:05d}.steps.json").write_text(json.dumps({"device": steps}))

    names = ["gemm", "nccl"]
    own = [step(each, names, part(0.001, k0=(0.4 * each / 100, 2), k1=(0.1, 1))) for each in (100, 50)]
    # Its kernels are numbered in another way, and it waited to communicate.
    leave(1, *(step(each, names[::-1], part(0.001, k1=(0.2 * each / 100, 2), k0=(0.9, 1))) for each in (100, 50)))
    leave(2, *(step(90, names, part(0.001, k0=(0.01, 2), k1=(0.01, 1))) for _ in range(2)))  # other tokens
    leave(3, *(step(each, ["gemm"], part(0.001, k0=(0.01, 2))) for each in (100, 50)))  # other kernels
    with cost(build, tmp_path, Beside([(0.3, [100])], own), 1) as model:
        assert model.seconds(loaded([100])) == pytest.approx(0.2 + 0.1)
        assert model.seconds(loaded([200])) == pytest.approx(0.4 + 0.1)


@pytest.mark.parametrize("together", [True, False])
def test_whether_packed_rows_attend_to_each_other_is_seen(build: Path, tmp_path: Path, together: bool) -> None:
    """Rows of 25 to 50 tokens: two of a micro-batch in the first trace, one in the other."""

    def step(row: int, rows: int) -> dict[str, Any]:
        square = (row * rows) ** 2 if together else row**2 * rows
        busy = part(0.1, k0=(row * rows * 4e-6, 4), k1=(square * 4e-9, 4), k2=(1e-4, 4))
        return {"tokens": [row * rows], "kernels": ["gemm", "attention", "norm"], "parts": [busy]}

    def found(first: list[dict[str, Any]], second: list[dict[str, Any]], rows: float) -> bool:
        other = trace(build, tmp_path / "other.trace", 0.02)
        Beside(watched=second).write(other)
        with cost(build, tmp_path, Beside(watched=first), 1, second=(other, 0.5), rows=rows, packed=True) as model:
            answer: bool = model.told["together"]
            return answer

    two, one = [step(50, 2), step(35, 2)], [step(45, 1), step(25, 1)]
    assert found(two, one, 0.5) == together
    assert not found(two[:1], [], 0.5), "one size tells nothing"
    assert not found(two, [], 1.0), "nor do traces with as many rows"


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


class Accumulating:
    """A step of micro-batches, after each of which the program waits for the device, as where it looks at the loss: the
    host's work between them is never hidden. Before the step it loads its batches; after it comes an optimizer."""

    LOADS, BETWEEN, OPTIMIZER = 30_000_000, 9_000_000, 12_000_000  # nanoseconds

    @classmethod
    def kernels(cls, rows: list[int]) -> list[Kernel]:
        found: list[Kernel] = []
        free = 0
        for each in rows:
            host = free + cls.BETWEEN
            for _ in range(100):
                for name, duration in (("gemm", 100_000 * each), ("cast", 20_000), ("norm", 30_000 * each)):
                    begin = max(free, host)
                    host += LAUNCH
                    found.append((begin, begin + duration, name))
                    free = begin + duration
        found += [(free + i * 1_000_000, free + (i + 1) * 1_000_000, "adam") for i in range(cls.OPTIMIZER // 1_000_000)]
        return found

    @classmethod
    def seconds(cls, rows: list[int]) -> float:
        return (cls.LOADS + cls.BETWEEN + cls.kernels(rows)[-1][1] - cls.kernels(rows)[0][0]) / 1e9

    @classmethod
    def beside(cls, *steps: list[int]) -> Beside:
        seen = [{"tokens": rows, **(in_parts(cls.kernels(rows)) or {})} for rows in steps]
        return Beside([(cls.seconds(rows), rows) for rows in steps], seen)


@pytest.mark.parametrize("rows", [[8] * 3, [6] * 4, [12] * 2, [24]])
def test_each_micro_batch_costs_the_host_again_what_the_device_waits_for(
    build: Path, tmp_path: Path, rows: list[int]
) -> None:
    """Traced were 6 and 12 rows, twice a step; a traced step's time outside of passes is loading and the optimizer."""
    rest = (Accumulating.LOADS + Accumulating.OPTIMIZER) / 1e9
    with cost(build, tmp_path, Accumulating.beside([6, 6], [12, 12]), 2, 0.3, rest=rest) as model:
        step = model.step(loaded(rows))
        assert step["step_seconds"] == pytest.approx(Accumulating.seconds(rows), rel=0.02)
        waits = Accumulating.LOADS + len(rows) * Accumulating.BETWEEN
        assert step["host_share"] == pytest.approx(waits / 1e9 / step["step_seconds"], abs=0.03)
