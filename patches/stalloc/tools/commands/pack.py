"""`stalloc pack`: pack the buffers of a CSV file (id,lower,upper,size)."""

from __future__ import annotations

import argparse

from stalloc.tools.commands import planner

HELP = "pack the buffers of a CSV file (id,lower,upper,size)"


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    """Only for the list of commands: the planner has its own --help."""
    parser.add_argument("arguments", nargs=argparse.REMAINDER)


def run(arguments: argparse.Namespace) -> int:
    return planner.execute("pack", arguments.arguments)
