"""`stalloc completion`: what a shell needs to complete stalloc's commands and options."""

from __future__ import annotations

import argparse
import contextlib
import sys

from stalloc._commands import planner

HELP = "print the completion of commands and options for a shell (needs `pip install shtab`)"
EXAMPLES = (
    "completion bash > ~/.local/share/bash-completion/completions/stalloc",
    "completion zsh > ~/.zfunc/_stalloc",
)


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", metavar="SHELL", choices=("bash", "zsh", "tcsh"), help="bash, zsh or tcsh")


def run(arguments: argparse.Namespace) -> int:
    try:
        import shtab
    except ImportError:
        print("stalloc completion: completion needs shtab: pip install shtab", file=sys.stderr)
        return 1
    print(shtab.complete(_parser(), shell=arguments.shell))
    return 0


def _parser() -> argparse.ArgumentParser:
    """The command line's, with the options of the planner, too."""
    from stalloc import cli

    parser = cli.build_parser()
    commands = next(action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    for name in cli.VERBATIM:
        with contextlib.suppress(planner.PlannerError):
            for flag, value, meaning in planner.flags(cli.planners_help(name)):
                takes = {} if value else {"action": "store_true"}
                commands.choices[name].add_argument(f"--{flag}", help=meaning.replace("%", "%%"), **takes)
    return parser
