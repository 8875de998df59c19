"""`stalloc dump`: print a trace as text."""

from __future__ import annotations

import argparse

from stalloc.tools.commands import of_rank

MORE_FLAGS = of_rank.FLAG


def run(arguments: argparse.Namespace) -> int:
    return of_rank.execute("dump", arguments.arguments, lambda path, rank: [of_rank.trace(path, rank)])
