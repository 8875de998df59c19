"""`stalloc advise`: what would lower the peak, each computed from the trace."""

from __future__ import annotations

import argparse
from typing import Any, Optional

from stalloc._commands import viewed

HELP = "what would lower the peak of a traced run, by how much, and at what cost"

_EPILOG = """
Each line is the traced run played again with that change, so a peak that only moves elsewhere saves nothing; splits of
a Megatron-LM model are estimated (stalloc estimate; options behind -- change its configuration). Savings do not add up.
Costs in time are of the host, as far as marks see them. With STALLOC_TRACE_USES=1 a trace knows which operations use
a block; without, late is what outlives a mark that ends its use.
"""
_MOST = 20


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EPILOG
    viewed.add_arguments(parser)
    parser.add_argument("--gpus", type=_positive, metavar="N", help="to split the model over (default: as traced)")
    parser.add_argument("--bus", type=float, default=25, metavar="GB/s", help="to the host (default 25)")
    parser.add_argument("--all", action="store_true", help=f"more than the {_MOST} that save most")


def _positive(text: str) -> int:
    count = int(text)
    if count < 1:
        raise argparse.ArgumentTypeError(f"expected at least 1: {text}")
    return count


def run(arguments: argparse.Namespace) -> int:
    from stalloc.report import advice, figures

    def of_device(view: dict[str, Any], index: int) -> dict[str, Any]:
        view["added_options"] = arguments.program
        device = figures.device_figures(view, index)
        rows = advice.advise(view, index, device, arguments.gpus, arguments.bus * 1e9)
        return {
            "device": device["device"],
            "peak_live_bytes": device["peak_live_bytes"],
            "peak_phase": device["peak_phase"],
            "advice": rows,
        }

    def show(device: dict[str, Any]) -> None:
        _show(device, None if arguments.all else _MOST)

    options = [] if arguments.gpus is None else [f"--ranks={arguments.gpus}"]
    return viewed.answer("advise", arguments, of_device, show, options)


def _show(device: dict[str, Any], most: Optional[int]) -> None:
    from stalloc.report import text
    from stalloc.report.figures import device_name, size

    print(f"{device_name(device['device'])}: peak {size(device['peak_live_bytes'])} live in {device['peak_phase']}\n")
    found = device["advice"]
    rows = [(f"-{size(row['saves_bytes'])}", row["what"], row["cost"], row["how_known"]) for row in found[:most]]
    print(text.table(("saves", "change", "cost", "known from"), rows, text_columns=(1, 2, 3)), end="")
    if len(rows) < len(found):
        print(f"and {len(found) - len(rows)} that save less (--all)")
