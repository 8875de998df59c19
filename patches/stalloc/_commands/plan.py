"""`stalloc plan`: plan the memory of every traced rank below a directory."""

from __future__ import annotations

import argparse

from stalloc._commands import planner

HELP = "plan the memory of every traced rank below a directory"


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    """Only for the list of commands: the planner has its own --help."""
    parser.add_argument("arguments", nargs=argparse.REMAINDER)


def run(arguments: argparse.Namespace) -> int:
    return planner.execute("plan", arguments.arguments)
