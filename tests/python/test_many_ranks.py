"""Many ranks of a few kinds: planned once each, told of shortly, and one of a kind is drawn. By bench/many_ranks.py."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from processes import ROOT, run_python
from stalloc import cli
from synthetic_runs import RANKS, planned_pipeline

KINDS = RANKS


@pytest.fixture(autouse=True)
def _libraries(build: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STALLOC_LIB_PATH", str(build))


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory, build: Path) -> tuple[Path, dict[str, Any]]:
    """Ranks of a pipeline, each three times, and what the benchmark tells of them."""
    source = planned_pipeline(tmp_path_factory.mktemp("few"), build)
    directory = tmp_path_factory.mktemp("many")
    traces = [str(path) for path in sorted((source / "trace").iterdir())]
    done = run_python(
        *(str(ROOT / "bench" / "many_ranks.py"), *traces, "--ranks", str(3 * KINDS)),
        *("--keep", str(directory / "run"), "--json", str(directory / "result.json")),
        environment={"STALLOC_LIB_PATH": str(build)},
    )
    assert done.code == 0, done.err
    result: dict[str, Any] = json.loads((directory / "result.json").read_text())
    return directory / "run", result


def rows(directory: Path, capsys: pytest.CaptureFixture[str], *options: str) -> dict[str, Any]:
    assert cli.main(["report", str(directory), "--json", *options]) == 0
    result: dict[str, Any] = json.loads(capsys.readouterr().out)
    return result


def test_equal_ranks_are_solved_once_and_all_have_a_plan(many: tuple[Path, dict[str, Any]]) -> None:
    directory, result = many
    assert result["ranks"] == result["plans"] == result["reports"] == 3 * KINDS
    assert result["solved"] == KINDS
    assert result["plan"]["cpu_seconds"] > 0
    assert result["plan"]["peak_bytes"] > 1 << 20
    last = json.loads((directory / "output" / "trace_analysis" / f"rank{3 * KINDS - 1:05d}.json").read_text())
    assert last["equal_to_rank"] == KINDS - 1
    assert last["fingerprint"]["rank"] == 3 * KINDS - 1
    assert last["fingerprint"]["world_size"] == 3 * KINDS


def test_a_report_of_all_draws_one_of_each_kind(
    many: tuple[Path, dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    directory, _ = many
    found = rows(directory, capsys, "--all")
    assert [row["rank"] for row in found["ranks"]] == list(range(3 * KINDS))
    assert [view["rank"]["rank"] for view in found["views"]] == list(range(KINDS))
    for row in found["ranks"][KINDS:]:
        like = found["ranks"][row["rank"] % KINDS]
        assert {**row, "rank": like["rank"]} == like
    (view,) = rows(directory, capsys, "--rank", str(KINDS + 1))["views"]
    assert (view["rank"]["rank"], view["equal_to"]) == (KINDS + 1, 1)
    assert view["rank"]["fingerprint"]["rank"] == KINDS + 1


def test_a_trace_that_is_newer_than_its_plan_is_looked_at_itself(
    many: tuple[Path, dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    directory, _ = many
    trace = directory / "trace" / f"rank{KINDS:05d}.trace"
    newer = (directory / "output" / "trace_analysis" / f"{trace.stem}.json").stat().st_mtime + 10
    os.utime(trace, (newer, newer))
    found = rows(directory, capsys, "--all")
    assert [view["rank"]["rank"] for view in found["views"]] == list(range(KINDS + 1))


def test_a_copy_is_the_trace_but_for_its_rank(many: tuple[Path, dict[str, Any]]) -> None:
    directory, _ = many
    specification = importlib.util.spec_from_file_location("many_ranks", ROOT / "bench" / "many_ranks.py")
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules["many_ranks"] = module
    specification.loader.exec_module(module)
    trace = (directory / "trace" / "rank00000.trace").read_bytes()
    assert module.with_rank(trace, 0, 3 * KINDS) == trace
    assert module.with_rank(module.with_rank(trace, 700, 1024), 0, 3 * KINDS) == trace
    assert module._crc32c(b"123456789") == 0xE3069283
