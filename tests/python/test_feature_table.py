"""The table of features in the documentation: every row is there, and what it names exists."""

from __future__ import annotations

import re

import pytest

from processes import HERE, ROOT
from stalloc import cli

PAGE = ROOT / "docs" / "other-tools.md"
ROWS = [*(f"M{i}" for i in range(1, 12)), *(f"I{i}" for i in range(1, 6)), *(f"D{i}" for i in range(1, 7))]
ROWS += ["G1", "V1", "V2", "S1", *(f"O{i}" for i in range(1, 5))]


def table() -> dict[str, list[str]]:
    lines = PAGE.read_text().splitlines()
    begin = lines.index("| row | what | command | output | test |") + 2
    rows = {}
    for line in lines[begin:]:
        if not line.startswith("|"):
            break
        row, *cells = [cell.strip() for cell in line.strip("|").split("|")]
        assert row not in rows, row
        rows[row] = cells
    return rows


def test_every_row_is_there_with_command_output_and_test() -> None:
    found = table()
    assert list(found) == ROWS
    assert all(len(cells) == 4 and all(cells) for cells in found.values())


@pytest.mark.parametrize("row", ROWS)
def test_what_a_row_names_exists(row: str) -> None:
    _, command, _, tests = table()[row]
    named = re.findall(r"`([^`]+)`", command)
    assert named
    for word in named:
        if word.startswith("STALLOC_"):
            sources = (ROOT / "allocator" / "runtime" / "config.cc", *(ROOT / "patches" / "stalloc").rglob("*.py"))
            assert any(word in path.read_text() for path in sources), word
        else:
            assert word.split()[0] == "stalloc", word
            assert word.split()[1] in cli.COMMANDS, word
    for test in tests.split(", "):
        file, _, function = test.partition("::")
        path = ROOT / file if "/" in file else HERE / file
        places = [path.with_suffix(suffix) for suffix in (".py", ".cc")]
        place = next((place for place in places if place.is_file()), None)
        assert place is not None, f"{test} is not there"
        assert not function or f"def {function}(" in place.read_text(), test
