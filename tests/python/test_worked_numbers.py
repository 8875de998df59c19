"""bench/worked_numbers.py: which programs run where, and its table. That they run is test_examples' and a GPU's."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from processes import ROOT

sys.path.insert(0, str(ROOT / "bench"))
import worked_numbers

MIB = 1 << 20


def test_every_example_is_measured() -> None:
    programs = worked_numbers.examples()
    assert sorted(program.path for program in programs) == sorted((ROOT / "examples").glob("*.py"))


def test_programs_of_a_folder_are_found_with_their_ranks_and_a_short_trace(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("parser.add_argument('--steps', type=int)")
    (tmp_path / "b.py").write_text("rank = os.environ['LOCAL_RANK']")
    (tmp_path / "notes.md").write_text("")
    found = worked_numbers.cases(tmp_path)
    assert [(p.name, p.ranks, p.on_gpu, p.trace_arguments) for p in found] == [
        ("a.py", 1, ("--steps", "24"), "--steps 4"),
        ("b.py", 2, (), ""),
    ]


@pytest.mark.parametrize(
    ("program", "devices", "why"),
    [
        (worked_numbers.Program(Path("a.py")), 0, None),
        (worked_numbers.Program(Path("a.py"), needs=("no_such_package",)), 1, "needs no_such_package"),
        (worked_numbers.Program(Path("a.py"), ranks=2), 1, "needs 2 GPUs"),
        (worked_numbers.Program(Path("a.py"), ranks=2), 0, None),
        (worked_numbers.Program(Path("megatron_core.py")), 0, "needs a GPU"),
    ],
)
def test_what_does_not_run_here_is_told(program: worked_numbers.Program, devices: int, why: str | None) -> None:
    assert worked_numbers.obstacle(program, devices) == why


def row(live: int, held: int, **more: Any) -> dict[str, Any]:
    figures = {"live_bytes": live * MIB, "held_bytes": held * MIB, "efficiency": live / held}
    return {
        "program": "a.py",
        "ranks": 1,
        "not_run": None,
        "modes": dict.fromkeys(worked_numbers.MODES, figures),
        **more,
    }


def test_the_table_has_a_row_for_each_program() -> None:
    missing = {"program": "b.py", "ranks": 2, "not_run": "needs 2 GPUs"}
    lines = worked_numbers.table([row(90, 100, losses_equal=True), missing]).splitlines()
    assert len(lines) == 4
    assert len({line.count("|") for line in lines}) == 1
    assert lines[2].startswith("| `a.py` (90.0 MiB) | 100.0 MiB, 90.0 % |")
    assert lines[2].endswith("| equal |")
    assert lines[3].startswith("| `b.py`, 2 ranks | needs 2 GPUs |")


def test_the_worst_rank_counts_and_auto_counts_from_its_plan_on() -> None:
    since = {"peak_live_bytes": 9, "held_peak_bytes": 10}
    rank = {"live_bytes": 1, "held_bytes": 2, "since_plan": since}
    assert worked_numbers._of_rank("auto", rank)["efficiency"] == 0.9
    assert worked_numbers._of_rank("alloc", rank)["efficiency"] == 0.5
    assert not worked_numbers._of_rank("auto", rank)["unplanned"]
    assert worked_numbers.percent(worked_numbers._of_rank("auto", {**rank, "since_plan": None})).endswith("its plan")
    assert worked_numbers.worst([{"efficiency": 0.9}, {"efficiency": 0.8}]) == {"efficiency": 0.8}
