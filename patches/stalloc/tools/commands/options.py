"""What many commands take and print in the same way: options for ranks, files and JSON, and the line of an error."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Optional

from stalloc.core import sizes

HIGHEST = "the rank with the highest peak"


def add_json(parser: argparse._ActionsContainer, what: str = "") -> None:
    parser.add_argument("--json", action="store_true", help=f"print {what and f'{what} as '}JSON")


def add_rank(parser: argparse._ActionsContainer, default: str = HIGHEST) -> None:
    parser.add_argument("--rank", type=int, metavar="R", help=f"take rank R of a directory (default: {default})")


def add_run(parser: argparse._ActionsContainer) -> None:
    """The run to read, `path`: its directory or a trace."""
    parser.add_argument("path", metavar="DIR|TRACE", type=Path, help="the run's directory, or one of its traces")


def add_memory(parser: argparse._ActionsContainer) -> None:
    parser.add_argument(
        "--memory", type=sizes.parse, required=True, metavar="80G", help="the device's memory, in binary units"
    )


def add_count(parser: argparse._ActionsContainer, name: str, what: str, default: Optional[int] = None) -> None:
    if default is not None:
        what = f"{what} (default {default})"
    parser.add_argument(name, type=int, default=default, metavar="N", help=what)


def add_traces_beside(parser: argparse._ActionsContainer, fitted: str) -> None:
    """`beside` and `graphs_beside`: the same program, traced in another way."""
    what = f"fit {fitted} as a + b k, from the program traced with a micro-batch of N, too"
    parser.add_argument("--beside", nargs=2, metavar=("DIR|TRACE", "N"), help=what)
    what = "compare with the program traced with CUDA graphs, or without them"
    parser.add_argument("--graphs-beside", metavar="DIR|TRACE", type=Path, help=what)


def refuse(command: str, error: object) -> int:
    """Says why the command ends here; the exit code of bad input."""
    print(f"stalloc {command}: {error}", file=sys.stderr)
    return 1
