"""Habits of training loops that cost memory: `stalloc advise` names each, its line and what to write, and what it
promises is what the loop needs without the habit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from processes import SCRIPTS, Training
from stalloc import cli

pytestmark = pytest.mark.usefixtures("real_libraries")
pytest.importorskip("torch")

SCRIPT = SCRIPTS / "pattern_training.py"
WITHIN = 0.02


def line_of(text: str) -> int:
    """Of its last occurrence."""
    lines = SCRIPT.read_text().splitlines()
    return len(lines) - lines[::-1].index(text)


def advised(build: Path, directory: Path, capsys: Any, *words: str) -> dict[str, Any]:
    directory.mkdir()
    training = Training(build, directory)
    variables = {"STALLOC_TRACE_DETAIL": "1"}
    training.start_plain("Trace", "-m", "stalloc", "run", str(SCRIPT), *words, **variables).good()
    assert cli.main(["advise", str(training.info), "--json"]) == 0
    device: dict[str, Any] = json.loads(capsys.readouterr().out)["devices"][0]
    return device


HABITS = {
    "outputs": ("free `logits` (pattern_training.py:{line} outputs)", "        logits = model(x)", "del logits"),
    "gradients": ("free the gradients after the optimizer's step", "", "optimizer.zero_grad() right after"),
    "evaluation": ("keep no graph of forward passes", "", "with torch.no_grad()"),
    "logits": ("compute logits and loss in 4 parts", "", "hidden.flatten(0, -2).chunk(4)"),
    "gathered": (
        "copy `state` (pattern_training.py:{line} gathered",
        "            state = {name: copy(value) for name, value in model.state_dict().items()}",
        "v.detach().cpu() in place of v.clone()",
    ),
}


@pytest.mark.parametrize("habit", HABITS)
def test_a_habit_is_named_and_its_promise_is_kept(habit: str, build: Path, tmp_path: Path, capsys: Any) -> None:
    what, code, line = HABITS[habit]
    device = advised(build, tmp_path / "with", capsys, habit)
    told = what.format(line=line_of(code) if code else 0)
    (row,) = (row for row in device["advice"] if row["what"].startswith(told))
    assert line in row["how_to"]
    came = advised(build, tmp_path / "without", capsys, habit, "mended")["peak_live_bytes"]
    assert came <= row["peak_bytes"] * (1 + WITHIN)
    assert row["at_least"] or came >= row["peak_bytes"] * (1 - WITHIN)
    assert came < 0.9 * device["peak_live_bytes"], "the habit costs nothing: the test tests nothing"


def test_losses_that_keep_their_graphs_come_first(build: Path, tmp_path: Path, capsys: Any) -> None:
    device = advised(build, tmp_path / "with", capsys, "losses")
    row = device["advice"][0]
    assert row["what"].startswith("stop leaving")
    assert row["grows"] > 0
    line = line_of("        loss = functional.cross_entropy(model(x), y)  # kept")
    assert f"pattern_training.py:{line} losses: what keeps `loss`" in row["how_to"]
    came = advised(build, tmp_path / "without", capsys, "losses", "mended")["peak_live_bytes"]
    assert came == pytest.approx(row["peak_bytes"], rel=WITHIN)


def test_a_first_batch_that_is_not_the_largest_is_named(build: Path, tmp_path: Path, capsys: Any) -> None:
    """PyTorch's native allocator is simulated, here as in what is promised: the CPU has none of its kind."""

    def native(directory: Path) -> int:
        assert cli.main(["report", str(directory / "info"), "--json"]) == 0
        (view,) = json.loads(capsys.readouterr().out)["views"]
        return int(view["rank"]["devices"][0]["simulated"]["native_bytes"])

    device = advised(build, tmp_path / "with", capsys, "first")
    (row,) = (row for row in device["advice"] if row["what"].startswith("begin with the largest batch"))
    assert "comes in iteration 8" in row["what"]
    assert "with the longest rows" in row["how_to"]
    assert row["peak_bytes"] == native(tmp_path / "with") - row["saves_bytes"]
    mended = advised(build, tmp_path / "without", capsys, "first", "mended")
    assert native(tmp_path / "without") <= row["peak_bytes"]
    assert row["at_least"]
    assert row["saves_bytes"] > 0.1 * row["peak_bytes"], "the habit costs nothing: the test tests nothing"
    assert not [row for row in mended["advice"] if row["what"].startswith("begin with")]


def test_a_clean_loop_is_given_a_sentence(build: Path, tmp_path: Path, capsys: Any) -> None:
    training = Training(build, tmp_path)
    training.start_plain("Trace", "-m", "stalloc", "run", str(SCRIPT), "gradients", "mended").good()
    assert cli.main(["advise", str(training.info)]) == 0
    shown = capsys.readouterr().out
    assert "Nothing was found that lowers the peak by 1 % or more." in shown
    assert "STALLOC_TRACE_DETAIL=1" in shown
    assert "each of 8 iterations comes to it" in shown
    assert "native would hold" in shown
    assert max(map(len, shown.splitlines())) <= 100
