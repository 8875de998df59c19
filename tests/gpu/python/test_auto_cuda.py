"""STALLOC_MODE=Auto on a GPU: a run that takes its plan up computes what it computes without stalloc."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Optional

import pytest
from gpu_process import PROGRAMS

from known_runs import FOUND, TRACED, Starts
from processes import Training

pytestmark = pytest.mark.gpu


def train(training: Training, mode: Optional[str]) -> dict[str, Any]:
    done = training.start_plain(mode, str(PROGRAMS / "auto_training.py"), STALLOC_DEVICE="cuda", STALLOC_AUTO_WAIT="1")
    assert done.code == 0, done.err
    result: dict[str, Any] = json.loads(done.out.splitlines()[-1])
    return result


def test_a_run_that_takes_its_plan_up_computes_the_same(library: Path, tmp_path: Path) -> None:
    training = Training(library.parent, tmp_path).cold()
    plain, first = train(training, None), train(training, "Auto")
    assert first == plain
    assert first["snapshots_that_differ"] == 0
    summary = training.summary()
    status = json.loads((training.info / "log_output" / "rank00000.auto.json").read_text())
    assert [stage["stage"] for stage in status["stages"]] == ["tracing", "planning", "planned"]
    assert summary["unknown_frees"] == 0
    assert summary["gave_up"] is False
    # On a free card its memory is there before what lived without it has gone.
    assert summary["since_plan"]["efficiency"] > 0.7
    assert train(training, "Auto") == plain, "the next start, from its plan"


def test_a_start_finds_the_plan_of_what_it_requests(library: Path, tmp_path: Path) -> None:
    starts = Starts(Training(library.parent, tmp_path).cold(), device="cuda")
    config = tmp_path / "config"
    came_to = []
    for rows in (4096, 16384, 4096, 16384):
        config.write_text(str(rows))
        plain = starts.plain("--config", config)
        started = starts.start("--config", config)
        assert all(started.result[key] == plain[key] for key in ("losses", "weights"))
        assert started.hit_rate >= 0.97
        came_to.append(started.came_to)
    assert came_to == [TRACED, TRACED, FOUND, FOUND]
    assert len(starts.runs()) == 2
