"""Plans in a directory that the user has named: of one choice of `stalloc run --fit` at a time, the others aside."""

from __future__ import annotations

import fcntl
import json
from pathlib import Path
from typing import Any

import pytest

from stalloc.core import fit_files, run_files
from stalloc.core.fit_files import Batch, Choice, Model
from stalloc.train.auto import fitted_plans

PHASE = {"requests": 1, "bytes": 1024, "growth": 0, "order": "1", "sizes": [1024, 1], "others": [0, 0]}
FEW = "0123456789ab"


def write_plan(directory: Path, text: str, changes: Any = "", rank: int = 0) -> None:
    """`changes`: None: a plan without a signature."""
    for folder, end in (("output/plan", "plan"), ("output/plan", "running.plan"), ("trace", "trace")):
        (directory / folder).mkdir(parents=True, exist_ok=True)
        (directory / folder / f"rank{rank:05d}.{end}").write_text(text)
    signature = {"version": 1, "device": "", "set_up": PHASE, "first": PHASE, "later": None, "changes": changes}
    path = directory / run_files.signature_name(rank)
    path.unlink(missing_ok=True)
    if changes is not None:
        path.write_text(json.dumps(signature))


def plan(directory: Path, rank: int = 0) -> str:
    path = directory / "output" / "plan" / f"rank{rank:05d}.plan"
    return path.read_text() if path.exists() else ""


@pytest.mark.parametrize("first", [None, "", FEW])
def test_each_choice_finds_its_own_plan_again(tmp_path: Path, first: Any) -> None:
    write_plan(tmp_path, "first", first)
    assert not fitted_plans.bring(tmp_path, 0, first or "")
    assert plan(tmp_path) == "first"
    assert fitted_plans.bring(tmp_path, 0, "other")
    assert plan(tmp_path) == ""
    assert (tmp_path / "fit" / "plans" / (first or "unchanged") / "trace" / "rank00000.trace").read_text() == "first"
    write_plan(tmp_path, "second", "other")
    assert fitted_plans.bring(tmp_path, 0, first or "")
    assert (plan(tmp_path), (tmp_path / "trace" / "rank00000.trace").read_text()) == ("first", "first")
    assert (tmp_path / run_files.signature_name(0)).exists() is (first is not None)
    assert fitted_plans.bring(tmp_path, 0, "other")
    assert plan(tmp_path) == "second"


def test_ranks_are_apart_and_a_trace_that_is_written_stays(tmp_path: Path) -> None:
    write_plan(tmp_path, "own", FEW)
    write_plan(tmp_path, "other rank's", FEW, rank=1)
    with (tmp_path / "trace" / "rank00000.trace").open() as written:
        fcntl.flock(written, fcntl.LOCK_EX)
        assert fitted_plans.bring(tmp_path, 0, "")
    assert (plan(tmp_path), plan(tmp_path, rank=1)) == ("", "other rank's")
    assert (tmp_path / "trace" / "rank00000.trace").exists()


def test_plans_of_the_last_choices_are_kept(tmp_path: Path) -> None:
    for number in range(10):
        write_plan(tmp_path, str(number), f"choice{number}")
        assert fitted_plans.bring(tmp_path, 0, FEW)
    kept = {path.name for path in (tmp_path / "fit" / "plans").iterdir()}
    assert len(kept) == 8
    assert {"choice8", "choice9"} <= kept


def test_a_directory_that_is_not_to_be_had_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def gate(_: Path) -> Any:
        raise TimeoutError("another process holds it")

    write_plan(tmp_path, "first", FEW)
    monkeypatch.setattr(run_files, "gate", gate)
    assert not fitted_plans.bring(tmp_path, 0, "")
    assert plan(tmp_path) == "first"
    assert "another process holds it" in capfd.readouterr().err


def test_sizes_that_lead_to_the_same_have_one_name(tmp_path: Path) -> None:
    recomputed, own = Model("Net", 8, "Net", recompute=("blocks.0",)), Batch("trainer", 8, 1)
    same = Choice(tmp_path / "24.json", (recomputed,), False, own, own)
    again = Choice(tmp_path / "23.json", (Model("Head", 2), recomputed), False, own, own)
    assert same.changes == again.changes != ""
    others = [
        Choice(tmp_path, (Model("Net", 8, "Net", recompute=("blocks.1",)),), False, own, own),
        Choice(tmp_path, (Model("Net", 8, "Net", offload=("blocks.0",)),), False, own, own),
        Choice(tmp_path, (recomputed,), True, own, own),
        Choice(tmp_path, (recomputed,), False, own, Batch("trainer", 4, 2)),
        Choice(tmp_path, (Model("Net", 8),), False, own, own),
    ]
    assert len({same.changes, *(each.changes for each in others)}) == 6
    assert others[-1].changes == ""


@pytest.mark.parametrize("text", [None, "{}", "no JSON", '{"trial": {"iterations": 9}}'])
def test_a_start_without_a_choice_has_no_changes(tmp_path: Path, text: Any) -> None:
    path = tmp_path / "choice.json"
    if text is not None:
        path.write_text(text)
    assert fit_files.changes_of({fit_files.FIT: str(path)}) == fit_files.changes_of({}) == ""
