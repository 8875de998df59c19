"""`stalloc dump`: print a trace as text."""

from __future__ import annotations

import argparse

from stalloc.tools.commands import of_rank

HELP = "print a trace as text"
MORE_FLAGS = of_rank.FLAG


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    """Only for the list of commands: the planner has its own --help."""
    parser.add_argument("arguments", nargs=argparse.REMAINDER)


def run(arguments: argparse.Namespace) -> int:
    return of_rank.execute("dump", arguments.arguments, lambda path, rank: [of_rank.trace(path, rank)])
