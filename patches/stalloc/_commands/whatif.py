"""`stalloc whatif`: would the run fit, and with how large a micro-batch."""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path
from typing import Any

HELP = "would a traced run fit in so much memory, and how large could its micro-batch be"

_EPILOG = """
The peak with k times the traced micro-batch is the maximum, over all moments of the run, of what is fixed + k x what
scales: activations, what varies, and temporaries of forward and backward passes. What an allocator holds beyond what is
live is taken in proportion. Sizes that grow with the square of the sequence, or not at all, are not told apart.
"""
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EPILOG
    parser.add_argument("path", metavar="DIR|TRACE", type=Path)
    parser.add_argument("--memory", type=_bytes, required=True, metavar="80G", help="of the device, binary units")
    parser.add_argument("--micro-batch", type=int, default=1, metavar="N", help="as it was traced (default 1)")
    parser.add_argument("--rank", type=int, metavar="R", help="of a directory (default: the highest peak)")
    parser.add_argument("--json", action="store_true", help="as JSON")


def _bytes(text: str) -> int:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?", text, re.IGNORECASE)
    if match is None:
        raise argparse.ArgumentTypeError(f"expected a size as 80G or 40960M: {text!r}")
    return round(float(match[1]) * _UNITS[match[2].upper()])


def run(arguments: argparse.Namespace) -> int:
    from stalloc.report import collect, select

    try:
        view = select.view_of(arguments.path, arguments.rank)
        found = [_answer(view, index, arguments) for index in range(len(view["devices"]))]
    except (collect.CollectError, ValueError) as error:
        print(f"stalloc whatif: {error}", file=sys.stderr)
        return 1
    if arguments.json:
        print(json.dumps({"rank": view["rank"]["rank"], "memory_bytes": arguments.memory, "devices": found}))
        return 0
    for device in found:
        _show(device, arguments)
    return 0


def _answer(view: dict[str, Any], index: int, arguments: argparse.Namespace) -> dict[str, Any]:
    from stalloc.report import figures, findings

    of_device = figures.device_figures(view, index)
    points = view["devices"][index]["scaling"]
    rows = []
    for row in of_device["allocators"]:
        room = arguments.memory * row["efficiency"]
        scale = findings.largest_scale(points, room)
        rows.append(
            {
                "name": row["name"],
                "held_bytes": row["held_bytes"],
                "fits": row["held_bytes"] <= arguments.memory,
                "largest_scale": scale,
                "largest_micro_batch": int(scale * arguments.micro_batch),
            }
        )
    return {
        "device": of_device["device"],
        "peak_live_bytes": of_device["peak_live_bytes"],
        "peak_of_twice": findings.peak_at_scale(points, 2),
        "allocators": rows,
    }


def _show(device: dict[str, Any], arguments: argparse.Namespace) -> None:
    from stalloc.report import text
    from stalloc.report.figures import size

    print(
        f"device {device['device']}: {size(device['peak_live_bytes'])} live at the peak, "
        f"{size(device['peak_of_twice'])} with twice the micro-batch; memory {size(arguments.memory)}\n"
    )
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
    header = ("allocator", "holds", "fits", "at most", f"micro-batch (traced {arguments.micro_batch})")
    print(text.table(header, rows), end="")
