"""Many ranks of a few kinds: planned once each, told of shortly, and one of a kind is drawn."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

import rank_copies
from processes import run_python
from rank_copies import copy_ranks, with_rank
from stalloc import cli
from stalloc.tools.commands import many_ranks
from synthetic_runs import RANKS, planned_pipeline

pytestmark = pytest.mark.usefixtures("real_libraries")

KINDS = RANKS


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory, build: Path) -> Path:
    """Ranks of a pipeline, each three times, and their plans."""
    source = planned_pipeline(tmp_path_factory.mktemp("few"), build)
    run = tmp_path_factory.mktemp("many") / "run"
    copy_ranks(sorted((source / "trace").iterdir()), run, 3 * KINDS)
    done = run_python("-m", "stalloc", "plan", str(run), environment={"STALLOC_LIB_PATH": str(build)})
    assert done.code == 0, done.err
    return run


def rows(directory: Path, capsys: pytest.CaptureFixture[str], *options: str) -> dict[str, Any]:
    assert cli.main(["report", str(directory), "--json", *options]) == 0
    result: dict[str, Any] = json.loads(capsys.readouterr().out)
    return result


def test_equal_ranks_are_solved_once_and_all_have_a_plan(many: Path) -> None:
    directory = many
    assert len(list((directory / "output" / "plan").glob("rank*.plan"))) == 3 * KINDS
    reports = sorted((directory / "output" / "trace_analysis").glob("rank*.json"))
    assert len(reports) == 3 * KINDS
    solved = [path for path in reports if json.loads(path.read_text())["same_as_rank"] is None]
    assert len(solved) == KINDS
    last = json.loads((directory / "output" / "trace_analysis" / f"rank{3 * KINDS - 1:05d}.json").read_text())
    assert last["equal_to_rank"] == KINDS - 1
    assert last["fingerprint"]["rank"] == 3 * KINDS - 1
    assert last["fingerprint"]["world_size"] == 3 * KINDS


def test_a_report_of_all_draws_one_of_each_kind(many: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory = many
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
    many: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = many
    trace = directory / "trace" / f"rank{KINDS:05d}.trace"
    newer = (directory / "output" / "trace_analysis" / f"{trace.stem}.json").stat().st_mtime + 10
    os.utime(trace, (newer, newer))
    found = rows(directory, capsys, "--all")
    assert [view["rank"]["rank"] for view in found["views"]] == list(range(KINDS + 1))


def test_a_copy_is_the_trace_but_for_its_rank(many: Path) -> None:
    trace = (many / "trace" / "rank00000.trace").read_bytes()
    assert with_rank(trace, 0, 3 * KINDS) == trace
    assert with_rank(with_rank(trace, 700, 1024), 0, 3 * KINDS) == trace
    assert rank_copies._crc32c(b"123456789") == 0xE3069283


# What a run of many ranks says of itself -----------------------------------------------------------------------------


@pytest.fixture
def told(tmp_path: Path) -> Path:
    """Stages and summaries of forty ranks, no two alike. Rank 5 has no plan, rank 17 wastes most."""
    logs = tmp_path / "log_output"
    logs.mkdir()
    for rank in range(40):
        planning = {"stage": "planning", "after_seconds": 2.0, "iterations": 6, "peak_live_bytes": 1 << 30}
        last = {"stage": "planned", "after_seconds": 3.0 + rank, "iterations": 7, "arena_bytes": (rank + 1) << 30}
        if rank == 5:
            last = {"stage": "unplanned", "after_seconds": 4.0, "iterations": 8, "why": "the planner was ended"}
        stages = json.dumps({"rank": rank, "stages": [planning, last]})
        (logs / f"rank{rank:05d}.auto.json").write_text(stages)
        held = (200 if rank == 17 else 110 + rank) << 20
        summary = {"mode": "Auto", "peak_live_bytes": 100 << 20, "held_peak_bytes": held, "requests": 9}
        (logs / f"rank{rank:05d}.summary.json").write_text(json.dumps(summary))
    return tmp_path


def test_stages_of_many_ranks_are_counted(told: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["status", str(told)]) == 0
    planned, which, unplanned, only = capsys.readouterr().out.splitlines()[3:]
    assert planned.split()[:2] == ["39", "ranks"]
    assert "3.0 to 42.0 s" in planned
    assert "arena 1.00 GiB to 40.00 GiB" in planned
    assert which.split(maxsplit=1) == ["rank", "0-4, 6-39"]
    assert (unplanned.split()[:2], only.split()) == (["1", "rank"], ["rank", "5"])
    assert unplanned.endswith("the planner was ended")
    assert cli.main(["status", str(told), "--rank", "5"]) == 0
    assert [line.split()[6] for line in capsys.readouterr().out.splitlines()[2:]] == ["planning", "unplanned"]


def test_summaries_of_many_ranks_are_ranges(told: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["status", str(told)]) == 0
    assert capsys.readouterr().out.splitlines()[1:3] == [
        "40 ranks  Auto: held 110.00 MiB to 200.00 MiB for 100.00 MiB live: E 50.00 % to 90.91 %, least on rank 17",
        "    rank 0-39",
    ]


def test_spans_beyond_a_line_are_counted() -> None:
    assert many_ranks.listed([0, 1, 2, 7, 9, 10], most=2) == "0-2, 7 and 2 more"
    assert many_ranks.listed([3, 7, 11, 15, 17, 20]) == "3-15 by 4, 17, 20"
    assert many_ranks.listed([]) == ""
