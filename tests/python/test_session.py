"""The planner's process that answers questions, as the commands ask it."""

from __future__ import annotations

from pathlib import Path

import pytest

from processes import run_python
from stalloc.tools.report.session import CollectError, Session


@pytest.fixture
def trace(build: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("STALLOC_LIB_PATH", str(build))
    path = tmp_path / "rank00000.trace"
    run_python("-m", "stalloc", "synth", f"--output={path}", environment={"STALLOC_LIB_PATH": str(build)}).good()
    return path


def test_a_session_answers_until_it_is_closed(trace: Path) -> None:
    with Session(trace) as session:
        assert session.query("view")["rank"]["fingerprint"]["rank"] == 0
        with pytest.raises(CollectError, match=r"request: expected view, .* or period, found 'dance'"):
            session.query("dance")
        assert session.query("traced")["devices"], "an error ends nothing"
    with pytest.raises((CollectError, ValueError)):
        session.query("view")


def test_errors_name_the_file(trace: Path, tmp_path: Path) -> None:
    with Session(tmp_path / "none.trace") as session, pytest.raises(CollectError, match=r"none\.trace"):
        session.query("view")
    with Session(trace, trace, ratio=1.0) as session, pytest.raises(CollectError, match="--beside needs a --ratio"):
        session.query("view")


def test_a_planner_that_dies_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "stalloc-planner"
    program.write_text("#!/bin/sh\nread line\nkill -9 $$\n")
    program.chmod(0o755)
    monkeypatch.setenv("STALLOC_LIB_PATH", str(tmp_path))
    with Session(tmp_path / "a.trace") as session, pytest.raises(CollectError, match="stalloc-planner failed: -9"):
        session.query("view")


def test_without_a_planner_it_is_said_where_it_was_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stalloc.core.library.directories", lambda: [tmp_path])
    with pytest.raises(CollectError, match=str(tmp_path)):
        Session(tmp_path / "a.trace")
