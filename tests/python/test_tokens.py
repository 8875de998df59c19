"""Tokens of experts beside dynamic bytes: `stalloc report --tokens`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from stalloc import cli
from stalloc.core.trace_files import path_of
from stalloc.tools.report import tokens
from stalloc.tools.report.collect import CollectError
from stalloc.train.marking import experts
from synthetic_runs import synthesize


@pytest.fixture
def run_directory(tmp_path: Path, build: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("STALLOC_LIB_PATH", str(build))
    synthesize(tmp_path, build, "--preset=moe", "--layers=4", "--iterations=6", "--state=full", "--seed=3")
    return tmp_path


def write(directory: Path, by_iteration: dict[int, list[list[int]]], rank: int = 0) -> Path:
    """As Megatron-LM does: `by_iteration` has micro-batches of experts, from iteration 0."""
    folder = directory / "tokens_per_expert"
    folder.mkdir(exist_ok=True)
    lines = [
        json.dumps({"iter": iteration + 1, "block": "decoder", "layer": layer, "tpe": counts})
        for iteration, counts in by_iteration.items()
        for layer in range(2)
    ]
    (folder / f"rank{rank}.jsonl").write_text("\n".join(lines) + "\n")
    return directory


def test_tokens_stand_beside_the_bytes(run_directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["report", str(run_directory), "--json"]) == 0
    (view,) = json.loads(capsys.readouterr().out)["views"]
    (rows,) = view["iterations"]
    assert [row["iteration"] for row in rows] == list(range(6))
    assert {row["tokens"] for row in rows} == {None}
    assert view["correlation"] == [None]
    varies = [row["dynamic_peak"] for row in rows]
    assert min(varies[1:]) > 0
    # Tokens that go with the bytes: an expert has half of them, as if nothing else varied.
    counts = {i: [[count // 2 // 512, *[count // 6 // 512] * 3]] for i, count in enumerate(varies)}
    saved = write(run_directory, counts)
    assert cli.main(["report", str(run_directory), "--json", "--tokens", str(saved)]) == 0
    told = json.loads(capsys.readouterr().out)
    (rows,) = told["views"][0]["iterations"]
    assert [row["tokens"] for row in rows] == [2 * sum(counts[i][0]) for i in range(6)]
    assert rows[1]["uneven"] == pytest.approx(4 / 2, rel=0.01)
    assert told["views"][0]["correlation"] == [pytest.approx(1, abs=1e-6)]
    (rank,) = told["ranks"]
    assert (rank["tokens"], rank["dynamic_bytes"]) == (max(row["tokens"] for row in rows), max(varies))
    assert cli.main(["report", str(run_directory), "--md", "--tokens", str(saved)]) == 0
    text = capsys.readouterr().out
    assert "busiest expert / mean" in text
    assert "Correlation of tokens and dynamic bytes: 1.00." in text


def test_micro_batches_and_layers_add_up(tmp_path: Path) -> None:
    found = tokens.read_tokens(write(tmp_path, {0: [[1, 2, 3], [4, 5, 6]], 7: [[0, 0, 0]]}), 0)
    assert found == {0: {"tokens": 42, "uneven": pytest.approx(9 * 3 / 21)}, 7: {"tokens": 0, "uneven": 0.0}}
    assert tokens.read_tokens(tmp_path, 1) == {}


def test_what_was_noted_beside_the_trace_is_taken(run_directory: Path, capsys: Any) -> None:
    noted = experts.ExpertTokens(path_of(run_directory, 0, "experts.jsonl"))
    for iteration in range(3):
        noted.add(1, [5 + iteration, 1])
        noted.add(1, [2, 2])
        noted.add(2, [1, 1])
        noted.iteration_finished(iteration)
    noted.write()
    assert cli.main(["report", str(run_directory), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [row["tokens"] for row in told["views"][0]["iterations"][0]] == [12, 13, 14, None, None, None]
    assert (told["ranks"][0]["tokens"], told["ranks"][0]["uneven"]) == (14, pytest.approx(9 * 2 / 12))


def test_a_directory_without_tokens_is_an_error(run_directory: Path, tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "save").mkdir()
    assert cli.main(["report", str(run_directory), "--md", "--tokens", str(tmp_path / "save")]) == 1
    assert f"{tmp_path}/save has no tokens_per_expert/rank0.jsonl" in capsys.readouterr().err
    assert tokens.known_ranks(write(tmp_path / "save", {0: [[1]]}, rank=12)) == [12]


@pytest.mark.parametrize("line", ["no json", "[]", '{"iter": 1}', '{"iter": 1, "tpe": 3}'])
def test_a_line_that_is_another_program_s_is_named(line: str, tmp_path: Path) -> None:
    (tmp_path / "rank0.jsonl").write_text(line + "\n")
    with pytest.raises(CollectError, match=r"rank0\.jsonl, line 1: expected"):
        tokens.read_tokens(tmp_path, 0)


def test_correlation_needs_variation() -> None:
    def rows(*pairs: tuple[Any, int]) -> list[dict[str, Any]]:
        return [{"tokens": count, "dynamic_peak": size} for count, size in pairs]

    assert tokens.correlation(rows((1, 30), (2, 20), (3, 10))) == pytest.approx(-1)
    assert tokens.correlation(rows((1, 30), (2, 20), (None, 10))) is None
    assert tokens.correlation(rows((1, 30), (1, 20), (1, 10))) is None
