"""`stalloc check`: check a plan against its trace, independently of the planner."""

from __future__ import annotations

import argparse
from pathlib import Path

from stalloc.tools.commands import of_rank

MORE_FLAGS = of_rank.FLAG


def run(arguments: argparse.Namespace) -> int:
    def files(path: Path, rank: int) -> list[Path]:
        return [of_rank.plan(path, rank), of_rank.trace(path, rank)]

    return of_rank.execute("check", arguments.arguments, files)
