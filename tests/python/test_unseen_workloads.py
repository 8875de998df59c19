"""bench/unseen: what routing and lengths do, that its workloads train with all marks, and what replay.py says."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from processes import ROOT, Finished, run, run_python, run_with_torch

BENCH = ROOT / "bench" / "unseen"
TRAIN = str(BENCH / "train.py")
REPLAY = str(BENCH / "replay.py")


def unseen_module(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCH))
    return importlib.import_module(name)


@pytest.fixture
def routing(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return unseen_module("routing", monkeypatch)


@pytest.fixture
def replay(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return unseen_module("replay", monkeypatch)


# Random sizes -------------------------------------------------------------------------------------------------------


def test_every_token_has_an_expert_and_a_recomputed_layer_the_same_ones(routing: ModuleType) -> None:
    router = routing.Router(routing.Experts(8, 2), layers=2, seed=3)
    drawn = []
    for iteration in range(3):
        router.begin(iteration)
        drawn.append(router.counts(1, 2048))
        assert sum(drawn[-1]) == 2048
        assert router.counts(1, 2048) == drawn[-1]
    assert drawn[0] != drawn[1]


def test_routing_behaves_as_its_parameters_say(routing: ModuleType) -> None:
    def counts(iteration: int, **behaviour: Any) -> list[int]:
        router = routing.Router(routing.Experts(8, 2, **behaviour), layers=1, seed=3)
        router.begin(iteration)
        found: list[int] = router.counts(0, 2048)
        return found

    assert max(counts(0, spread=2.0, capacity=1.25)) == 2048 * 1.25 / 8
    assert max(counts(9, collapse_from=10)) < 0.3 * 2048 < 0.5 * 2048 < counts(10, collapse_from=10)[0]
    assert max(counts(40, drift=0.05)) > max(counts(0, drift=0.05)) + 200
    assert 0 in counts(0, empty=0.5)
    assert counts(0, empty=1.0) == [2048] + [0] * 7
    assert sum(counts(0, share_spread=0.2)) != 2048


def test_shapes_fit_a_full_micro_batch_and_vary(routing: ModuleType) -> None:
    for shape in (routing.padded, routing.packed, routing.packed_loosely, routing.bucketed, routing.stair):
        draw = routing.Draw(1024, iterations=20, seed=7)
        drawn = [shape(draw, iteration, number) for iteration in range(20) for number in range(2)]
        assert all(64 <= sequences.tokens <= 1024 for sequences in drawn)
        assert all(sum(s.documents) == s.length for s in drawn if s.documents is not None)
        assert len({(s.length, *(s.documents or [])) for s in drawn}) > 3
        assert shape is not routing.stair or len({s.length for s in drawn[:8]}) == 1


# Training -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def traces(build: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two workloads, traced on the CPU."""
    directory = tmp_path_factory.mktemp("unseen")
    for name in ("moe16-empty-acc1", "gan"):
        environment = {"STALLOC_LIB_PATH": str(build), "STALLOC_MODE": "Trace", "STALLOC_DEVICE": "cpu"}
        environment |= {"STALLOC_MODEL_INFO_PATH": str(directory / name), "OMP_NUM_THREADS": "1"}
        done = run_with_torch("-m", "stalloc", "run", TRAIN, name, "--iterations", "3", environment=environment).good()
        assert f"{name}: 3 iterations, last loss " in done.out
    return directory


@pytest.mark.parametrize(("name", "passes"), [("moe16-empty-acc1", 1), ("gan", 2)])
def test_workloads_train_with_all_marks(traces: Path, build: Path, name: str, passes: int) -> None:
    done = run([str(build / "stalloc-planner"), "dump", str(traces / name / "trace" / "rank00000.trace")]).good()
    marks = [line for line in done.out.splitlines() if not line[0].isdigit()]
    assert [f"Iteration Index : {i}" for i in range(3)] == [line for line in marks if "Iteration Index" in line]
    assert marks.count("Optimizer : start") == 3
    for kind in "FB":
        assert sum(line.startswith(f"micro-batch : {kind} chunk") for line in marks) == 3 * passes


def test_they_are_listed_and_an_unknown_one_is_refused() -> None:
    pytest.importorskip("torch")
    done = run_with_torch(TRAIN, "--list").good()
    assert "var-packed " in done.out
    done = run_with_torch(TRAIN, "nothing")
    assert done.code == 2
    assert "'nothing'" in done.err


FAMILIES = str(BENCH / "families_train.py")


def losses_of(done: Finished) -> list[float]:
    assert done.code == 0, done.err
    return [float(line.rsplit(" ", 1)[1]) for line in done.out.splitlines()]


@pytest.mark.parametrize("name", ["supernet", pytest.param("meta-acc1-lbfgs", marks=pytest.mark.slow)])
def test_families_train_and_the_same_seed_gives_the_same_losses(build: Path, name: str) -> None:
    first, again, other = (
        losses_of(run_with_torch(FAMILIES, name, "--iterations", "1", "--seed", seed)) for seed in ("1", "1", "2")
    )
    assert len(first) == 1
    assert first == again != other


def test_an_unknown_family_and_an_unknown_option_are_refused() -> None:
    pytest.importorskip("torch")
    for name in ("nothing", "trees-acc3"):
        done = run_with_torch(FAMILIES, name)
        assert done.code == 2
        assert f"{name}: expected one of maskrcnn, " in done.err


# Replays ------------------------------------------------------------------------------------------------------------

ITERATIONS = [
    {"iteration": 4, "live_bytes": 90, "held_bytes": 100, "expandable_held_bytes": 120},
    {"iteration": 5, "live_bytes": 90, "held_bytes": 100, "expandable_held_bytes": 90},
]
RESULT = {
    "name": "var-pad",
    "peak_live_bytes": 3 << 30,
    "efficiency": 0.98,
    "expandable_ratio": 1.01,
    "native_ratio": 2.0,
    "gave_up": False,
    "served_by": {"planned": {"requests": 3}, "dynamic": {"requests": 1}, "upstream": {"requests": 0}},
    "growth_bytes": 1 << 29,
    "moves": 7,
    "iterations": ITERATIONS,
}


def test_the_table_has_a_line_for_each_and_names_those_below_the_peer(replay: ModuleType) -> None:
    results = [RESULT, {**RESULT, "name": "gan", "efficiency": 0.995}, {"name": "vit", "failed": "no iteration 4"}]
    lines = replay.table(json.loads(json.dumps(results)))
    assert lines[2] == "| var-pad | 3.00 | 98.00 | 99.01 | 50.00 | -10.00 | 5 | 75.0 | 0.50 | 7 |"
    assert lines[4].endswith("| failed: no iteration 4 |")
    assert {line.count("|") for line in lines} == {lines[0].count("|")}
    assert replay.below_expandable(results) == ["var-pad"]


def test_halves_are_counted_apart(replay: ModuleType) -> None:
    served = [{**iteration, "driver_calls": {"unmap": 5}} for iteration in ITERATIONS]
    names = {"gan": 0.99, "var-pad": 0.97, "vit": 0.95}  # the last one only judges
    results = [{**RESULT, "name": name, "efficiency": value, "iterations": served} for name, value in names.items()]
    assert replay.halves([*results, {"name": "lora", "failed": "no iteration 4"}]) == [
        "2 may be looked at: E 98.000 %, worst 97.00 %, 14 moves, 20 chunks unmapped",
        "1 only judge: E 95.000 %, worst 95.00 %, 7 moves, 10 chunks unmapped",
    ]


def test_an_unknown_rule_to_leave_out_is_refused_with_those_that_there_are(build: Path, tmp_path: Path) -> None:
    program = build / "bench" / "replay_bench"
    if not program.exists():
        pytest.skip(f"{build} has no replay_bench")
    done = run([str(program), "--without", "late-rooms,luck", "synth/moe"], cwd=tmp_path)
    assert done.code == 2
    assert "--without: expected some of in-the-way, " in done.err
    assert "; found luck" in done.err


def test_a_missing_build_and_a_missing_trace_are_named(build: Path, tmp_path: Path) -> None:
    done = run_python(REPLAY, str(tmp_path), "--build", str(tmp_path))
    assert done.code == 2
    assert "replay_bench: expected a build" in done.err
    if not (build / "bench" / "replay_bench").exists():
        pytest.skip(f"{build} has no replay_bench")
    done = run_python(REPLAY, str(tmp_path), "--build", str(build), "--workloads", "var-pad")
    assert done.code == 2
    assert "var-pad: expected a traced run" in done.err


def test_traces_are_replayed_and_written_down(traces: Path, build: Path, tmp_path: Path) -> None:
    if not (build / "bench" / "replay_bench").exists():
        pytest.skip(f"{build} has no replay_bench")
    output = tmp_path / "unseen.json"
    flags = ["--build", str(build), "--scale", "16", "--plan-from", "0", "--json", str(output)]
    done = run_python(REPLAY, str(traces), *flags, "--serve", "1").good()
    assert "2/2 moe16-empty-acc1: E " in done.err
    written = json.loads(output.read_text())
    assert [result["name"] for result in written["workloads"]] == ["gan", "moe16-empty-acc1"]
    assert written["traced_by"] == "train.py NAME --iterations 3"
    assert str(tmp_path.parent) not in output.read_text()
    done = run_python(REPLAY, str(traces), *flags, "--serve", "9", "--workloads", "gan")
    assert done.code == 1
    assert "| failed: replay_bench: " in done.out


# Loops that leave things to the next iteration ----------------------------------------------------------------------

LOOPS = str(BENCH / "loops.py")


def test_what_lives_into_the_next_iteration_costs_nothing(build: Path, tmp_path: Path) -> None:
    if not (build / "bench" / "replay_bench").exists():
        pytest.skip(f"{build} has no replay_bench")
    names = ["prefetch", "teacher", "tutorial"]
    for name in names:
        environment = {"STALLOC_LIB_PATH": str(build), "STALLOC_MODE": "Trace", "STALLOC_DEVICE": "cpu"}
        environment |= {"STALLOC_MODEL_INFO_PATH": str(tmp_path / name), "OMP_NUM_THREADS": "1"}
        done = run_with_torch("-m", "stalloc", "run", LOOPS, name, "--iterations", "9", environment=environment).good()
        assert done.out.count("loss ") == 9
    output = tmp_path / "loops.json"
    done = run_python(REPLAY, str(tmp_path), "--build", str(build), "--serve", "4-7", "--json", str(output)).good()
    results = json.loads(output.read_text())["workloads"]
    assert [result["name"] for result in results] == names
    for result in results:
        assert result["efficiency"] >= 0.995, result["name"]
        for iteration in result["iterations"]:
            assert iteration["held_bytes"] <= iteration["expandable_held_bytes"], result["name"]


def test_the_loops_are_listed_and_an_unknown_one_is_refused() -> None:
    pytest.importorskip("torch")
    done = run_with_torch(LOOPS, "--list").good()
    assert "prefetch      The next batch is there before this one is used." in done.out
    assert run_with_torch(LOOPS, "nothing").code == 2
