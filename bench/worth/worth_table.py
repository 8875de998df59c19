"""The rows of worth.py as a table, and Megatron-LM's row from what bench/megatron/fit.py has left."""

from __future__ import annotations

import random
from typing import Any, Optional

from documents import GIB

ALLOCATORS = ("native", "expandable", "stalloc")

PROGRAMS = {  # in the order of the table
    "fsdp2-packed": "FSDP2, two GPUs, packed rows, compiled blocks",
    "lora": "LoRA, Llama 3 8B's shapes, rows of 512 to 12288 tokens",
    "trainer": "transformers' Trainer, Llama 3.2 3B's shapes, padded",
    "experts": "16 dropless experts in 12 layers",
    "captured": "64 experts of a fixed capacity in 28 layers",
    "rollout": "rollout over a growing cache, then an update",
    "Megatron-LM": "Megatron-LM, interleaved pipeline, two GPUs",
    "long": "the longest sequence, Llama 3.2 1B's shapes",
}
_COLUMNS = ("program", "native", "expandable_segments", "**stalloc**", "stalloc / expandable")
_HEAD = f"| {' | '.join(_COLUMNS)} | predicted: peak, step | what bound it |"
_UNIT = 256  # tokens of a unit of a sequence's length
_DRAWS = 2000  # of the steps, for an interval
_SLOW = ("arena_move_seconds", "arena_map_seconds")  # what moves wait for is in them

Row = dict[str, Any]


def table(rows: list[Row]) -> str:
    """As Markdown: one row a program; tokens a second with what was chosen for them."""
    lines = [_HEAD, "|---|---|---|---|---|---|---|"]
    for row in rows:
        if "error" in row:
            lines.append(f"| {name_of(row)} | {row['error'].splitlines()[0]} | | | | | |")
            continue
        found = row["allocators"]
        cells = [_cell(found.get(name), row["longest"]) for name in ALLOCATORS]
        off = _off(found.get("stalloc"))
        lines.append(f"| {name_of(row)} | {' | '.join(cells)} | {_ratio(row)} | {off} | {bound_of(row)} |")
    return "\n".join(lines) + "\n"


_HANDS = ("hand-native", "hand-expandable", "budget", "stalloc", "stalloc-offload", "stalloc-graphs")
_HAND_HEAD = (
    "| program | by hand, native | by hand, expandable_segments | compiled, torch's budget | **stalloc** | with "
    "offload | with graphs | over by hand | over expandable_segments' best | what bounds it |"
)


def hand_table(rows: list[Row]) -> str:
    """As Markdown: what people do by hand next to what was chosen, of the rows that have both; "": none has."""
    lines = [_HAND_HEAD, f"|{'---|' * 10}"]
    for row in rows:
        found = row.get("allocators", {})
        if not any(name in found for name in _HANDS[:3]):
            continue
        cells = [_cell(found.get(name), row["longest"]) for name in _HANDS]
        over = [_over(row, name) for name in ("hand-expandable", "expandable")]
        lines.append(f"| {name_of(row)} | {' | '.join([*cells, *over])} | {_hand_bound(row)} |")
    return "\n".join(lines) + "\n" if len(lines) > 2 else ""


def fastest_of_ours(row: Row) -> Optional[Row]:
    """Of stalloc with and without offload and graphs, or the longest; None: neither trained."""
    tried = [row["allocators"].get(name) for name in _HANDS[3:]]
    ours = [one for one in tried if one and one["best"]]
    return max(ours, key=lambda one: float(_worth(row, one)), default=None)


def _worth(row: Row, one: Row) -> float:
    return float(one["micro_batch"] if row["longest"] else one["tokens_per_second"]["mean"])


def _over(row: Row, name: str) -> str:
    ours, other = fastest_of_ours(row), row["allocators"].get(name)
    if not ours or not other or not other["best"]:
        return without_speed(other) if ours else ""
    return f"{_worth(row, ours) / _worth(row, other):.3f}"


def _hand_bound(row: Row) -> str:
    """What most of the chosen step waits for, and what its memory was good for."""
    ours = fastest_of_ours(row)
    if not ours:
        return ""
    predicted, said = ours["predicted"] or {}, []
    if predicted.get("step_bound"):
        said.append(f"the {predicted['step_bound']} (the host {100 * predicted['host_share']:.0f} % of the step)")
    hand = row["allocators"].get("hand-expandable")
    if hand and hand["best"]:
        said.append(f"micro-batches of {hand['micro_batch']} by hand, {ours['micro_batch']} chosen")
    said.append(f"{len(ours['recomputed'])} parts recomputed, {len(ours.get('offloaded', []))} offloaded")
    return "; ".join(said)


def name_of(row: Row) -> str:
    program = row["program"]
    return next((name for key, name in PROGRAMS.items() if program.startswith(key)), program)


def without_speed(one: Optional[Row]) -> str:
    """Why an allocator has none."""
    return "" if not one else "no attempt fits" if one["attempts"] else "not tried"


def _cell(one: Optional[Row], longest: bool) -> str:
    if not one or not one["best"] or not one["tokens_per_second"]:
        return without_speed(one)
    speed, held = f"{one['tokens_per_second']['mean']:.0f}", f"{one['held_bytes'] / GIB:.1f} GiB"
    if longest:
        return f"{one['micro_batch'] * _UNIT} tokens: {speed}, {held}"
    return f"{speed}: {one['best']}, {held}"


def ratio_of(row: Row) -> Optional[float]:
    """stalloc's over expandable_segments': tokens a second, or the length."""
    ours, peers = (row["allocators"].get(name) for name in ("stalloc", "expandable"))
    if not ours or not peers or not ours["best"] or not peers["best"]:
        return None
    if row["longest"]:
        return float(ours["micro_batch"] / peers["micro_batch"])
    return float(ours["tokens_per_second"]["mean"] / peers["tokens_per_second"]["mean"])


def interval_of(row: Row) -> Optional[tuple[float, float]]:
    """Of the ratio, 95 %: steps are drawn anew, the same of both. A step with a retry is rare, and long: it counts."""
    ours, peers = (row["allocators"][name] for name in ("stalloc", "expandable"))
    own, theirs = ours.get("seconds"), peers.get("seconds")
    if row["longest"] or not own or not theirs or ours["tokens"] != peers["tokens"]:
        return None
    draw, count = random.Random(7), len(own)
    found = []
    for _ in range(_DRAWS):
        steps = [draw.randrange(count) for _ in range(count)]
        found.append(sum(theirs[i] for i in steps) / sum(own[i] for i in steps))
    found.sort()
    return found[int(0.025 * _DRAWS)], found[int(0.975 * _DRAWS)]


def _ratio(row: Row) -> str:
    ratio = ratio_of(row)
    if ratio is None:
        return ""
    if row["longest"]:
        return f"{ratio:.3f} (length)"
    interval = interval_of(row)
    return f"{ratio:.3f}" + (f" ({interval[0]:.3f} to {interval[1]:.3f})" if interval else "")


def _off(one: Optional[Row]) -> str:
    if not one or not one["best"] or not one["live_bytes"] or not one["step_seconds"]:
        return ""
    live = one["predicted"]["live_bytes"] / one["live_bytes"] - 1
    step = one["predicted"]["step_seconds"] / one["step_seconds"] - 1
    least = " (at least)" if one["predicted"].get("step_at_least") else ""
    return f"{100 * live:+.1f} %, {100 * step:+.1f} %{least}"


def bound_of(row: Row) -> str:
    """What the ratio comes from, or why there is none: of what was chosen, and of what was counted."""
    ours, peers = (row["allocators"].get(name) for name in ("stalloc", "expandable"))
    if not ours or not peers or not ours["best"] or not peers["best"]:
        return ""
    said = [_difference(ours, peers, row["longest"])]
    tried = next((each for each in peers["attempts"] if each.get("configuration") == peers["best"]), {})
    retries = sum(count or 0 for count in tried.get("alloc_retries") or [])
    gave_back = _in_steps(peers, "num_alloc_retries")
    if gave_back:
        said.append(f"expandable_segments gave memory back {sum(gave_back)} times in {len(gave_back)} steps")
    elif retries:
        said.append(f"expandable_segments gave memory back {retries} times")
    slow = _in_steps(ours, *_SLOW)
    if slow:
        share = sum(slow) / sum(ours["seconds"][: len(slow)])
        said.append(f"{100 * share:.1f} % of stalloc's steps went into moving and mapping")
    return "; ".join(said)


def _in_steps(one: Row, *names: str) -> list[float]:
    """What was counted under these names together, by step: of steps that count. Older rows have it of their first run
    alone, and of its first steps as well."""
    counted = one.get("counted") or {}
    return [sum(step) for step in zip(*(counted.get(name, [])[-len(one["seconds"]) :] for name in names))]


def _difference(ours: Row, peers: Row, longest: bool) -> str:
    if ours["best"] == peers["best"] and ours.get("recomputed") == peers.get("recomputed"):
        return "the same trains under both"
    if longest:
        return f"{_UNIT * (ours['micro_batch'] - peers['micro_batch'])} tokens more"
    if not ours.get("predicted") or not peers.get("predicted"):
        return "another configuration trains"
    speeds = [sum(one.get("tokens") or [1]) / one["predicted"]["step_seconds"] for one in (ours, peers)]
    return f"by the prediction {100 * (speeds[0] / speeds[1] - 1):+.1f} % from what fits"


def megatron_row(document: Row) -> Row:
    """From bench/megatron/fit.py: the fastest that trained under each allocator, with what it recomputed."""
    names = {"native": "native", "expandable": "expandable", "alloc": "stalloc"}
    found: Row = {}
    for mode, name in names.items():
        runs = [run for run in document["runs"] if run["mode"] == mode and run["trained"] and run["tokens_per_second"]]
        if not runs:
            found[name] = {"attempts": [run for run in document["runs"] if run["mode"] == mode], "best": None}
            continue
        best = max(runs, key=lambda run: run["tokens_per_second"])
        speed, seconds = best["tokens_per_second"], [ms / 1e3 for ms in best.get("steps_ms", [])]
        layers = best["recomputed_layers_of_a_chunk"]
        found[name] = {
            "attempts": runs,
            "best": best.get("recomputed") or (f"{layers} layers of a chunk recomputed" if layers else _NOTHING),
            "tokens_per_second": {"mean": speed, "interval": [speed, speed], "steps": max(1, len(seconds))},
            "seconds": seconds,
            "tokens": [float(document.get("tokens_of_a_step", 0))] * len(seconds),
            "held_bytes": max(best["held_bytes"]),
            **_came(best),
        }
    return {"program": f"Megatron-LM {document['workload']}", "longest": False, "allocators": found}


def _came(run: Row) -> Row:
    """Of the rank with most live bytes what was predicted and what came."""
    known, live = run.get("predicted"), [each or 0 for each in run.get("live_bytes") or []]
    if not known or not any(live):
        return {"live_bytes": 0, "step_seconds": None}
    rank = max(range(len(live)), key=lambda i: live[i])
    predicted = {"live_bytes": known["live_bytes"][rank], "step_seconds": known["step_seconds"]}
    return {"live_bytes": live[rank], "step_seconds": run["step_ms"] / 1e3, "predicted": predicted}


_NOTHING = "nothing recomputed"
