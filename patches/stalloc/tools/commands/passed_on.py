"""`stalloc dump`, `check`, `pack`, `synth`: the planner's own commands; the first two take a directory, too."""

from __future__ import annotations

import argparse
from pathlib import Path

from stalloc.tools.commands import options, planner

_PLAN, _TRACE = "output/plan/rank{:05d}.plan", "trace/rank{:05d}.trace"
_FILES = {"dump": (_TRACE,), "check": (_PLAN, _TRACE)}  # in a run's directory
_FLAG = "  --rank=R  Of a directory: rank R. [0]\n"


def run(arguments: argparse.Namespace) -> int:
    command, words = arguments.command, arguments.arguments
    if command not in _FILES:
        return planner.execute(command, words)
    try:
        if planner.requests_help(words):
            print(planner.help_text(command, _FLAG), end="")
            return 0
    except planner.PlannerError as error:
        return options.refuse(command, error)
    parser = argparse.ArgumentParser(prog=f"stalloc {command}", add_help=False, allow_abbrev=False)
    parser.add_argument("--rank", type=int)
    given, rest = parser.parse_known_args(words)
    directory = next((word for word in rest if Path(word).is_dir()), None)
    if directory is None:
        return planner.execute(command, words)
    named = [str(Path(directory) / file.format(given.rank or 0)) for file in _FILES[command]]
    return planner.execute(command, [word for word in rest if word != directory] + named)
