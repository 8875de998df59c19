"""`stalloc check`: check a plan against its trace, independently of the planner."""

from __future__ import annotations

import argparse

from stalloc._commands import planner

HELP = "check a plan against its trace, independently of the planner"


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    """Only for the list of commands: the planner has its own --help."""
    parser.add_argument("arguments", nargs=argparse.REMAINDER)


def run(arguments: argparse.Namespace) -> int:
    return planner.execute("check", arguments.arguments)
