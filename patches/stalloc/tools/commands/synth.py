"""`stalloc synth`: make a synthetic trace, or an instance for `pack`."""

from __future__ import annotations

import argparse

from stalloc.tools.commands import planner

HELP = "make a synthetic trace of a pipeline run, or an instance for pack"


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    """Only for the list of commands: the planner has its own --help."""
    parser.add_argument("arguments", nargs=argparse.REMAINDER)


def run(arguments: argparse.Namespace) -> int:
    return planner.execute("synth", arguments.arguments)
