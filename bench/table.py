"""Tables of what bench/run.py has measured: one program's modes, or many programs, a row each.

python bench/table.py results/*.json          # as docs/worked-numbers.md has it
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from pathlib import Path
from typing import Any, Optional

from documents import GIB, aligned, cell
from modes import AUTO, TRACES

Row = dict[str, Any]
_COMPARED = ("losses", "weights")
_HEADS = {"native": "native", "expandable": "expandable_segments", "alloc": "**stalloc** Alloc", "auto": "stalloc Auto"}
# Modes run one after the other, maybe next to other jobs: their steps give no ratio.
COLUMNS = """\
live: bytes of live tensors at the peak; held: bytes that the allocator reserved at most; E: live / held
step: median time, without the first third (modes run one after the other: bench/card/card.py compares times)
hits: requests of steady iterations that got the slot planned for them"""
_MOST_OVER_BOUND = 1.01  # of an arena, over the lower bound of its packing


def rows_of(runs: dict[str, list[Row]], plan: Optional[Row]) -> list[Row]:
    """One a mode and rank; ratios are against native where it was run."""
    return [_row(runs, plan, mode, rank) for mode, ranks in runs.items() for rank in range(len(ranks))]


def _row(runs: dict[str, list[Row]], plan: Optional[Row], mode: str, rank: int) -> Row:
    run = runs[mode][rank]
    row: Row = {"mode": mode, "rank": rank}
    if "out_of_memory" in run:
        return {**row, "out_of_memory": run["out_of_memory"]}
    summary = run.get("summary")
    live = _live(runs, mode, rank)
    held = summary["held_peak_bytes"] if summary else run["held_bytes"]
    since = (summary or {}).get("since_plan")
    if mode in AUTO:
        row |= {"run_efficiency": _ratio(live, held), "stages": run["stages"], "planned": bool(since)}
    if since:
        live, held = since["peak_live_bytes"], since["held_peak_bytes"]
    row |= {"live_bytes": live, "held_bytes": held, "efficiency": _ratio(live, held)}
    row |= _against_native(runs, run, rank)
    if mode == "alloc" and summary:
        steady = summary["steady"]
        row |= {"hit_rate": steady["hits"] / max(steady["requests"], 1), "misses": summary["misses"]}
    graphs = (
        None if plan is None else plan["ranks"][min(rank, len(plan["ranks"]) - 1)]["report"]["devices"][0]["graphs"]
    )
    if graphs is not None and held:
        needed = graphs["needed_bytes"]
        row |= {"needed_bytes": needed, "device_efficiency": min(needed, held) / held}
    return row


def _live(runs: dict[str, list[Row]], mode: str, rank: int) -> Optional[int]:
    """Peak live bytes: the run's own where stalloc counted them, else Alloc's or the trace's, else PyTorch's."""
    for source in (mode, "alloc", *TRACES):
        ranks = runs.get(source, [])
        if rank < len(ranks) and "summary" in ranks[rank]:
            return int(ranks[rank]["summary"]["peak_live_bytes"])
    return runs[mode][rank]["live_bytes"]


def _ratio(live: Optional[int], held: Optional[int]) -> Optional[float]:
    return live / held if live and held else None


def _against_native(runs: dict[str, list[Row]], run: Row, rank: int) -> Row:
    """Steps and what was computed."""
    seconds = run["step_seconds"]
    row: Row = {"step_seconds": statistics.median(seconds[len(seconds) // 3 :]) if seconds else None}
    row["last_loss"] = (run["printed"].get("losses") or [None])[-1]
    native = runs.get("native", [])
    if rank >= len(native) or "out_of_memory" in native[rank]:
        return row
    row["step_ratio"] = settled_ratio(seconds, native[rank]["step_seconds"])
    for what in _COMPARED:
        if what in native[rank]["printed"]:
            row[f"{what}_equal"] = run["printed"].get(what) == native[rank]["printed"][what]
    return row


def settled_ratio(seconds: list[float], native: list[float]) -> Optional[float]:
    """Of the median steps of the iterations that both runs have, the first third left out: a training step is slowest
    in its first iterations, long beyond the warm-up."""
    shared = min(len(seconds), len(native))
    if shared == 0:
        return None
    return statistics.median(seconds[shared // 3 : shared]) / statistics.median(native[shared // 3 : shared])


def modes_table(rows: list[Row], markdown: bool = False) -> str:
    header = ["mode", "live GiB", "held GiB", "E %", "step ms", "hits %", "losses = native", "last loss"]
    several = any(row["rank"] for row in rows)
    lines = [header]
    for row in rows:
        name = f"{row['mode']} {row['rank']}" if several else row["mode"]
        if "out_of_memory" in row:
            lines.append([name, "-", "out of memory", *["-"] * (len(header) - 3)])
            continue
        line = [name, cell(row["live_bytes"], 1 / GIB, 3), cell(row["held_bytes"], 1 / GIB, 3)]
        line += [cell(row["efficiency"], 100, 2), cell(row["step_seconds"], 1e3, 1)]
        line.append(cell(row.get("hit_rate"), 100, 3))
        line.append({None: "-", True: "yes", False: "NO"}[row.get("losses_equal")])
        lines.append([*line, cell(row["last_loss"], 1, 6)])
    return aligned(lines, markdown)


def remarks(rows: list[Row], plan: Optional[Row]) -> list[str]:
    """What no cell can say: E of the device where graphs were captured; on a CPU, what PyTorch would hold."""
    found = []
    known = [row for row in rows if "device_efficiency" in row]
    if known:
        shares = ", ".join(f"{row['mode']} {100 * row['device_efficiency']:.2f} %" for row in known)
        needed = known[0]["needed_bytes"] / GIB
        found.append(f"captured graphs: the device needs {needed:.3f} GiB; E of the device: {shares}")
    device = None if plan is None else plan["ranks"][0]["report"]["devices"][0]
    if device is not None and device["device"] < 0:
        native, share = device["simulated"]["native_bytes"], device["simulated"]["native_efficiency"]
        text = f"PyTorch's allocator would hold {native / GIB:.3f} GiB, E {100 * share:.2f} %"
        found.append(f"{text} (simulated from the trace)")
    return found


def problems_of(rows: list[Row], plan: Optional[Row], chosen: argparse.Namespace) -> list[str]:
    """What run.py --check refuses."""
    found = []
    for row in rows:
        mode = row["mode"]
        if "out_of_memory" in row:
            found.append(f"{mode}: out of memory")
            continue
        if row.get("losses_equal") is False:
            found.append(f"{mode}: losses differ from native's")
        if row.get("weights_equal") is False:
            found.append(f"{mode}: weights differ from native's at the end")
        if mode != "alloc":
            continue
        if row["hit_rate"] * 100 < chosen.min_hits:
            found.append(f"alloc: steady hit rate {row['hit_rate']:.5%}, expected at least {chosen.min_hits} %")
        if (row["efficiency"] or 0.0) * 100 < chosen.min_efficiency:
            found.append(f"alloc: E {row['efficiency']}, expected at least {chosen.min_efficiency} %")
        if chosen.max_step_ratio is not None and (row.get("step_ratio") or 0.0) > chosen.max_step_ratio:
            found.append(f"alloc: a step takes {row['step_ratio']:.4f} x native's, at most {chosen.max_step_ratio}")
    devices = [device for rank in (plan or {"ranks": []})["ranks"] for device in rank["report"]["devices"]]
    ratios = [float(device["plan"]["ratio"]) for device in devices]
    limit = _MOST_OVER_BOUND
    return found + [
        f"plan: the arena is {r:.4f} x its lower bound, expected at most {limit}" for r in ratios if r > limit
    ]


def programs_table(documents: list[Row]) -> str:
    """A row a program, of its worst rank; what PyTorch would hold on a CPU is simulated from the trace."""
    lines = ["| program (live) | " + " | ".join(_HEADS.values()) + " | losses |", "|---" * (len(_HEADS) + 2) + "|"]
    for document in documents:
        worst = {mode: _worst(document, mode) for mode in _HEADS}
        name = f"`{Path(document['program'][0]).name}`" + (f", {document['ranks']} ranks" * (document["ranks"] > 1))
        live = next((row["live_bytes"] for row in worst.values() if row and row.get("live_bytes")), None)
        equal = [row["losses_equal"] for row in document["rows"] if "losses_equal" in row]
        losses = "" if not equal else "equal" if all(equal) else "**differ**"
        cells = " | ".join(_held_cell(row) for row in worst.values())
        lines.append(f"| {name} ({_size(live)}) | {cells} | {losses} |")
    return "\n".join(lines) + "\n"


def _worst(document: Row, mode: str) -> Optional[Row]:
    rows = [row for row in document["rows"] if row["mode"] == mode]
    simulated = {"native": "native_bytes", "expandable": "expandable_segments_bytes"}.get(mode)
    if simulated and document["plan"] and not any(row.get("held_bytes") for row in rows):
        devices = [rank["report"]["devices"][0] for rank in document["plan"]["ranks"]]
        rows = [{"live_bytes": d["peak"]["live_bytes"], "held_bytes": d["simulated"][simulated]} for d in devices]
        rows = [{**row, "efficiency": _ratio(row["live_bytes"], row["held_bytes"])} for row in rows]
    return min(rows, key=lambda row: row.get("efficiency") or 0.0, default=None)


def _held_cell(row: Optional[Row]) -> str:
    if row is None or not row.get("efficiency"):
        return "out of memory" if row and "out_of_memory" in row else "-"
    early = ", ended before its plan" if row.get("planned") is False else ""
    return f"{_size(row['held_bytes'])}, {100 * row['efficiency']:.1f} %{early}"


def _size(count: Optional[int]) -> str:
    if count is None:
        return "-"
    return f"{count / 2**30:.2f} GiB" if count >= 2**30 else f"{count / 2**20:.1f} MiB"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path, metavar="JSON", help="of bench/run.py")
    print(programs_table([json.loads(path.read_text()) for path in parser.parse_args().files]), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
