"""The report as Markdown: what people paste into an issue."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Optional

from stalloc.core.sizes import size
from stalloc.tools.report import figures, unused
from stalloc.tools.report.figures import share

_LARGEST = 15
_MOST_GRAPHS = 24


def render(views: Sequence[dict[str, Any]], ranks: Sequence[dict[str, Any]], title: str) -> str:
    """`ranks` are figures.rank_rows of all ranks; `views` those whose details are wanted."""
    lines = [f"# {title}", ""]
    lines += _rank_table(ranks)
    for view in views:
        for index in range(len(view["devices"])):
            lines += _device(view, index)
    return "\n".join(lines) + "\n"


def _table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    lines = ["| " + " | ".join(header) + " |", "|" + "|".join(" --- " for _ in header) + "|"]
    return [*lines, *("| " + " | ".join(str(cell) for cell in row) + " |" for row in rows), ""]


def _rank_table(ranks: Sequence[dict[str, Any]]) -> list[str]:
    def cells(row: dict[str, Any]) -> list[str]:
        held = [row["native_bytes"], row["expandable_segments_bytes"], row["planned_bytes"], row["run_bytes"]]
        text = [size(value) if value else "-" for value in held]
        experts = [f"{row['tokens']:.0f}", f"{row['uneven']:.2f}"] if row["tokens"] is not None else ["-", "-"]
        cells = [size(row["dynamic_bytes"]), *(experts if with_tokens else []), row["peak_phase"]]
        place = f" ({row['place']})" if row["place"] else ""
        return [f"{row['rank']}{place}", size(row["peak_live_bytes"]), *text, *cells]

    with_tokens = any(row["tokens"] is not None for row in ranks)
    header = ["rank", "peak live", "native holds", "expandable holds", "plan holds", "last run held", "dynamic, most"]
    header += [*(["tokens, most", "busiest expert / mean"] if with_tokens else []), "peak in"]
    lines = _table(header, (cells(row) for row in ranks))
    if len(ranks) > 1:
        uneven = figures.imbalance([row["peak_live_bytes"] for row in ranks])
        lines += [
            f"Imbalance of the peak: greatest / mean {uneven['greatest_over_mean']:.3f}, "
            f"from {size(uneven['least'])} to {size(uneven['greatest'])}.",
            "",
        ]
    return lines


def _device(view: dict[str, Any], index: int) -> list[str]:
    report, drawn = view["rank"]["devices"][index], view["devices"][index]
    of_device = figures.device_figures(view, index)
    live = of_device["peak_live_bytes"]
    name = figures.device_name(report["device"])
    place = f" ({view['place']})" if view.get("place") else ""
    lines = [f"## Rank {view['rank']['rank']}{place}, {name}", ""]
    often = f"; {view['peak_often'][index]}" if view["peak_often"][index] else ""
    lines += [
        f"Peak: {size(live)} ({live} bytes) live in {of_device['peak_phase']}{often}.",
        "",
        f"{drawn['worth']}.",
        "",
    ]
    lines += [view["inside"][index], ""] if view["inside"][index] else []
    for row in view["best_changes"][index]:
        least = "at least " if row["at_least"] else ""
        more = (
            f"{size(row['grows'])} more in every iteration"
            if row["grows"]
            else f"{least}{size(row['saves_bytes'])} less"
        )
        lines += [f"- {more}: {row['what']}"]
    lines += ["", *([" ".join(view["hints"][index]), ""] if view["hints"][index] else [])]
    lines += _table(
        ["class", "live at the peak", "share"],
        ((key, size(count), share(count / live)) for key, count in of_device["by_class"].items() if count),
    )
    lines += _table(
        ["allocator", "holds", "E", "how"],
        (
            (row["name"], size(row["held_bytes"]), share(row["efficiency"]), row["how"])
            for row in of_device["allocators"]
        ),
    )
    lines += _card(view["card"][index])
    lines += _advice(view, index) + _largest(view, drawn) + _unused(view, index)
    lines += _phases(drawn, report["peak"]["segment"])
    lines += _layers(drawn) + _costly(view, drawn) + _graph_pools(drawn) + _graph_needs(report)
    lines += _graph_finding(view["graphs"][index])
    lines += _iterations(view, index)
    lines += _estimate(view) if index == 0 else []
    return lines + [f"- {text}" for text in (*report["warnings"], *report["notes"])] + [""]


def _card(found: Optional[dict[str, Any]]) -> list[str]:
    if found is None:
        return []
    rows = [(row["name"], size(row["bytes"])) for row in found["rows"]]
    rows += [("together", size(found["sum_bytes"])), ("free", size(found["free_bytes"]))]
    return ["### Every byte of the GPU", "", found["sentence"], "", *_table(["what", "bytes"], rows)]


def _iterations(view: dict[str, Any], index: int) -> list[str]:
    if not any(row["dynamic_peak"] for row in view["iterations"][index]):
        return []
    rows = (
        (
            row["iteration"],
            *(size(row[key]) for key in ("peak_live", "dynamic_peak", "dynamic_requested")),
            "-" if row["tokens"] is None else f"{row['tokens']:.0f}",
            "-" if row["uneven"] is None else f"{row['uneven']:.2f}",
        )
        for row in view["iterations"][index]
    )
    header = ["iteration", "peak", "dynamic, most", "dynamic requested", "tokens in experts", "busiest expert / mean"]
    correlation = view["correlation"][index]
    tail = [] if correlation is None else [f"Correlation of tokens and dynamic bytes: {correlation:.2f}.", ""]
    return ["### What varies, by iteration", "", *_table(header, rows), *tail]


def _estimate(view: dict[str, Any]) -> list[str]:
    if view["estimate"] is None:
        return []
    rows = (
        (row["name"], size(row["estimate"]), "-" if row["measured"] is None else size(row["measured"]), row["why"])
        for row in view["estimate"]
    )
    return ["### Estimate against measured", "", *_table(["class", "estimate", "measured", "what it is"], rows)]


def _advice(view: dict[str, Any], index: int) -> list[str]:
    rows = (
        (
            ("at least " if row["at_least"] else "") + size(row["saves_bytes"]),
            "live" if row["of_live"] else "held",
            row["what"],
            row["how_to"],
            row["cost"],
            row["how_known"],
        )
        for row in view["advice"][index]
    )
    if not view["advice"][index]:
        return ["### What would lower it", "", "Nothing was found that lowers the peak by 1 % or more.", ""]
    return ["### What would lower it", "", *_table(["saves", "of", "change", "set", "cost", "known from"], rows)]


def _largest(view: dict[str, Any], drawn: dict[str, Any]) -> list[str]:
    peak = drawn["peak"]
    rows = (
        (
            size(peak["bytes"][i]),
            peak["count"][i],
            size(peak["bytes"][i] * peak["count"][i]),
            view["classes"][peak["class"][i]],
            drawn["layers"][peak["layer"][i]] or "-",
            peak["phase"][i],
            peak["freed_in"][i] or "never",
        )
        for i in range(min(_LARGEST, len(peak["bytes"])))
    )
    header = ["block", "count", "together", "class", "layer", "allocated in", "freed in"]
    return ["### What is live at the peak", "", *_table(header, rows)]


def _unused(view: dict[str, Any], index: int) -> list[str]:
    found = unused.rows(view, index)
    if not found:
        return []
    rows = (
        (unused.worded(row), unused.HOW[row["kind"]], unused.when(row), size(row["at_peak"]), size(row["saves_bytes"]))
        for row in found[:_LARGEST]
    )
    table = _table(["blocks", "how", "for how long, at most", "of the peak", "lowers it by"], rows)
    peaks = _table(["if", "the peak is"], ((what, size(peak)) for what, peak in unused.summary(view, index)))
    return ["### What is held without use", "", *peaks, *table]


def _phases(drawn: dict[str, Any], segment: int) -> list[str]:
    phases = drawn["phases"]
    rows = (
        (
            phases["name"][i],
            *(size(phases[key][i]) for key in ("begin_live", "peak_live", "end_live", "spike")),
            phases["requests"][i],
        )
        for i in range(len(phases["name"]))
        if phases["segment"][i] == segment
    )
    header = ["phase", "live before", "peak", "live after", "spike", "requests"]
    return ["### Phases of the peak's iteration", "", *_table(header, rows)]


def _layers(drawn: dict[str, Any]) -> list[str]:
    table = drawn["layer_table"]
    order = sorted(range(len(table["layer"])), key=lambda i: -int(table["most_rise"][i]))[:_LARGEST]
    if not order:
        return []
    rows = (
        (
            drawn["layers"][table["layer"][i]],
            table["pass"][i] or "-",
            *(size(table[key][i]) for key in ("most_rise", "most_spike", "most_net", "peak_live")),
            table["visits"][i],
        )
        for i in order
    )
    header = ["layer", "pass", "rise", "spike", "net", "device live inside", "visits"]
    return ["### Layers that rise most", "", *_table(header, rows)]


def _costly(view: dict[str, Any], drawn: dict[str, Any]) -> list[str]:
    top = drawn["top_blocks"]
    order = sorted(range(len(top["bytes"])), key=lambda i: -float(top["byte_seconds"][i]))[:_LARGEST]
    whole = top["all_byte_seconds"]
    rows = (
        (
            f"{size(top['byte_seconds'][i])} s",
            share(top["byte_seconds"][i] / whole if whole else None),
            size(top["bytes"][i]),
            top["count"][i],
            view["classes"][top["class"][i]],
            drawn["layers"][top["layer"][i]] or "-",
            drawn["roles"][top["role"][i]],
        )
        for i in order
    )
    header = ["size x lifetime", "share", "block", "blocks", "class", "layer", "phase"]
    return ["### What costs most", "", *_table(header, rows)]


def _graph_needs(report: dict[str, Any]) -> list[str]:
    needs = report["graphs"]
    if needs is None:
        return []
    rows = [
        (
            graph["number"],
            graph["pool"] or "not distinguished",
            graph["launches"],
            *(size(graph[f"{key}_bytes"]) for key in ("dead", "carried", "kept")),
        )
        for graph in needs["graphs"][:_MOST_GRAPHS]
    ]
    rows += [(f"{len(needs['graphs']) - len(rows)} more", *[""] * 5)] if len(needs["graphs"]) > len(rows) else []
    header = ["graph", "pool", "launches", "written by a launch alone", "carried to another graph", "kept"]
    needed = (
        f"The device needs {size(needs['needed_bytes'])} at most, of which PyTorch counts "
        f"{size(needs['live_then_bytes'])} as live."
    )
    efficiency = needs["traced_efficiency"]
    needed += f" E of the device when traced: {share(efficiency)}." if efficiency else ""
    return ["### What captured graphs need", "", *_table(header, rows), needed, ""]


def _graph_finding(found: Optional[dict[str, Any]]) -> list[str]:
    return [] if found is None else [*(f"- {line}" for line in found["told"]), ""]


def _graph_pools(drawn: dict[str, Any]) -> list[str]:
    pools = drawn["graph_pools"]
    if pools is None:
        return []
    rows = (
        (
            pools["pool"][i] or "not distinguished",
            drawn["roles"][pools["role"][i]],
            *(size(pools[key][i]) for key in ("most", "end", "idle_then")),
            pools["requests"][i],
        )
        for i in range(len(pools["pool"]))
    )
    header = ["pool", "first request in", "live in it, at most", "at the end", "idle when most is held", "requests"]
    held = f"At least {size(pools['held'])} are held where pools serve nobody else"
    held += f", when {size(pools['live_then'])} are live."
    return ["### Pools of captured graphs", "", *_table(header, rows), held, ""]
