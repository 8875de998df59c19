"""The real megatron-core, trained through its `pretrain` on the CPU: trace, plan, Alloc; it trains as it does natively.

Needs a Python with torch 2.11 and megatron-core 0.17 or later (which need Python 3.12): this one, or the one that
STALLOC_MEGATRON_PYTHON names. Skipped where there is none. tests/python/megatron_real makes Megatron run without a GPU.
"""

from __future__ import annotations

import collections
import json
import os
import re
import socket
import sys
from pathlib import Path
from typing import Any

import pytest

from processes import HERE, PACKAGE, ROOT, run
from stalloc.core.megatron_arguments import read_settled
from stalloc.tools.report.arguments import parse

pytestmark = [pytest.mark.megatron, pytest.mark.timeout(900)]
REAL = HERE / "megatron_real"


@pytest.fixture(scope="module")
def python() -> str:
    """An interpreter that has Megatron."""
    chosen = os.environ.get("STALLOC_MEGATRON_PYTHON", sys.executable)
    done = run([chosen, "-c", "import torch, megatron.core, megatron.training"])
    if done.code != 0 and "STALLOC_MEGATRON_PYTHON" in os.environ:
        pytest.fail(f"{chosen} cannot import Megatron: {done.err[-500:]}")
    if done.code != 0:
        pytest.skip("no megatron-core 0.17 or later here; STALLOC_MEGATRON_PYTHON names a Python that has it")
    return chosen


class Compared:
    """What bench/megatron/compare.py wrote."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        document = json.loads((directory / "results.json").read_text())
        assert document["complete"]
        self.rows: list[dict[str, Any]] = document["rows"]
        self.results: dict[str, dict[str, Any]] = document["results"]

    def expect_the_same_training(self, ranks: int, *modes: str) -> None:
        for mode in modes:
            rows = [row for row in self.rows if row["mode"] == mode]
            assert len(rows) == ranks
            for row in rows:
                assert (row["losses_equal"], row["weights_equal"]) == (True, True), row

    def expect_served_from_the_plan(self, least: float) -> None:
        """All but what is fenced, on every rank; and nothing to complain of."""
        assert self.results["alloc"]["warnings"] == []
        for figures in self.results["alloc"]["ranks"]:
            ours = figures["stalloc"]
            misses = sum(count for reason, count in ours["misses"].items() if reason != "fenced")
            assert ours["planned_hits"] > 1000
            assert misses <= (1 - least) * ours["planned_hits"], ours["misses"]
            assert (ours["gave_up"], ours["degraded"]) == (False, None)
            assert ours["steady"]["hits"] >= least * ours["steady"]["requests"] > 500


def call(python: str, build: Path, program: str, directory: Path, *arguments: str) -> str:
    """What a program of bench/megatron printed, tiny and on the CPU."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {
        "STALLOC_LIB_PATH": str(build),
        "STALLOC_DEVICE": "cpu",
        "STALLOC_ROOT": str(ROOT),
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": f"{PACKAGE}:{REAL}:{os.environ.get('STALLOC_MEGATRON_PATH', '')}",
    }
    command = [python, str(ROOT / "bench" / "megatron" / program), "--size", "tiny", "--backend", "gloo"]
    command += ["--entry", str(REAL / "pretrain_on_cpu.py"), "--output", str(directory), "--port", str(port)]
    done = run([*command, *arguments], environment)
    assert done.code == 0, done.err[-4000:]
    return done.out


def compare(python: str, build: Path, directory: Path, *arguments: str) -> Compared:
    call(python, build, "compare.py", directory, *arguments)
    return Compared(directory)


def marks_of(build: Path, directory: Path, rank: int) -> list[str]:
    """As text, without allocations and frees."""
    done = run(
        [str(build / "stalloc-planner"), "dump", str(directory / "plan" / "trace" / f"rank{rank:05d}.trace")]
    ).good()
    return [line for line in done.out.splitlines() if line[0] not in "0123#"]


def test_a_dense_model_trains_from_its_plan(python: str, build: Path, tmp_path: Path) -> None:
    compared = compare(
        python, build, tmp_path, "--workload", "dense", "--processes", "1", "--iterations", "8", "--eval-interval", "3",
        "--modes", "native", "trace", "alloc",
    )  # fmt: skip
    compared.expect_the_same_training(1, "alloc")
    compared.expect_served_from_the_plan(0.99)
    assert compared.results["alloc"]["ranks"][0]["stalloc"]["steady"]["fenced"] > 100
    evaluations = compared.results["alloc"]["evaluations"]
    assert len(evaluations) == 4  # at iterations 3 and 6, and both sets at the end
    model = parse([], 1, 0, read_settled(tmp_path / "plan" / "trace" / "rank00000.trace") or {})
    assert (model.num_layers, model.vocab_size, model.learned_positions, model.local_layers) == (8, 512, 0, True)
    log = (tmp_path / "alloc.log").read_text()
    assert re.search(r"\[Rank 0\] \(after \d+ iterations\) stalloc memory \(MB\) \| live: ", log)


@pytest.fixture(scope="module")
def pipeline(python: str, build: Path, tmp_path_factory: pytest.TempPathFactory) -> Compared:
    """Two pipeline ranks of four virtual stages each; evaluation, and a checkpoint in the middle."""
    return compare(
        python, build, tmp_path_factory.mktemp("pipeline"), "--workload", "pp2-vpp4", "--iterations", "6",
        "--eval-interval", "3", "--save-at", "4",
        "--modes", "native", "trace", "alloc",
    )  # fmt: skip


def test_interleaved_pipeline_ranks_train_from_their_plans(pipeline: Compared) -> None:
    pipeline.expect_the_same_training(2, "alloc")
    pipeline.expect_served_from_the_plan(0.99)


def test_a_resumed_run_trains_as_natively_from_the_plan_of_one_from_scratch(
    python: str, build: Path, tmp_path: Path
) -> None:
    compared = compare(
        python, build, tmp_path, "--workload", "pp2", "--iterations", "7", "--save-at", "4",
        "--modes", "native", "native-resumed", "trace", "alloc", "resumed", "--", "--eval-iters", "0",
    )  # fmt: skip
    compared.expect_the_same_training(2, "alloc", "resumed")
    compared.expect_served_from_the_plan(0.99)
    assert sorted(compared.results["resumed"]["losses"]) == ["5", "6", "7"]
    for rank in compared.results["resumed"]["ranks"]:
        steady = rank["stalloc"]["steady"]  # from the second iteration on; test_resumed.py is about the first one
        assert steady["hits"] >= 0.99 * steady["requests"] > 1000, rank["stalloc"]["misses"]


def test_each_backward_pass_of_a_pipeline_has_the_place_of_a_forward_pass(pipeline: Compared, build: Path) -> None:
    for rank in (0, 1):
        lines = marks_of(build, pipeline.directory, rank)
        forward, backward = (
            collections.Counter(line.removeprefix(begin) for line in lines if line.startswith(begin))
            for begin in ("micro-batch : F chunk ", "micro-batch : B chunk ")
        )
        assert forward == backward
        assert len(forward) == 4 * 4  # micro-batches x chunks
        assert set(forward.values()) == {4}  # iterations


def test_experts_over_two_ranks_train_from_their_plans(python: str, build: Path, tmp_path: Path) -> None:
    compared = compare(
        python, build, tmp_path, "--workload", "ep2-moe", "--iterations", "6", "--modes", "native", "trace", "alloc"
    )
    compared.expect_the_same_training(2, "alloc")
    # Sizes depend on the data: how much is served is not the question here.
    assert compared.results["alloc"]["warnings"] == []
    layers = {found for line in marks_of(build, tmp_path, 0) for found in re.findall(r"moe\d+(?:\.\w+)?", line)}
    steps = ("", ".route", ".dispatch", ".experts", ".combine")
    assert layers == {f"moe{number}{step}" for number in (1, 2, 3, 4) for step in steps}
    dealt: collections.Counter[tuple[int, int]] = collections.Counter()
    for rank in (0, 1):
        noted = (tmp_path / "plan" / "trace" / f"rank{rank:05d}.experts.jsonl").read_text()
        for entry in map(json.loads, noted.splitlines()):
            dealt[entry["iter"], entry["layer"]] += sum(map(sum, entry["tpe"]))
    assert len(dealt) == 4 * 4  # iterations x layers
    assert set(dealt.values()) == {4 * 64 * 2}, "sequences x tokens x experts of each"


def test_passes_that_megatron_merges_are_marked_as_merged(python: str, build: Path, tmp_path: Path) -> None:
    """Its combined 1F1B schedule: the second micro-batch's forward pass with the first one's backward pass."""
    compare(
        python, build, tmp_path, "--workload", "ep2-moe", "--trace-iterations", "2", "--modes", "trace",
        "--", "--eval-iters", "0", "--bf16", "--overlap-moe-expert-parallel-comm",
    )  # fmt: skip
    for rank in (0, 1):
        begun = [line for line in marks_of(build, tmp_path, rank) if re.match(r"micro-batch : [A-Z]+ chunk", line)]
        passes = ["F chunk 0 index 0", "FB chunk 0 index 1", "B chunk 0 index 1"]
        assert begun == [f"micro-batch : {each}" for each in passes] * 2


def test_the_installed_version_has_every_target(python: str) -> None:
    where = "import megatron.core as core, pathlib; print(pathlib.Path(core.__file__).parents[2], core.__version__)"
    found = run([python, "-c", where], {"PYTHONPATH": os.environ.get("STALLOC_MEGATRON_PATH", "")})
    done = run([sys.executable, str(HERE / "check_targets.py"), *found.out.split()])
    assert (done.code, done.out) == (0, "all found\n")


def test_configurations_that_no_plan_knows_are_traced_for_replays(python: str, build: Path, tmp_path: Path) -> None:
    call(
        python, build, "compare.py", tmp_path, "--workload", "moe-rampup", "--modes", "trace",
        "--iterations", "8", "--trace-iterations", "8",
    )  # fmt: skip
    marks = "\n".join(marks_of(build, tmp_path, 0)).split("Iteration Index")[1:]
    micro_batches = [iteration.count(" : F ") for iteration in marks]
    assert len(micro_batches) == 8
    assert micro_batches[0] < micro_batches[-1], "the batch grows"
