"""The line that a run ends with, and `stalloc status`."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from processes import Training, run_python
from stalloc.core import outcome as _outcome

MIB = 1 << 20


def stats(mode: str = "Alloc", live: int = 90 * MIB, **more: Any) -> dict[str, Any]:
    steady = {"requests": 20, "hits": 19}
    return {"mode": mode, "peak_live_bytes": live, "held_peak_bytes": 100 * MIB, "steady": steady, **more}


def analysed(directory: Path, native: int, live: int = 90 * MIB) -> Path:
    path = directory / "output" / "trace_analysis" / "rank00000.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"devices": [{"peak": {"live_bytes": live}, "simulated": {"native_bytes": native}}]}))
    return directory


def test_what_is_saved_is_beside_what_pytorchs_allocator_would_hold(tmp_path: Path) -> None:
    outcome = _outcome.outcome_of(stats(), analysed(tmp_path, 130 * MIB), 0)
    assert outcome is not None
    assert outcome.saved_bytes == 30 * MIB
    assert outcome.worded() == (
        "held 100.00 MiB for 90.00 MiB live: E 90.00 %, 19 of 20 steady requests from the plan; "
        "PyTorch would hold 130.00 MiB: 30.00 MiB saved"
    )


def test_while_memory_was_not_short_what_is_held_is_not_judged_by_what_lives(tmp_path: Path) -> None:
    outcome = _outcome.outcome_of(stats(planned_hits=9, card_was_full=False), tmp_path, 0)
    assert outcome is not None
    assert outcome.brief().startswith("held 100.00 MiB for 90.00 MiB live, memory was never short; ")
    short = _outcome.outcome_of(stats(planned_hits=9, card_was_full=True), tmp_path, 0)
    assert short is not None
    assert short.brief().startswith("held 100.00 MiB for 90.00 MiB live: E 90.0 %; ")


def test_a_run_that_is_another_than_the_traced_one_saves_nothing_that_is_known(tmp_path: Path) -> None:
    outcome = _outcome.outcome_of(stats(), analysed(tmp_path, 130 * MIB, live=50 * MIB), 0)
    assert outcome is not None
    assert (outcome.native_bytes, outcome.saved_bytes) == (None, None)
    assert outcome.worded().endswith(
        "from the plan; what PyTorch would hold is not known: no iteration's requests were followed"
    )


@pytest.mark.parametrize(
    ("native", "told"),
    [
        ({"held_bytes": 140 * MIB, "peak_live_bytes": 90 * MIB}, "would hold 140.00 MiB: 40.00 MiB saved"),
        ({"held_bytes": 140 * MIB, "peak_live_bytes": 89 * MIB}, "would hold 140.00 MiB: 40.00 MiB saved"),
        ({"held_bytes": 90 * MIB, "peak_live_bytes": 90 * MIB}, "would hold 90.00 MiB"),
        (
            {"held_bytes": 140 * MIB, "peak_live_bytes": 80 * MIB},
            "would hold is not known: more lived later than while requests were followed",
        ),
        (
            {"held_bytes": 140 * MIB, "peak_live_bytes": 90 * MIB, "overflowed": True},
            "would hold is not known: too many blocks lived at a time to follow them",
        ),
    ],
)
def test_what_pytorchs_allocator_would_hold_is_told_as_it_was_followed_or_why_it_is_not_known(
    native: dict[str, Any], told: str, tmp_path: Path
) -> None:
    unplanned = {"planned_hits": 0, "steady": {"requests": 20, "hits": 0}}
    for mode in ("Alloc", "Auto"):
        outcome = _outcome.outcome_of({**stats(mode), **unplanned, "native": native}, tmp_path, 0)
        assert outcome is not None
        assert outcome.worded().endswith(told)


def test_what_graphs_need_counts_beside_what_tensors_hold(tmp_path: Path) -> None:
    directory = analysed(tmp_path, 130 * MIB)
    path = directory / "output" / "trace_analysis" / "rank00000.json"
    document = json.loads(path.read_text())
    document["devices"][0]["graphs"] = {"needed_bytes": 97 * MIB}
    path.write_text(json.dumps(document))
    outcome = _outcome.outcome_of(stats(), directory, 0)
    assert outcome is not None
    assert outcome.device_efficiency == 0.97
    assert outcome.brief().startswith("held 100.00 MiB for 90.00 MiB live: E 90.0 %, 97.0 % with what graphs need")


def test_the_run_itself_knows_better_than_its_trace(tmp_path: Path) -> None:
    native = {"held_bytes": 120 * MIB, "peak_live_bytes": 90 * MIB}
    outcome = _outcome.outcome_of(stats(native=native), analysed(tmp_path, 130 * MIB), 0)
    assert outcome is not None
    assert outcome.native_bytes == 120 * MIB


def test_more_held_than_by_pytorchs_allocator_is_nothing_saved(tmp_path: Path) -> None:
    outcome = _outcome.outcome_of(stats(), analysed(tmp_path, 95 * MIB), 0)
    assert outcome is not None
    assert outcome.saved_bytes == 0
    assert "saved" not in outcome.worded()


def test_a_run_without_a_plan_saves_nothing(tmp_path: Path) -> None:
    unplanned = {"planned_hits": 0, "steady": {"requests": 20, "hits": 0}}
    outcome = _outcome.outcome_of({**stats(), **unplanned}, analysed(tmp_path, 130 * MIB), 0)
    assert outcome is not None
    assert outcome.native_bytes is None
    assert "saved" not in outcome.worded()


@pytest.mark.parametrize("text", ["{", "[]", '{"devices": [{}]}', '{"devices": []}'])
def test_an_analysis_that_cannot_be_read_is_none(text: str, tmp_path: Path) -> None:
    path = tmp_path / "output" / "trace_analysis" / "rank00000.json"
    path.parent.mkdir(parents=True)
    path.write_text(text)
    outcome = _outcome.outcome_of(stats(), tmp_path, 0)
    assert outcome is not None
    assert outcome.native_bytes is None


def test_auto_is_judged_from_its_plan_on(tmp_path: Path) -> None:
    since = {"peak_live_bytes": 80 * MIB, "held_peak_bytes": 81 * MIB, "efficiency": 0.9}
    outcome = _outcome.outcome_of(stats("Auto", since_plan=since), tmp_path, 0)
    assert outcome is not None
    assert outcome.held_peak_bytes == 81 * MIB
    assert _outcome.outcome_of(stats("Auto", since_plan={**since, "peak_live_bytes": 0}), tmp_path, 0) is None


def test_trace_and_alloc_end_with_one_line_that_says_what_is_next(training: Training) -> None:
    traced = training.try_run("Trace", "--iterations", "4")
    assert (
        traced.err.splitlines()[-1] == f"[stalloc] rank 0 traced to {training.info}; next: stalloc plan {training.info}"
    )
    training.plan()
    served = training.try_run("Alloc", "--iterations", "4").err.splitlines()[-1]
    assert re.fullmatch(
        r"\[stalloc\] rank 0 held .+ live, memory was never short; PyTorch would hold [\d.]+ MiB "
        rf"\(stalloc status {training.info}\)",
        served,
    )
    done = run_python("-m", "stalloc", "status", str(training.info))
    assert done.code == 0
    line = r"rank 0  Alloc: held .+ live, memory was never short, \d+ of \d+ steady requests.* from the plan"
    assert re.match(line, done.out.splitlines()[1])
    (row,) = json.loads(run_python("-m", "stalloc", "status", str(training.info), "--json").out)["summaries"]
    assert row["outcome"]["held_peak_bytes"] == row["summary"]["held_peak_bytes"]
    missing = run_python("-m", "stalloc", "status", str(training.info), "--rank", "3")
    assert (missing.code, "rank 3 never has run there" in missing.err, "left a summary" in missing.err) == (
        1,
        True,
        True,
    )


def test_other_ranks_end_without_a_word(training: Training) -> None:
    assert training.try_run("Trace", "--iterations", "2", RANK="1", WORLD_SIZE="2").err == ""


def test_ranks_that_say_the_same_are_one_line(tmp_path: Path) -> None:
    for rank in range(6):
        path = tmp_path / "log_output" / f"rank{rank:05d}.summary.json"
        path.parent.mkdir(exist_ok=True)
        live = 80 * MIB if rank == 3 else 90 * MIB
        path.write_text(json.dumps({**stats(live=live), "degraded": None}))
    done = run_python("-m", "stalloc", "status", str(tmp_path))
    assert done.code == 0, done.err
    _, first, second = done.out.splitlines()
    assert first.startswith("rank 0-2, 4-5  Alloc: held 100.00 MiB for 90.00 MiB live")
    assert second.startswith("rank 3  Alloc: held 100.00 MiB for 80.00 MiB live")
