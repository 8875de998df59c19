"""`stalloc check`: check a plan against its trace, independently of the planner."""

from __future__ import annotations

import argparse
from pathlib import Path

from stalloc.tools.commands import of_rank

HELP = "check a plan against its trace, independently of the planner"
MORE_FLAGS = of_rank.FLAG


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    """Only for the list of commands: the planner has its own --help."""
    parser.add_argument("arguments", nargs=argparse.REMAINDER)


def run(arguments: argparse.Namespace) -> int:
    def files(path: Path, rank: int) -> list[Path]:
        return [of_rank.plan(path, rank), of_rank.trace(path, rank)]

    return of_rank.execute("check", arguments.arguments, files)
