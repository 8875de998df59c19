"""Which iterations `stalloc import` finds in a snapshot: one step is enough, and what piles up is none."""

from __future__ import annotations

import json
import pickle
import subprocess
from pathlib import Path
from typing import Any

import pytest

from histories import FORWARD, MIB, OPTIMIZER, History, imported, training
from stalloc import cli
from stalloc.tools.commands.export import dump_lines
from stalloc.tools.snapshot import iterations
from stalloc.tools.snapshot.phases import find_marks
from stalloc.tools.snapshot.read import parse

pytestmark = pytest.mark.usefixtures("real_libraries")

STEP = "Optimizer.step#AdamW.step"


def planned(build: Path, directory: Path) -> dict[str, Any]:
    command = [str(build / "stalloc-planner"), "plan", str(directory), "--json"]
    report = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)["ranks"][0]["report"]
    device: dict[str, Any] = report["devices"][0]
    return device


def step(history: History) -> None:
    history.annotate(STEP, "START")
    history.annotate(STEP, "END")


def pile(layers: int, after: int = 0) -> History:
    """Layers of a forward pass: eight blocks of each stay, two go."""
    history = History()
    for layer in range(layers):
        places = [1000 * layer + 40 * block for block in range(10)]
        for block, place in enumerate(places):
            history.alloc(place, (block + 3) * MIB)
        history.free(places[8])
        history.free(places[9])
    for layer in reversed(range(after)):
        for block in range(8):
            history.free(1000 * layer + 40 * block)
    return history


def layer_by_layer(steps: int, layers: int = 12) -> History:
    """Forward passes that keep activations, backward passes that let them go, and an optimizer."""
    history = History()
    for _ in range(steps):
        for layer in range(layers):
            for block in range(9):
                history.alloc(1000 * layer + 40 * block, (block + 3) * MIB)
            history.free(1000 * layer + 40 * 8)
        for layer in reversed(range(layers)):
            for block in range(8):
                history.alloc(100_000, (block + 30) * MIB)
                history.free(1000 * layer + 40 * block)
                history.free(100_000)
        for block in range(3):
            history.alloc(200_000, (block + 70) * MIB)
            history.free(200_000)
    return history


def test_one_step_is_an_iteration(build: Path, tmp_path: Path, capsys: Any) -> None:
    history = History()
    for block in range(6):
        history.alloc(block, MIB)
    for block in range(6):
        history.free(block)
    step(history)
    found = imported(history.snapshot(), tmp_path, capsys)
    assert (found["iterations"], found["source"]) == (1, 'annotations "Optimizer.step#" (1 iteration)')
    assert [note[:61] for note in found["notes"]] == [
        "the history has one iteration: enough to compute what a plan "[:61]
    ]
    assert planned(build, tmp_path / "run")["plan"]["arena_bytes"] == 6 * MIB
    assert cli.main(["report", str(tmp_path / "run"), "--md"]) == 0
    assert "stalloc, planned" in capsys.readouterr().out


def test_the_first_step_holds_what_later_ones_need(build: Path, tmp_path: Path, capsys: Any) -> None:
    """State that the optimizer makes stays. What is built before the forward pass is set-up; gradients go again."""
    history = History()
    history.alloc(0, 4 * MIB)
    for block in range(1, 4):
        history.alloc(10 * block, 2 * MIB)
    history.alloc(100, 4 * MIB)  # a gradient
    for block in range(1, 4):
        history.free(10 * block)
    history.annotate(STEP, "START")
    history.alloc(200, 8 * MIB)
    history.annotate(STEP, "END")
    history.free(100)
    found = imported(history.snapshot(), tmp_path, capsys)
    assert found["iterations"] == 1
    assert found["notes"][-1].startswith("it leaves 8.00 MiB live (as an optimizer's state from its first step on)")
    begin = [line["event"] for line in dump_lines(tmp_path / "run" / "trace" / "rank00000.trace")].index("mark")
    assert begin == 2, "behind the weight, and what was held"
    device = planned(build, tmp_path / "run")
    assert device["peak"]["live_bytes"] == 16 * MIB
    assert device["plan"]["arena_bytes"] == (4 + 8 + 3 * 2 + 4) * MIB


def test_iterations_are_as_many_as_steps() -> None:
    history = training(3)
    marks = find_marks(parse(history.snapshot()))
    assert marks.iterations == 3
    stepping = History()
    for _ in range(3):
        for block in range(6):
            stepping.alloc(block, MIB)
        for block in range(6):
            stepping.free(block)
        step(stepping)
    marks = find_marks(parse(stepping.snapshot()))
    assert (marks.iterations, marks.source) == (3, 'annotations "Optimizer.step#" (3 iterations)')
    stepping.alloc(1, MIB)  # of one that is broken off
    again = find_marks(parse(stepping.snapshot()))
    assert again.iterations == 3
    assert [mark.edge for mark in again.marks if mark.kind == "iteration"] == [*["begin", "end"] * 3, "begin"]


def test_of_two_optimizers_in_turn_the_last_ends_an_iteration() -> None:
    history = History()
    for _ in range(2):
        for name in ("SGD", "AdamW"):
            history.alloc(1, MIB)
            history.free(1)
            history.annotate(f"Optimizer.step#{name}.step", "START")
            history.annotate(f"Optimizer.step#{name}.step", "END")
    assert find_marks(parse(history.snapshot())).iterations == 2


def test_steps_inside_a_backward_pass_are_one_iteration_s() -> None:
    history = History()
    for block in range(12):
        history.alloc(40 * block, MIB)
    for block in reversed(range(12)):
        history.alloc(1000, MIB)  # a gradient, and its parameter's step
        step(history)
        history.free(1000)
        history.free(40 * block)
    assert find_marks(parse(history.snapshot())).iterations == 1


def test_a_history_that_begins_with_a_step_s_end_has_the_next_one(build: Path, tmp_path: Path, capsys: Any) -> None:
    history = History()
    history.annotate(STEP, "START")
    history.alloc(0, MIB)
    history.free(0)
    history.annotate(STEP, "END")
    for block in range(6):
        history.alloc(block, MIB)
    for block in range(6):
        history.free(block)
    assert imported(history.snapshot(), tmp_path, capsys)["iterations"] == 1
    assert planned(build, tmp_path / "run")["plan"]["arena_bytes"] == 6 * MIB


def test_steps_are_seen_in_stacks(tmp_path: Path, capsys: Any) -> None:
    history = History()
    history.alloc(0, 4 * MIB)
    for layer in range(5):
        history.alloc(10 * layer + 10, 1000 * layer + 1000, FORWARD)
    for layer in range(5):
        history.alloc(100, 3000)
        history.free(100)
        history.free(10 * layer + 10)
    history.alloc(200, 77777, OPTIMIZER)
    history.free(200)
    found = imported(history.snapshot(), tmp_path, capsys)
    assert found["source"] == "the optimizer's steps in Python stacks (1 iteration)"


def test_layers_that_keep_their_activations_are_no_iterations(tmp_path: Path, capsys: Any) -> None:
    found = imported(pile(12).snapshot(), tmp_path, capsys)
    kept = sum(block + 3 for block in range(8)) * MIB
    assert (found["iterations"], found["source"]) == (0, "")
    assert found["pile"] == {"repeats": 12, "requests": 10, "bytes": kept}
    assert cli.main(["import", str(tmp_path / "run.pickle")]) == 0
    told = capsys.readouterr().out
    assert "no iterations found: 12 repeats of 10 requests pile up: live bytes grow by 52.00 MiB in each" in told


def test_nor_are_layers_of_a_backward_pass() -> None:
    marks = find_marks(parse(pile(12, after=12).snapshot()))
    assert marks.iterations == 0
    history = layer_by_layer(1)
    assert find_marks(parse(history.snapshot())).iterations == 0


def test_iterations_are_found_around_layers_that_pile_up() -> None:
    history = layer_by_layer(4)
    marks = find_marks(parse(history.snapshot()))
    assert marks.iterations == 4
    begins = [mark.before for mark in marks.marks if mark.kind == "iteration"]
    assert {later - earlier for earlier, later in zip(begins, begins[1:])} == {12 * (9 + 1 + 8 * 3) + 3 * 2}


def test_a_history_is_one_iteration_if_it_is_said_to_be(build: Path, tmp_path: Path, capsys: Any) -> None:
    found = imported(pile(12).snapshot(), tmp_path, capsys, "--whole")
    assert (found["iterations"], found["source"]) == (1, "the whole history (1 iteration)")
    device = planned(build, tmp_path / "run")
    assert device["plan"]["arena_bytes"] >= device["peak"]["live_bytes"] == (12 * 52 + 23) * MIB


def test_named_iterations_that_pile_up_are_said_to(tmp_path: Path, capsys: Any) -> None:
    history = History()
    for layer in range(6):
        history.annotate(f"block {layer}", "START")
        for block in range(4):
            history.alloc(1000 * layer + 40 * block, MIB)
        history.free(1000 * layer)
        history.annotate(f"block {layer}", "END")
    found = imported(history.snapshot(), tmp_path, capsys, "--iterations", "block")
    assert found["iterations"] == 6
    assert any("live bytes grow by 3.00 MiB in each; growing memory has no slot" in note for note in found["notes"])


def test_ranges_may_be_open_at_either_end() -> None:
    history = training(3, annotate=True)
    history.annotations = history.annotations[1:-1]  # the history began and ended inside one
    annotations = parse(history.snapshot()).annotations
    assert [(found.name, found.begin_us == 0, found.end_us is None) for found in annotations] == [
        ("ProfilerStep#0", True, False),
        ("ProfilerStep#1", False, False),
        ("ProfilerStep#2", False, True),
    ]
    assert find_marks(parse(history.snapshot())).iterations == 3


class TestPile:
    def test_a_leak_is_no_pile(self) -> None:
        """A hundredth of what an iteration needs may stay in each."""
        assert iterations.piled_up([0, 10, 20, 30], [1000, 1010, 1020]) is None
        assert iterations.piled_up([0, 30, 60, 90], [1000, 1030, 1060]) == 30

    def test_the_first_iterations_may_leave_state(self) -> None:
        assert iterations.piled_up([0, 900, 900, 900], [1000, 1900, 1900]) is None
        assert iterations.piled_up([0, 900, 900], [1000, 1900]) is None

    def test_what_shrinks_piles_up_as_well(self) -> None:
        assert iterations.piled_up([900, 600, 300, 0], [950, 650, 350]) == -300

    def test_where_nothing_is_known_it_comes_back(self) -> None:
        assert iterations.piled_up([5], []) is None


def test_a_history_of_no_request_has_no_iteration(tmp_path: Path) -> None:
    history = History()
    history.add("segment_alloc", 0, MIB)
    step(history)
    marks = find_marks(parse(pickle.loads(pickle.dumps(history.snapshot()))))
    assert (marks.iterations, marks.source) == (0, "")
