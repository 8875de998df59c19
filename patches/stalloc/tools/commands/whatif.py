"""`stalloc whatif`: would the run fit, and with how large a micro-batch."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, Optional

from stalloc.core.sizes import size
from stalloc.tools.commands import options, viewed
from stalloc.tools.report import advice, certainty, collect, figures, findings, graph_choice, text
from stalloc.tools.report.certainty import ESTIMATE, worded
from stalloc.tools.report.collect import CollectError, ViewOptions
from stalloc.tools.report.fakes import iterations_of
from stalloc.tools.report.figures import device_name

EXAMPLES = (
    "whatif run1 --memory 40G",
    "whatif run1 --memory 80G --micro-batch 2 --beside run2 4",
    "whatif run1 --memory 80G --graphs-beside run2",
)

_EPILOG = """
For k times the traced micro-batch, live bytes at each moment are the fixed + k x the scaling + k^2 x the square bytes.
The peak is their maximum over the run. From one trace, activations, varying blocks and temporaries of passes scale as a
whole. With --beside, the requests of both traces are paired by phase and order. Each block's size is fitted as a + b k,
or as b k + c k^2 if it grows faster: this separates buffers and padding. If the fit misses the second trace's peak by
more than 5 %, figures are bounds. Micro-batches in flight keep their number. The overhead of an allocator is taken in
proportion. With --graphs-beside, stalloc compares what both runs need and how long their steps take, as traced. If the
run does not fit, stalloc tries each change that stalloc advise knows: layers recomputed or offloaded, state offloaded
or shared, another split of a Megatron-LM model (options after -- change it).
"""
_MOST = 12
_SHOWN = ("what", "how_to", "cost", "saves_bytes", "peak_bytes", "at_least")


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EPILOG
    viewed.add_arguments(parser)
    options.add_memory(parser)
    options.add_count(parser, "--micro-batch", "take N for the traced micro-batch", 1)
    options.add_second_traces(parser, "sizes")


def run(arguments: argparse.Namespace) -> int:
    def of_device(view: dict[str, Any], index: int) -> dict[str, Any]:
        _want_an_iteration(view, index, arguments.path)
        found = {"memory_bytes": arguments.memory, **_answer(view, index, arguments)}
        return {**found, "graphs": _graphs(view, index, arguments)}

    def show(device: dict[str, Any]) -> None:
        _show(device, arguments)

    try:
        second = _second_trace(arguments)
    except (ValueError, CollectError) as error:
        return options.refuse("whatif", error)
    return viewed.answer("whatif", arguments, of_device, show, second)


def _graphs(view: dict[str, Any], index: int, arguments: argparse.Namespace) -> Optional[dict[str, Any]]:
    if arguments.graphs_beside is None:
        return None
    return graph_choice.choice(view, arguments.path, arguments.graphs_beside, index, arguments.memory)


def _want_an_iteration(view: dict[str, Any], index: int, path: Path) -> None:
    """ValueError where none ran to its end: what grows with the micro-batch is then not in the trace, or in part."""
    rank = view["rank"]
    traced = sum(segment["iteration"] >= 0 for segment in rank["devices"][index]["segments"])
    broken_off = traced == 1 and (not rank["trace_complete"] or iterations_of(path, rank["rank"]) == 0)
    if traced == 0 or broken_off:
        raise ValueError(
            f"{path} has no iteration that ran to its end, so that what grows with the micro-batch is not known: "
            f"{'the first one was broken off' if broken_off else 'no iteration is marked'}"
        )


def _second_trace(arguments: argparse.Namespace) -> ViewOptions:
    """ValueError if the second trace adds nothing to the first."""
    if arguments.beside is None:
        return collect.ViewOptions()
    path, count = Path(arguments.beside[0]), arguments.beside[1]
    if not count.isdigit() or int(count) in (0, arguments.micro_batch):
        raise ValueError(f"--beside needs a micro-batch other than --micro-batch {arguments.micro_batch}: {count}")
    if path.is_dir():
        if arguments.rank is None and arguments.path.is_dir() and len(collect.find_ranks(arguments.path)) > 1:
            raise ValueError("--beside of several ranks needs --rank, so that both are of the same")
        path = path / "trace" / f"rank{arguments.rank or 0:05d}.trace"
    return collect.ViewOptions(path, int(count) / arguments.micro_batch)


def _answer(view: dict[str, Any], index: int, arguments: argparse.Namespace) -> dict[str, Any]:
    of_device = figures.device_figures(view, index)
    points = view["devices"][index]["scaling"]
    rows = []
    for row in of_device["allocators"]:
        limit = arguments.memory * row["efficiency"]
        scale = findings.largest_scale(points, limit)
        rows.append(
            {
                "name": row["name"],
                "held_bytes": row["held_bytes"],
                "fits": row["held_bytes"] <= arguments.memory,
                "largest_scale": scale,
                "largest_micro_batch": int(scale * arguments.micro_batch),
            }
        )
    fit = _fit(view["devices"][index]["fit"], points, arguments)
    other_peak = None if fit is None else fit["other_peak_bytes"]
    twice = findings.peak_at_scale(points, 2)
    hint = certainty.hint_of_pairs(view, index, arguments.micro_batch, twice)
    return {
        "device": of_device["device"],
        "peak_live_bytes": of_device["peak_live_bytes"],
        "peak_of_twice": twice,
        "fit": fit,
        "certainty": certainty.of_traces(points, _ratio(arguments), other_peak, hint=hint).document(),
        "allocators": rows,
        "worth": view["devices"][index]["worth"],
        "changes": _changes(view, index, of_device, arguments),
    }


def _changes(
    view: dict[str, Any], index: int, of_device: dict[str, Any], arguments: argparse.Namespace
) -> list[dict[str, Any]]:
    """The changes of `stalloc advise`, by the peak that is left, and which allocators then fit."""
    memory, live = arguments.memory, of_device["peak_live_bytes"]
    known = [row for row in of_device["allocators"] if row["efficiency"]]
    if all(row["held_bytes"] <= memory for row in known):
        return []
    view["added_options"] = arguments.program
    rows = []
    for row in advice.advise(view, index, of_device):
        if not row["of_live"]:
            continue
        fits = [each["name"] for each in known if row["peak_bytes"] <= memory * each["efficiency"]]
        rows.append({key: row[key] for key in _SHOWN} | {"fits": fits})
    return [row for row in rows if row["peak_bytes"] < live]


def _fit(
    fit: Optional[dict[str, int]], points: dict[str, Any], arguments: argparse.Namespace
) -> Optional[dict[str, int]]:
    """The live bytes at the first trace's peak, by how they grow, and the second's peak from the fit and as traced."""
    if fit is None:
        return None
    fitted = findings.peak_at_scale(points, _ratio(arguments))
    return {**fit, "micro_batch": int(arguments.beside[1]), "fitted_peak_bytes": fitted}


def _ratio(arguments: argparse.Namespace) -> float:
    """The second trace's micro-batch over the first's; 1: there is none."""
    return 1.0 if arguments.beside is None else int(arguments.beside[1]) / arguments.micro_batch


def _show(device: dict[str, Any], arguments: argparse.Namespace) -> None:
    print(
        f"{device_name(device['device'])}: {size(device['peak_live_bytes'])} live at the peak, "
        f"{worded(device['certainty']['peak'], size(device['peak_of_twice']))} with twice the micro-batch; "
        f"memory {size(arguments.memory)}"
    )
    print(text.wrapped(device["worth"]))
    fit, sure = device["fit"], device["certainty"]
    if fit is not None:
        off = fit["fitted_peak_bytes"] / fit["other_peak_bytes"] - 1
        print(
            f"sizes from both traces: {size(fit['fixed_bytes'])} of the peak do not grow, "
            f"{size(fit['proportional_bytes'])} grow with the micro-batch, {size(fit['square_bytes'])} with its square "
            f"or nearly, {size(fit['affine_bytes'])} in another way, {size(fit['unpaired_bytes'])} are in one trace "
            f"alone\n"
            f"with a micro-batch of {fit['micro_batch']}: {size(fit['fitted_peak_bytes'])} from the fit, "
            f"{size(fit['other_peak_bytes'])} traced ({100 * off:+.2f} %)"
        )
    print()
    rows = [
        (
            row["name"],
            size(row["held_bytes"]),
            "yes" if row["fits"] else "no",
            f"{row['largest_scale']:.2f} x",
            str(row["largest_micro_batch"]),
        )
        for row in device["allocators"]
    ]
    largest = "largest that fits" if sure["micro_batch"] == ESTIMATE else f"largest that fits, {sure['micro_batch']}"
    header = ("allocator", "holds", "fits", largest, f"micro-batch (traced {arguments.micro_batch})")
    print(text.table(header, rows), end="")
    if sure["note"]:
        print(f"\n{text.wrapped(sure['note'])}")
    if device["changes"]:
        _show_changes(device)
    if device["graphs"] is not None:
        print()
        graph_choice.show(device["graphs"])


def _show_changes(device: dict[str, Any]) -> None:
    rows = device["changes"]
    print("\nwith one change, it would be (stalloc advise: what to set for each)\n")
    for row in rows[:_MOST]:
        least = "at most " if row["at_least"] else ""
        print(f"{least}{size(row['peak_bytes'])} live, fits under {', '.join(row['fits']) or 'none'}")
        print(text.wrapped(row["what"], 2))
        if row["cost"] != "none":
            print(text.wrapped(f"cost: {row['cost']}", 4))
    if len(rows) > _MOST:
        print(f"and {len(rows) - _MOST} that save less (--json)")
