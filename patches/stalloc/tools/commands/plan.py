"""`stalloc plan`: plan the memory of every traced rank below a directory. The planner does it, but for --max-tokens.

A trace below such a directory stands for its rank there. Other flags of Infinigence's STAlloc are accepted: --draw
draws the report as well; --validation and --autotune request what is always done.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from pathlib import Path

from stalloc.tools.commands import max_tokens, options, planner

_DRAW = "--draw"
_ALWAYS = ("--validation", "--autotune")
MORE_FLAGS = f"""{max_tokens.HELP}
  {_DRAW}  Write the report as well: DIR/output/report/report.html, with the plan as a map.
  {_ALWAYS[0]}  Accepted for compatibility with Infinigence's STAlloc: every plan is checked.
  {_ALWAYS[1]}  Accepted for compatibility with Infinigence's STAlloc: all solvers are tried.
"""


def run(arguments: argparse.Namespace) -> int:
    words = [part for word in arguments.arguments if word not in _ALWAYS for part in _directory_of_trace(word)]
    try:
        if planner.requests_help(words):
            print(help_text(), end="")
            return 0
        if _DRAW in words:
            return _draw([word for word in words if word != _DRAW])
        longest, others = max_tokens.split(words)
        return planner.execute("plan", words) if longest is None else max_tokens.plan(longest, others)
    except (max_tokens.TokensError, planner.PlannerError) as error:
        return options.refuse("plan", error)


def _directory_of_trace(word: str) -> list[str]:
    """DIR/trace/rank00003.trace stands for that rank of DIR; every other word is kept."""
    path = Path(word).absolute()
    name = re.fullmatch(r"rank(\d{5,})\.trace", path.name)
    if name is None or word.startswith("-") or path.parent.name != "trace" or not path.is_file():
        return [word]
    return [str(path.parent.parent), f"--rank={int(name[1])}"]


def _draw(words: list[str]) -> int:
    """Plans in a process of its own, which the planner replaces, and draws what there is then."""
    directory = max_tokens.directory_of(words)
    done = subprocess.run([sys.executable, "-m", "stalloc", "plan", *words], check=False)
    if done.returncode != 0:
        return done.returncode
    # What --json prints stays alone on the standard output.
    drawn = subprocess.run([sys.executable, "-m", "stalloc", "report", str(directory)], stdout=sys.stderr, check=False)
    return drawn.returncode


def help_text() -> str:
    """The planner's, and the options that it does not know."""
    return planner.help_text("plan", MORE_FLAGS)
