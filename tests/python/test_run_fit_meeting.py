"""Where the processes of a job on several machines meet, before they try the program (tools/fitted/meeting.py)."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from stalloc.tools.fitted import meeting
from stalloc.tools.fitted.trials import TrialError


@pytest.mark.parametrize("first", ["rank 0", "the others"])
def test_all_go_on_with_what_rank_0_says(tmp_path: Path, first: str) -> None:
    folder = tmp_path / "job"
    with ThreadPoolExecutor(4) as ranks:
        if first == "rank 0":
            leader = ranks.submit(meeting.lead, folder, 4, "a new one")
            time.sleep(0.3)
        others = [ranks.submit(meeting.follow, folder, rank) for rank in (1, 2, 3)]
        if first != "rank 0":
            time.sleep(0.3)
            leader = ranks.submit(meeting.lead, folder, 4, "a new one")
        leader.result(30)
        assert [other.result(30) for other in others] == ["a new one"] * 3


def test_what_an_earlier_start_has_left_is_no_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "hello-1.json").write_text(json.dumps({"word": "old"}))
    (tmp_path / "start.json").write_text(json.dumps({"words": {"1": "old"}, "done": "old"}))
    monkeypatch.setattr(meeting, "WAIT_SECONDS", 0.5)
    with pytest.raises(
        TrialError, match=r"expected rank 0 of the job in .*, found none; .* --dir has to be on a file system"
    ):
        meeting.follow(tmp_path, 1)
    with pytest.raises(TrialError, match=r"expected 3 processes of the job in .*, found 1; .* --dir has to be"):
        meeting.lead(tmp_path, 3, None)
    assert not (tmp_path / "start.json").exists()
