"""A directory in place of a rank's trace (and plan), for commands of the planner that take files."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Callable

from stalloc.tools.commands import options, planner

FLAG = "  --rank=R  Of a directory: rank R. [0]\n"


def execute(command: str, words: list[str], files: Callable[[Path, int], list[Path]]) -> int:
    """Runs the command with the files of a rank where `words` name a directory; help has --rank, too."""
    try:
        if planner.asks_for_help(words):
            print(planner.help_text(command, FLAG), end="")
            return 0
    except planner.PlannerError as error:
        return options.refuse(command, error)
    parser = argparse.ArgumentParser(prog=f"stalloc {command}", add_help=False, allow_abbrev=False)
    parser.add_argument("--rank", type=int)
    given, rest = parser.parse_known_args(words)
    directories = [word for word in rest if Path(word).is_dir()]
    if not directories:
        return planner.execute(command, words)
    named = [str(path) for path in files(Path(directories[0]), given.rank or 0)]
    return planner.execute(command, [word for word in rest if word != directories[0]] + named)


def trace(directory: Path, rank: int) -> Path:
    return directory / "trace" / f"rank{rank:05d}.trace"


def plan(directory: Path, rank: int) -> Path:
    return directory / "output" / "plan" / f"rank{rank:05d}.plan"
