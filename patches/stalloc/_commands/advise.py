"""`stalloc advise`: what would lower the peak, each computed from the trace."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

HELP = "what would lower the peak of a traced run, by how much, and at what cost"

_EPILOG = """
Each line is the traced run played again with that change, so a peak that only moves elsewhere saves nothing. Savings do
not add up. Costs in time are of the host, as far as layer marks see them.
"""


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EPILOG
    parser.add_argument("path", metavar="DIR|TRACE", type=Path)
    parser.add_argument("--rank", type=int, metavar="R", help="of a directory (default: the highest peak)")
    parser.add_argument("--json", action="store_true", help="as JSON")


def run(arguments: argparse.Namespace) -> int:
    from stalloc.report import collect, figures, findings, select, text
    from stalloc.report.figures import size

    try:
        view = select.view_of(arguments.path, arguments.rank)
    except collect.CollectError as error:
        print(f"stalloc advise: {error}", file=sys.stderr)
        return 1
    devices = [figures.device_figures(view, index) for index in range(len(view["devices"]))]
    found = [findings.advice(view, index, device) for index, device in enumerate(devices)]
    if arguments.json:
        told = [{"device": device["device"], "advice": advice} for device, advice in zip(devices, found)]
        print(json.dumps({"rank": view["rank"]["rank"], "devices": told}))
        return 0
    for device, advice in zip(devices, found):
        print(f"device {device['device']}: peak {size(device['peak_live_bytes'])} live in {device['peak_phase']}\n")
        rows = [(f"-{size(row['saves_bytes'])}", row["what"], row["cost"], row["how_known"]) for row in advice]
        print(text.table(("saves", "change", "cost", "known from"), rows, text_columns=(1, 2, 3)), end="")
    return 0
