"""`stalloc plan`: plan the memory of every traced rank below a directory. The planner does it, but for --max-tokens."""

from __future__ import annotations

import argparse
import sys

from stalloc._commands import max_tokens, planner

HELP = "plan the memory of every traced rank below a directory"


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    """Only for the list of commands: the planner has its own --help."""
    parser.add_argument("arguments", nargs=argparse.REMAINDER)


def run(arguments: argparse.Namespace) -> int:
    words: list[str] = arguments.arguments
    try:
        if {"--help", "-h"} & set(words):
            return _help(words)
        longest, others = max_tokens.split(words)
        return planner.execute("plan", words) if longest is None else max_tokens.plan(longest, others)
    except (max_tokens.TokensError, planner.PlannerError) as error:
        print(f"stalloc plan: {error}", file=sys.stderr)
        return 1


def _help(words: list[str]) -> int:
    """The planner's, and the option that it does not know."""
    code = planner.run("plan", words).returncode
    print(max_tokens.HELP)
    return code
