"""The table of what each pass of the portfolio is worth, from results of `plan_quality_bench --without`.

    build/release/bench/plan_quality_bench --without all --threads 1 --time-limit 2 --json PART.json
    python bench/plan_quality/ablation.py PART.json ... [--json WHOLE.json]     # as the README has it

Parts (by --instance) are put together; their time limits may differ.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from documents import aligned

Row = dict[str, Any]
HEADER = ["without", "packings", "plans", "held", "hand-overs", "scatter", "seconds"]


def ablation_table(rows: list[Row]) -> str:
    """One line a pass: percent higher (held: more) without it, on average, and the worst with its instance."""
    whole = {row["instance"]: row for row in rows if not row["without"]}
    lines = [HEADER]
    for name in dict.fromkeys(row["without"] for row in rows if row["without"]):
        pairs = [(whole[row["instance"]], row) for row in rows if row["without"] == name]
        plans = [pair for pair in pairs if "held" in pair[1]]
        packings = [pair for pair in pairs if "held" not in pair[1]]
        lines.append(
            [
                name,
                _loss(packings, "height"),
                _loss(plans, "height"),
                _loss(plans, "held"),
                f"{sum(without['hand_overs'] - row['hand_overs'] for row, without in plans):+d}",
                f"{_mean(100 * (without['scatter'] - row['scatter']) for row, without in plans):+.2f}",
                f"{sum(row['seconds'] for row, _ in pairs):.0f} -> {sum(row['seconds'] for _, row in pairs):.0f}",
            ]
        )
    return aligned(lines, markdown=True)


def _loss(pairs: list[tuple[Row, Row]], key: str) -> str:
    losses = {row["instance"]: 100 * (without[key] / row[key] - 1) for row, without in pairs}
    if not losses:
        return "-"
    worst = max(losses, key=lambda name: losses[name])
    mean = f"{_mean(losses.values()):.3f}"
    return f"{mean} ({losses[worst]:.3f} {worst.removeprefix('plan/')})" if losses[worst] > 0 else mean


def _mean(values: Iterable[float]) -> float:
    all_of_them = list(values)
    return sum(all_of_them) / max(len(all_of_them), 1)


def merged(parts: list[Row]) -> Row:
    """One document with the rows of all parts, each with its time limit."""
    results = [{"time_limit_s": part.get("time_limit_s"), **row} for part in parts for row in part["results"]]
    head = {key: value for key, value in parts[0].items() if key not in ("results", "time_limit_s", "command_line")}
    return {**head, "results": results}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="+", type=Path)
    parser.add_argument("--json", type=Path, help="write all parts here as one")
    arguments = parser.parse_args()
    whole = merged([json.loads(part.read_text()) for part in arguments.parts])
    if arguments.json:
        rows = ",\n".join(json.dumps(row) for row in whole.pop("results"))
        arguments.json.write_text(f'{json.dumps(whole)[:-1]}, "results": [\n{rows}]}}\n')
        whole = json.loads(arguments.json.read_text())
    print(ablation_table(whole["results"]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
