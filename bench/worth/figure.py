"""What the memory buys, as README and docs/performance.md show it: one table and one picture from the JSON of all rows.

    python bench/worth/figure.py worth.json worth2.json                                  # the table
    python bench/worth/figure.py worth*.json --without trainer --performance             # into docs/performance.md
    python bench/worth/figure.py worth*.json --performance --picture --readme            # README's first figure, too

Of a program that is in several files the last one counts. Programs that no file has stand in the table as not measured.
`--readme` wants all seven.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path
from typing import Any, Optional
from xml.sax.saxutils import escape

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from worth_table import ALLOCATORS, PROGRAMS, megatron_row, name_of, ratio_of, table, without_speed

ROOT = Path(__file__).resolve().parents[2]
BEGIN, END = "<!-- worth: begin -->", "<!-- worth: end -->"
# Of a picture: text, lines, and the bars of ALLOCATORS.
_INKS = {"light": ("#1f2328", "#d1d9e0", ("#9aa4af", "#6e7781", "#1a7f37")),
         "dark": ("#e6edf3", "#3d444d", ("#656c76", "#9198a1", "#3fb950"))}  # fmt: skip
_WIDTH, _LEFT, _BAR, _GAP = 860, 360, 9, 14


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path, metavar="JSON", help="of worth.py, or of bench/megatron/fit.py")
    parser.add_argument("--without", nargs="+", default=[], metavar="PROGRAM", help="count as not measured")
    parser.add_argument("--performance", action="store_true", help="write the table into docs/performance.md")
    parser.add_argument("--picture", action="store_true", help="write docs/worth-light.svg and docs/worth-dark.svg")
    parser.add_argument("--readme", action="store_true", help="put the picture in the place of README's first one")
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


def put_between(text: str, content: str, where: str) -> str:
    """Between the two marks. ValueError where they are not there."""
    if text.count(BEGIN) != 1 or text.count(END) != 1:
        raise ValueError(f"{where}: expected {BEGIN} and {END}, once each")
    return text[: text.index(BEGIN) + len(BEGIN)] + "\n" + content + text[text.index(END) :]


def speed_of(row: dict[str, Any], allocator: str) -> Optional[float]:
    """Over expandable_segments'; of lengths where they count. None: nothing fits, or is known."""
    one, peers = row["allocators"].get(allocator), row["allocators"].get("expandable")
    if not one or not one["best"] or not peers or not peers["best"]:
        return None
    if row["longest"]:
        return float(one["micro_batch"] / peers["micro_batch"])
    return float(one["tokens_per_second"]["mean"] / peers["tokens_per_second"]["mean"])


def picture(rows: list[dict[str, Any]], kind: str) -> str:
    """Bars: tokens a second over those of expandable_segments, for each program and allocator; as SVG."""
    text, line, inks = _INKS[kind]
    measured = [row for row in rows if ratio_of(row) is not None]
    most = max((speed_of(row, name) or 0.0 for row in measured for name in ALLOCATORS), default=1.0)
    unit = (_WIDTH - _LEFT - 60) / max(most, 1.0)
    height = 64 + len(measured) * (len(ALLOCATORS) * (_BAR + 1) + _GAP)
    parts = ['<text x="8" y="20" font-weight="600">Tokens a second on the same card, over expandable_segments\'</text>']
    for i, name in enumerate(ALLOCATORS):
        x = _LEFT + 150 * i
        label = {"expandable": "expandable_segments"}.get(name, name)
        parts.append(
            f'<rect x="{x}" y="32" width="10" height="10" fill="{inks[i]}"/><text x="{x + 15}" y="41">{label}</text>'
        )
    y = 56
    for row in measured:
        parts.append(f'<text x="{_LEFT - 8}" y="{y + 19}" text-anchor="end">{escape(name_of(row))}</text>')
        for i, name in enumerate(ALLOCATORS):
            speed = speed_of(row, name)
            at = y + i * (_BAR + 1)
            parts.append(
                f'<rect x="{_LEFT}" y="{at}" width="{unit * (speed or 0):.1f}" height="{_BAR}" fill="{inks[i]}"/>'
            )
            told = f"{speed:.2f}" if speed else without_speed(row["allocators"].get(name))
            parts.append(f'<text x="{_LEFT + unit * (speed or 0) + 5:.1f}" y="{at + 8}" font-size="9">{told}</text>')
        y += len(ALLOCATORS) * (_BAR + 1) + _GAP
    one = _LEFT + unit
    parts.append(f'<line x1="{one:.1f}" x2="{one:.1f}" y1="50" y2="{y - 6}" stroke="{line}"/>')
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" fill="{text}"'
    return f'{head} font-family="sans-serif" font-size="12">\n' + "\n".join(parts) + "\n</svg>\n"


def readme(text: str, rows: list[dict[str, Any]]) -> str:
    """README with the picture of the rows as its first. ValueError where a row is missing."""
    missing = [row["program"] for row in rows if ratio_of(row) is None]
    if missing:
        raise ValueError(f"README's first figure is of all rows; not measured: {', '.join(missing)}")
    ratios = ", ".join(f"{name_of(row).partition(',')[0]} {ratio_of(row):.2f}" for row in rows)
    told = (
        '<picture>\n  <source media="(prefers-color-scheme: dark)" srcset="docs/worth-dark.svg">\n'
        f'  <img alt="Tokens a second of stalloc over those of expandable_segments: {escape(ratios)}" '
        'src="docs/worth-light.svg">\n'
        "</picture>"
    )
    changed, count = re.subn(r"<picture>.*?</picture>", lambda _: told, text, count=1, flags=re.DOTALL)
    if not count:
        raise ValueError("README.md: expected a <picture>, found none")
    return changed


def main() -> int:
    chosen = parse_arguments()
    rows = rows_of(chosen.files, chosen.without)
    print(table(rows), end="")
    try:
        if chosen.performance:
            path = ROOT / "docs" / "performance.md"
            path.write_text(put_between(path.read_text(), table(rows), path.name))
        if chosen.picture:
            for kind in _INKS:
                (ROOT / "docs" / f"worth-{kind}.svg").write_text(picture(rows, kind))
        if chosen.readme:
            (ROOT / "README.md").write_text(readme((ROOT / "README.md").read_text(), rows))
    except ValueError as error:
        print(f"figure.py: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
