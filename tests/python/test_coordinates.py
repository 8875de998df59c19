"""Where a rank stands, and whose plan it is served from."""

from __future__ import annotations

import json
import types
from pathlib import Path

import pytest

from processes import HERE, FakeProcess
from stalloc.core import coordinates as _coordinates
from stalloc.core.coordinates import Coordinates, choose_plan, of_command_line, rank_to_serve_from
from stalloc.train import session as _session
from stalloc.train.megatron import ranks as _ranks

PARALLEL = ["--tensor-model-parallel-size", "2", "--pipeline-model-parallel-size=2", "--other", "7", "--mock-data"]
SIZES = (2, 2, 1, 1, 2)


def test_ranks_are_numbered_tp_first_then_cp_dp_and_pp() -> None:
    found = [of_command_line(PARALLEL, rank, 8) for rank in range(8)]
    places = [(0, 0, 0), (1, 0, 0), (0, 0, 1), (1, 0, 1), (0, 1, 0), (1, 1, 0), (0, 1, 1), (1, 1, 1)]
    assert found == [Coordinates(tp, pp, 0, 0, dp, SIZES) for tp, pp, dp in places]


def test_without_any_other_parallelism_all_ranks_are_replicas() -> None:
    assert of_command_line(["--micro-batch-size", "2"], 3, 4) == Coordinates(0, 0, 0, 0, 3, (1, 1, 1, 1, 4))


def test_the_other_mapping_has_pp_before_dp() -> None:
    found = [of_command_line([*PARALLEL, "--use-tp-pp-dp-mapping"], rank, 8) for rank in range(8)]
    places = [(0, 0, 0), (1, 0, 0), (0, 1, 0), (1, 1, 0), (0, 0, 1), (1, 0, 1), (0, 1, 1), (1, 1, 1)]
    assert found == [Coordinates(tp, pp, 0, 0, dp, SIZES) for tp, pp, dp in places]


def test_experts_and_contexts_have_their_place() -> None:
    words = ["--context-parallel-size", "2", "--expert-model-parallel-size", "4"]
    found = [of_command_line(words, rank, 8) for rank in range(8)]
    assert [(c.cp, c.dp, c.ep) for c in found if c] == [
        (0, 0, 0), (1, 0, 1), (0, 1, 2), (1, 1, 3), (0, 2, 0), (1, 2, 1), (0, 3, 2), (1, 3, 3),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "words", [[], ["--batch-size", "2"], ["--tensor-model-parallel-size", "3"]], ids=["none", "others", "no fit"]
)
def test_a_run_without_such_arguments_has_no_coordinates(words: list[str]) -> None:
    assert of_command_line(words, 1, 8) is None


def traced(directory: Path, *ranks: int, planned: tuple[int, ...]) -> None:
    (directory / "trace").mkdir(parents=True)
    (directory / "output" / "plan").mkdir(parents=True)
    for rank in ranks:
        coordinates = of_command_line(PARALLEL, rank, 8)
        assert coordinates is not None
        _coordinates.write(directory, rank, coordinates)
    for rank in planned:
        (directory / "output" / "plan" / f"rank{rank:05d}.plan").touch()


def test_a_replica_without_a_plan_gets_the_first_of_its_place(tmp_path: Path) -> None:
    traced(tmp_path, 0, 1, 4, 5, planned=(0, 1, 4))
    served = {}
    for rank in range(8):
        own = of_command_line(PARALLEL, rank, 8)
        assert own is not None
        served[rank] = rank_to_serve_from(tmp_path, rank, own)
    # Ranks 2, 3, 6 and 7 are the replicas of 0, 1, 4 and 5; rank 5 was traced and not planned.
    assert served == {0: None, 1: None, 2: 0, 3: 1, 4: None, 5: None, 6: 4, 7: None}


def test_another_number_of_replicas_is_another_run(tmp_path: Path) -> None:
    traced(tmp_path, 0, planned=(0,))
    own = of_command_line(PARALLEL, 4, 16)
    assert own is not None
    assert (own.tp, own.pp) == (0, 0)
    assert rank_to_serve_from(tmp_path, 4, own) is None


def test_a_rank_that_is_told_whose_plan_to_use_does_as_told(tmp_path: Path) -> None:
    traced(tmp_path, 0, planned=(0,))
    environment = {"WORLD_SIZE": "8", "STALLOC_MODEL_INFO_PATH": str(tmp_path)}
    assert choose_plan(PARALLEL, environment, "2") == 0
    assert choose_plan(PARALLEL, {**environment, "STALLOC_PLAN_RANK": "1"}, "2") is None
    assert choose_plan(["--tensor-model-parallel-size", "two"], environment, "2") is None


def test_a_broken_file_is_named(tmp_path: Path) -> None:
    traced(tmp_path, 0, planned=(0,))
    path = tmp_path / "trace" / "rank00001.coordinates.json"
    path.write_text(json.dumps({"tp": 1}))
    with pytest.raises(ValueError, match=r"rank00001\.coordinates\.json does not hold the coordinates"):
        _coordinates.read_all(tmp_path)


def test_a_process_finds_its_plan_and_says_so(fake: FakeProcess) -> None:
    traced(fake.directory, 0, planned=(0,))
    (fake.directory / "pretrain.py").write_text("import os; print(os.environ.get('STALLOC_PLAN_RANK'))")
    environment = {"RANK": "2", "WORLD_SIZE": "8", "STALLOC_MODE": "Alloc", "STALLOC_LOG_LEVEL": "debug"}
    done = fake.python("-m", "stalloc", "run", "pretrain.py", *PARALLEL, **environment)
    assert (done.code, done.out) == (0, "0\n")
    assert "rank 2 has no plan of its own, and is served from rank 0's" in done.err


MEGATRON = """
from megatron.core import parallel_state
sizes = {"tensor_model_parallel": (1, 2), "pipeline_model_parallel": (0, 1), "context_parallel": (0, 1)}
sizes |= {"expert_model_parallel": (0, 1), "data_parallel": (3, 4)}
parallel_state.model_parallel_is_initialized = lambda: True
for group, (rank, size) in sizes.items():
    setattr(parallel_state, f"get_{group}_rank", lambda rank=rank: rank)
    setattr(parallel_state, f"get_{group}_world_size", lambda size=size: size)
from megatron.training import pretrain
from megatron.core.optimizer.optimizer import FP32Optimizer
from megatron.core.tensor import Tensor
pretrain(lambda *_: Tensor(), [[]], FP32Optimizer(), 1)
"""


def test_megatron_leaves_its_coordinates_beside_a_trace_and_checks_those_of_a_plan(fake: FakeProcess) -> None:
    fake.environment["PYTHONPATH"] += f":{HERE / 'fake_megatron'}"
    (fake.directory / "trace").mkdir()
    (fake.directory / "pretrain.py").write_text(MEGATRON)
    environment = {"RANK": "7", "WORLD_SIZE": "8"}
    done = fake.python("-m", "stalloc", "run", "pretrain.py", STALLOC_MODE="Trace", **environment)
    assert (done.code, done.err) == (0, "")
    assert _coordinates.read_all(fake.directory) == {7: Coordinates(1, 0, 0, 0, 3, (2, 1, 1, 1, 4))}
    other = Coordinates(0, 0, 0, 0, 3, (2, 1, 1, 1, 4))
    _coordinates.write(fake.directory, 6, other)
    done = fake.python(
        "-m", "stalloc", "run", "pretrain.py", STALLOC_MODE="Alloc", STALLOC_PLAN_RANK="6", **environment
    )
    assert done.code == 0
    assert "the plan in use is rank 6's, which does not stand where this rank does" in done.err


@pytest.mark.parametrize(
    ("stage", "left"), [("tracing", {7: Coordinates(1, 0, 0, 0, 3, (2, 1, 1, 1, 4))}), ("planned", {})]
)
def test_under_auto_a_rank_that_traces_leaves_its_coordinates(
    stage: str, left: dict[int, Coordinates], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STALLOC_MODEL_INFO_PATH", str(tmp_path))
    monkeypatch.setenv("RANK", "7")
    monkeypatch.setattr(_ranks, "of_megatron", lambda _: Coordinates(1, 0, 0, 0, 3, (2, 1, 1, 1, 4)))
    session = types.SimpleNamespace(mode="Auto", auto=types.SimpleNamespace(stage=stage))
    monkeypatch.setattr(_session, "current", session)
    _ranks.note_coordinates()
    assert _coordinates.read_all(tmp_path) == left
