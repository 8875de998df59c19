"""The page of messages has every warning and error that a user can see."""

from __future__ import annotations

import re

from processes import ROOT
from user_messages import fragments

PAGE = ROOT / "docs" / "troubleshooting.md"


def plain(text: str) -> str:
    return re.sub(r"\s+", " ", text)


def test_every_message_stands_in_the_page_by_its_text() -> None:
    page = plain(PAGE.read_text(encoding="utf-8"))
    missing = [f"{place}: {text}" for place, text in fragments().items() if plain(text) not in page]
    assert not missing, "\n".join(missing)


def test_messages_of_all_parts_are_looked_for() -> None:
    places = list(fragments())
    assert len(places) > 50
    for folder in ("patches/stalloc/train/auto/", "allocator/runtime/", "allocator/torch/", "planner/analysis/"):
        assert any(place.startswith(folder) for place in places), folder


def test_every_row_has_a_message_a_meaning_and_what_to_do() -> None:
    rows = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    assert len(rows) > 50
    for row in rows:
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", row.strip("|"))]
        assert len(cells) == 3, row
        assert all(cells), row
