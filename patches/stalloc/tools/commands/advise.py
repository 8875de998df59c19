"""`stalloc advise`: what would lower the peak, each computed from the trace."""

from __future__ import annotations

import argparse
from typing import Any, Optional

from stalloc.core.sizes import size
from stalloc.tools.commands import options, viewed
from stalloc.tools.report import advice, collect, figures, findings, graphs, text
from stalloc.tools.report.figures import device_name

EXAMPLES = ("advise run1 --gpus 4",)

_EPILOG = """
Each row replays the traced run with that change, so a peak that only moves elsewhere saves nothing. Splits of
a Megatron-LM model are estimated (options after -- change its configuration). Savings do not add up. Memory that grows
from iteration to iteration is listed first; a row saves 1 % of the peak or more.
Where a row says "at least", the trace lacks data and the worse case was taken. Advice on layers needs
STALLOC_TRACE_MODULES=1. Costs in time are host times between marks. With STALLOC_TRACE_USES=1
a trace knows which operations use a block; without, a block is late if it outlives the mark that ends its use. For
captured CUDA graphs stalloc shows what their pools reserve, and what lending them between launches saves.
"""
_MOST = 20


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EPILOG
    viewed.add_arguments(parser)
    options.add_count(parser, "--gpus", "split the model over N (default: as traced)")
    options.add_bus(parser, "--bus")
    parser.add_argument("--all", action="store_true", help=f"show all rows, not only the {_MOST} that save most")


def run(arguments: argparse.Namespace) -> int:
    def of_device(view: dict[str, Any], index: int) -> dict[str, Any]:
        view["added_options"] = arguments.program
        device = figures.device_figures(view, index)
        rows = advice.advise(view, index, device, arguments.gpus, arguments.bus * 1e9)
        return {
            "device": device["device"],
            "peak_live_bytes": device["peak_live_bytes"],
            "peak_phase": device["peak_phase"],
            "peak_often": figures.often(view, index),
            "worth": view["devices"][index]["worth"],
            "inside": findings.growth_inside(view, index),
            "advice": rows,
            "graphs": graphs.finding(view, index),
            "hint": advice.hint(view, index),
        }

    def show(device: dict[str, Any]) -> None:
        _show(device, None if arguments.all else _MOST)

    return viewed.answer("advise", arguments, of_device, show, collect.ViewOptions(ranks=arguments.gpus))


def _show(device: dict[str, Any], most: Optional[int]) -> None:
    name = device_name(device["device"])
    often = f"; {device['peak_often']}" if device["peak_often"] else ""
    print(text.wrapped(f"{name}: peak {size(device['peak_live_bytes'])} live in {device['peak_phase']}{often}"))
    print(text.wrapped(device["worth"]) + "\n")
    if device["inside"] is not None:
        print(text.wrapped(device["inside"]) + "\n")
    found = device["advice"]
    shown = found[:most]
    for row in shown:
        _show_row(row)
    if not found:
        print("Nothing was found that lowers the peak by 1 % or more.")
    if len(shown) < len(found):
        print(f"and {len(found) - len(shown)} that save less (--all)")
    if device["graphs"] is not None:
        print("\n" + "\n    ".join(device["graphs"]["told"]))
    if device["hint"] is not None:
        print(text.wrapped(device["hint"]))


def _show_row(row: dict[str, Any]) -> None:
    saved = f"+{size(row['grows'])} in every iteration" if row["grows"] else saves(row)
    least = "at most " if row["at_least"] else ""
    after = f"peak then {least}{size(row['peak_bytes'])}" if row["of_live"] else f"held then {size(row['peak_bytes'])}"
    print(saved if row["grows"] else f"{saved}, {after}")
    print(text.wrapped(row["what"], 2))
    for label, words in (("set", row["how_to"]), ("cost", row["cost"]), ("known from", row["how_known"])):
        if words != "none":
            print(text.wrapped(f"{label}: {words}", 4))
    print()


def saves(row: dict[str, Any]) -> str:
    """The saving of a row of advice: "-4.00 MiB", "at least -4.00 MiB"."""
    return ("at least " if row["at_least"] else "") + f"-{size(row['saves_bytes'])}"
