"""The tokens that experts received, against the memory that they used.

Tokens are those that stalloc.megatron writes next to a trace (train/marking/experts.py), or that Megatron-LM writes
with --save-tokens-per-expert-interval: SAVE/tokens_per_expert/rank0.jsonl, a line for each iteration and layer,
{"iter": 100, "block": "decoder", "layer": 3, "tpe": [[128, 64], [96, 80]]}; tpe has a list for each micro-batch, with a
number for each expert of the rank, and iterations count from 1; here from 0.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Optional

from stalloc.tools.report.collect import CollectError


def read_tokens(directory: Path, rank: int) -> dict[int, dict[str, float]]:
    """By iteration: `tokens`, of all layers and experts of the rank; `uneven`, the busiest expert of a layer over the
    mean of its layer, the greatest of all layers. CollectError where a line is not Megatron-LM's; empty without a file.
    """
    name = f"rank{rank}.jsonl"
    places = (directory / "tokens_per_expert" / name, directory / name, directory / f"rank{rank:05d}.experts.jsonl")
    path = next((place for place in places if place.is_file()), None)
    if path is None:
        return {}
    found: dict[int, dict[str, float]] = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        try:
            entry = json.loads(line)
            experts = [sum(counts) for counts in zip(*entry["tpe"])]
            row = found.setdefault(int(entry["iter"]) - 1, {"tokens": 0, "uneven": 0.0})
        except (KeyError, TypeError, ValueError) as error:
            raise CollectError(f'{path}, line {number}: expected {{"iter": ..., "tpe": [[...]]}}: {error!r}') from error
        row["tokens"] += sum(experts)
        if sum(experts):
            row["uneven"] = max(row["uneven"], max(experts) * len(experts) / sum(experts))
    return found


def known_ranks(directory: Path) -> list[int]:
    """The ranks that have a file. CollectError if none has: it is another directory, or Megatron-LM wrote none."""
    names = (directory / "tokens_per_expert").glob("rank*.jsonl"), directory.glob("rank*.jsonl")
    matches = [re.fullmatch(r"rank(\d+)\.jsonl", path.name) for found in names for path in found]
    ranks = sorted({int(match[1]) for match in matches if match})
    if not ranks:
        raise CollectError(
            f"{directory} has no tokens_per_expert/rank0.jsonl: give the --save of a run with "
            "--save-tokens-per-expert-interval (Megatron-LM writes it for TransformerEngine's experts alone)"
        )
    return ranks


def iteration_rows(drawn: dict[str, Any], tokens: Mapping[int, dict[str, float]]) -> list[dict[str, Any]]:
    """For one device: each iteration's peak, its varying bytes, and its tokens (None if they are not known)."""
    table = drawn["iterations"]
    rows = []
    for values in list(zip(*table.values()))[1:]:  # without the set-up
        row = dict(zip(table, values))
        known = tokens.get(row["iteration"], {})
        rows.append({**row, "tokens": known.get("tokens"), "uneven": known.get("uneven")})
    return rows


def correlation(rows: Sequence[Mapping[str, Any]]) -> Optional[float]:
    """Pearson's, of tokens and the peak of what varies; None with fewer than three iterations, or no variation."""
    pairs = [(float(row["tokens"]), float(row["dynamic_peak"])) for row in rows if row["tokens"] is not None]
    if len(pairs) < 3:
        return None
    means = [sum(values) / len(pairs) for values in zip(*pairs)]
    both = sum((x - means[0]) * (y - means[1]) for x, y in pairs)
    each = [sum((value - mean) ** 2 for value in values) for values, mean in zip(zip(*pairs), means)]
    return both / math.sqrt(each[0] * each[1]) if each[0] and each[1] else None
