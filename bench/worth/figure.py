"""What the memory buys, as one table from the JSON of all rows: what was chosen, predicted and what bounds it.

    python bench/worth/figure.py worth.json worth2.json                                  # the table
    python bench/worth/figure.py worth*.json --without trainer --write                   # into bench/worth/README.md

Of a program that is in several files the last one counts. Programs that no file has stand in the table as not measured.
docs/performance.md has the speeds alone (scripts/figures).
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from worth_table import PROGRAMS, hand_table, megatron_row, table

BEGIN, END = "<!-- worth: begin -->", "<!-- worth: end -->"
HAND = "<!-- by hand: begin -->", "<!-- by hand: end -->"


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path, metavar="JSON", help="of worth.py, or of bench/megatron/fit.py")
    parser.add_argument("--without", nargs="+", default=[], metavar="PROGRAM", help="count as not measured")
    parser.add_argument("--write", action="store_true", help="write the table into bench/worth/README.md")
    return parser.parse_args()


def rows_of(files: list[Path], without: list[str]) -> list[dict[str, Any]]:
    """In the order of the table; what is not measured is an error of that text."""
    found: dict[str, dict[str, Any]] = {}
    for path in files:
        content = json.loads(path.read_text())
        for row in [megatron_row(content)] if "runs" in content else content["rows"]:
            key = next((key for key in PROGRAMS if row["program"].startswith(key)), row["program"])
            if key not in without and "error" not in row:
                found[key] = row
    missing = {"error": "not measured", "longest": False, "allocators": {}}
    return [found.get(key, {"program": key, **missing}) for key in PROGRAMS]


def put_between(text: str, content: str, where: str, marks: tuple[str, str] = (BEGIN, END)) -> str:
    """Between the two marks. ValueError where they are not there."""
    begin, end = marks
    if text.count(begin) != 1 or text.count(end) != 1:
        raise ValueError(f"{where}: expected {begin} and {end}, once each")
    return text[: text.index(begin) + len(begin)] + "\n" + content + text[text.index(end) :]


def main() -> int:
    chosen = parse_arguments()
    rows = rows_of(chosen.files, chosen.without)
    print(table(rows), hand_table(rows), sep="\n", end="")
    try:
        if chosen.write:
            path = Path(__file__).with_name("README.md")
            text = put_between(path.read_text(), table(rows), path.name)
            hand = hand_table(rows)
            path.write_text(put_between(text, hand, path.name, HAND) if hand else text)
    except ValueError as error:
        print(f"figure.py: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
