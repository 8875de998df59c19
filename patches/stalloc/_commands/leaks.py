"""`stalloc leaks`: what every iteration leaves behind."""

from __future__ import annotations

import argparse
from typing import Any

from stalloc._commands import viewed

HELP = "find what every iteration leaves behind: blocks that outlive the iteration after their own, again and again"

_EPILOG = """
A leak is a kind of block (size, class, phase, layer) that each of the last iterations leaves behind, three at least.
The last two iterations of a trace cannot be judged, so trace six or more. Exit code 0 whether there are leaks or not.
"""


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EPILOG
    viewed.add_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    from stalloc.report import findings

    return viewed.answer("leaks", arguments, findings.leaks, _show)


def _show(device: dict[str, Any]) -> None:
    from stalloc.report import text
    from stalloc.report.figures import device_name, size

    begins = device["live_at_begin"]
    print(
        f"{device_name(device['device'])}: live where iterations begin: "
        + ", ".join(size(row["bytes"]) for row in begins)
    )
    if not device["enough_iterations"]:
        print(f"too few iterations: {device['judged_iterations']} can be judged, 3 are needed; trace 5 or more")
        return
    if not device["groups"]:
        print(f"no leak in {device['judged_iterations']} iterations")
        return
    print(f"{size(device['bytes_per_iteration'])} more in every iteration:\n")
    rows = [
        (
            size(group["bytes_per_iteration"]),
            size(group["bytes"]),
            f"{group['blocks_per_iteration']:g}",
            str(group["iterations"]),
            group["class"],
            group["layer"] or "-",
            group["phase"],
        )
        for group in device["groups"]
    ]
    header = ("an iteration", "block", "blocks", "iterations", "class", "layer", "phase")
    print(text.table(header, rows, text_columns=(4, 5, 6)), end="")
