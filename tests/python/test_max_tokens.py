"""stalloc.tokens() and `stalloc plan --max-tokens`: plans for longer micro-batches than those traced."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from processes import ROOT, FakeProcess, Finished, Training, run_python, run_with_torch
from stalloc.core.trace_files import path_of
from stalloc.tools.commands import max_tokens

CHUNK = 2 << 20  # bytes by which an arena grows


def sidecar(directory: Path, rank: int = 0) -> Any:
    path = path_of(directory, rank, "tokens.json")
    return json.loads(path.read_text()) if path.exists() else None


# -- What a traced run leaves


def loop(*iterations: list[int]) -> str:
    marked = f"for n, tokens in enumerate({list(iterations)}):\n  stalloc.iteration(n)\n  "
    return f"import stalloc\n{marked}for count in tokens: stalloc.tokens(count)\n"


def test_the_least_and_the_most_of_each_micro_batch_are_kept(fake: FakeProcess) -> None:
    fake.python("-c", loop([30, 7], [20, 9, 4], [25]), STALLOC_MODE="Trace", RANK="3").good()
    of_each = [[30, 7], [20, 9, 4], [25]]
    assert sidecar(fake.directory, 3) == {"least": [20, 7, 4], "most": [30, 9, 4], "iterations": of_each}
    assert [path.name for path in (fake.directory / "trace").iterdir()] == ["rank00003.tokens.json"]


@pytest.mark.parametrize(("steps", "most"), [("2", 11), ("1:3", 13), ("2:", 17), ("manual", None)])
def test_only_traced_iterations_count(fake: FakeProcess, steps: str, most: Any) -> None:
    fake.python("-c", loop([10], [11], [13], [17]), STALLOC_MODE="Trace", STALLOC_TRACE_STEPS=steps)
    found = sidecar(fake.directory)
    assert (found and found["most"][0]) == most


def test_an_iteration_that_is_broken_off_does_not_count(fake: FakeProcess) -> None:
    begin = "import stalloc.trace as trace, stalloc; stalloc.tokens(5); trace.step(); stalloc.tokens(99)"
    fake.python("-c", begin, STALLOC_MODE="Trace")
    assert sidecar(fake.directory)["most"] == [5]
    fake.python("-c", f"{begin}; stalloc.stop(); stalloc.tokens(1000)", STALLOC_MODE="Trace")
    assert sidecar(fake.directory)["most"] == [99], "stop() ends the iteration"


@pytest.mark.parametrize("mode", ["Torch", "Alloc", None])
def test_in_other_modes_nothing_is_looked_at(fake: FakeProcess, mode: Any) -> None:
    fake.python("-c", loop([10], [-1]), **({} if mode is None else {"STALLOC_MODE": mode})).good()
    assert sidecar(fake.directory) is None


def test_a_later_trace_without_tokens_leaves_none(fake: FakeProcess) -> None:
    fake.python("-c", loop([10]), STALLOC_MODE="Trace")
    assert sidecar(fake.directory) is not None
    fake.python("-c", loop([]), STALLOC_MODE="Trace")
    assert sidecar(fake.directory) is None


@pytest.mark.parametrize(("value", "error"), [("0", "ValueError"), ("-3", "ValueError"), ("2.0", "TypeError")])
def test_what_is_no_number_of_tokens_is_refused(fake: FakeProcess, value: str, error: str) -> None:
    done = fake.python("-c", f"import stalloc; stalloc.tokens({value})", STALLOC_MODE="Trace")
    assert done.code == 1
    assert error in done.err.splitlines()[-1]


def test_a_file_that_cannot_be_written_costs_a_warning(fake: FakeProcess) -> None:
    path_of(fake.directory, 0, "tokens.json").mkdir(parents=True)
    done = fake.python("-c", loop([10]), STALLOC_MODE="Trace")
    assert done.code == 0
    assert "the tokens of micro-batches could not be noted" in done.err


def test_the_trainer_of_transformers_tells_its_input_ids(fake: FakeProcess) -> None:
    program = """
import stalloc, types
from stalloc.train.frameworks import huggingface
step = huggingface.WRAPPERS["forward"](lambda self, model, inputs, items=None: "loss")
stalloc.iteration(0)
for inputs in ({"input_ids": types.SimpleNamespace(numel=lambda: n)} for n in (12, 0, 30)):
    assert step(None, None, inputs) == "loss"
for inputs in ({"pixels": 1}, {"input_ids": [1]}, [3], None):
    assert step(None, None, inputs=inputs) == "loss"
"""
    fake.python("-c", program, STALLOC_MODE="Trace").good()
    assert sidecar(fake.directory)["most"] == [12, 30]


# -- What the planner is asked for


class FakePlanner:
    """Traced ranks with their tokens, and a planner that prints what it was called with."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory / "run"
        (self.directory / "trace").mkdir(parents=True)
        self._libraries = directory
        planner = directory / "stalloc-planner"
        as_json = 'echo \'{"ranks": ["\'"$*"\'"], "ok": true}\''
        planner.write_text(f'#!/bin/sh\ncase "$*" in\n*--json*) {as_json};;\n*) echo "$*";;\nesac\n')
        planner.chmod(0o755)

    def rank(self, rank: int, counts: Any) -> None:
        path = path_of(self.directory, rank, "tokens.json")
        path.with_name(f"rank{rank:05d}.trace").touch()
        if counts is not None:
            path.write_text(json.dumps(counts))

    def plan(self, *arguments: str) -> Finished:
        words = ["-m", "stalloc", "plan", str(self.directory), *arguments]
        return run_python(*words, environment={"STALLOC_LIB_PATH": str(self._libraries)})


@pytest.fixture
def planner(tmp_path: Path) -> FakePlanner:
    return FakePlanner(tmp_path)


VARYING = {"least": [100, 60], "most": [200, 180]}


@pytest.mark.parametrize(
    ("longest", "percent"), [(200, "0.0000"), (300, "50.0000"), (201, "0.5000"), (2200, "1000.0000")]
)
def test_headroom_is_what_the_longest_exceeds_the_traced_by(planner: FakePlanner, longest: int, percent: str) -> None:
    planner.rank(0, VARYING)
    done = planner.plan(f"--max-tokens={longest}", "--threads", "2")
    assert done.out.split() == ["plan", str(planner.directory), "--threads", "2", f"--headroom={percent}"]


def test_it_is_rounded_up() -> None:
    assert max_tokens.headroom_percent(max_tokens.TracedTokens(Path(), 3, True), 4) == "33.3334"


def test_ranks_that_were_traced_alike_share_a_call(planner: FakePlanner) -> None:
    for rank in (0, 2):
        planner.rank(rank, {"least": [1 + rank], "most": [200]})
    done = planner.plan("--max-tokens", "300")
    assert done.out.splitlines() == [f"plan {planner.directory} --headroom=50.0000"]


def test_other_ranks_have_their_own_headroom(planner: FakePlanner) -> None:
    for rank, most in {0: 200, 1: 250, 2: 400}.items():
        planner.rank(rank, {"least": [100], "most": [most]})
    calls = [f"plan {planner.directory} --device={n} --headroom={p}" for n, p in ((0, "50.0000"), (1, "20.0000"))]
    assert planner.plan("--max-tokens", "300", "--devices", "2").out.splitlines() == calls
    merged = json.loads(planner.plan("--max-tokens", "300", "--devices=2", "--json").out)
    assert merged == {"ranks": [call.replace(" --device=", " --json --device=") for call in calls], "ok": True}
    of_one = planner.plan("--max-tokens", "300", "--device", "1")
    assert of_one.out == f"plan {planner.directory} --device 1 --headroom=20.0000\n"


def test_what_there_is_no_trace_of_the_planner_says(planner: FakePlanner) -> None:
    assert planner.plan("--max-tokens", "300").out == f"plan {planner.directory}\n"
    planner.rank(0, VARYING)
    assert planner.plan("--max-tokens", "300", "--device", "4").out == f"plan {planner.directory} --device 4\n"


@pytest.mark.parametrize(
    ("counts", "longest", "words"),
    [
        (None, 300, "rank00001.tokens.json is missing: --max-tokens needs to know how long"),
        (None, 300, "call stalloc.tokens(n) for each of them in the traced run"),
        (VARYING, 199, "--max-tokens 199 is less than the 200 tokens that were traced"),
        (VARYING, 2201, "--max-tokens 2201 is more than 11 times the 200 tokens that were traced"),
        ({"least": [100, 200], "most": [100, 200]}, 300, "were as long in all traced iterations, up to 200 tokens"),
        ({"least": [], "most": []}, 300, "expected numbers from 1 on, found []"),
        ({"most": [3]}, 300, "rank00001.tokens.json does not hold the tokens of micro-batches: KeyError('least')"),
        ("a text", 300, "rank00001.tokens.json does not hold the tokens of micro-batches: TypeError"),
    ],
)
def test_what_cannot_be_planned_for_is_one_line(planner: FakePlanner, counts: Any, longest: int, words: str) -> None:
    planner.rank(1, counts)
    done = planner.plan("--max-tokens", str(longest))
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith("stalloc plan: ")
    assert words in done.err
    assert len(done.err.splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--max-tokens", "300", "--headroom", "10"], "--max-tokens and --headroom exclude each other"),
        (["--max-tokens", "many"], "argument --max-tokens/--max_tokens: invalid int value: 'many'"),
        (["--max-tokens"], "expected one argument"),
        (["--max-tokens", "300", "another"], "expected one directory"),
    ],
)
def test_wrong_usage_ends_with_2(planner: FakePlanner, arguments: list[str], words: str) -> None:
    planner.rank(0, VARYING)
    done = planner.plan(*arguments)
    assert (done.code, done.out) == (2, "")
    assert words in done.err


def test_help_has_it(planner: FakePlanner) -> None:
    assert "--max-tokens" in planner.plan("--help").out


# -- Real training on the CPU

SHORT, LONG = 128, 192  # tokens of the longest sequence, of which a micro-batch has four


def train(training: Training, mode: str, longest: int, iterations: int) -> list[str]:
    output = training.directory / f"{mode}.json"
    workload = ["--preset", "toy-varlen", "--layers=1", "--hidden=256", "--ffn=704", "--accumulation=2"]
    run_with_torch(
        *("-m", "stalloc", "run", str(ROOT / "bench" / "train_gpt.py"), *workload, "--device=cpu"),
        *(f"--sequence={longest}", f"--iterations={iterations}", f"--json={output}"),
        environment={**training.environment(mode), "STALLOC_KEEP_FREE": "1T"},  # every byte counts
    ).good()
    losses: list[str] = json.loads(output.read_text())["losses_hex"]
    return losses


def planned_arena(training: Training, *options: str) -> int:
    done = training.try_plan("--json", *options).good()
    size: int = json.loads(done.out)["ranks"][0]["report"]["devices"][0]["plan"]["arena_bytes"]
    return size


def test_longer_micro_batches_than_those_traced_have_slots(training: Training) -> None:
    train(training, "Trace", SHORT, 3)
    assert max(sidecar(training.info)["most"]) <= 4 * SHORT
    known = planned_arena(training)
    expected = train(training, "Alloc", LONG, 5)
    without = training.summary()
    assert without["arena_bytes"] > known + CHUNK, "it grows"
    declared = planned_arena(training, f"--max-tokens={4 * LONG}")
    assert train(training, "Alloc", LONG, 5) == expected
    summary = training.summary()
    assert summary["planned_hits"] > 1.1 * without["planned_hits"]
    assert summary["arena_bytes"] < declared + CHUNK, "it does not grow"
