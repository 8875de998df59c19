"""`stalloc --completion SHELL`: what a shell needs to complete stalloc's commands and options."""

from __future__ import annotations

import argparse

from stalloc.tools.commands import options

EXAMPLES = (
    "completion bash > ~/.local/share/bash-completion/completions/stalloc",
    "completion zsh > ~/.zfunc/_stalloc",
)


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", metavar="SHELL", choices=("bash", "zsh", "tcsh"), help="bash, zsh or tcsh")


def run(arguments: argparse.Namespace) -> int:
    return complete("completion", arguments.whole_parser(), arguments.shell)


def complete(command: str, parser: argparse.ArgumentParser, shell: str) -> int:
    """Prints it; 1 where shtab is missing, which `command` says."""
    try:
        import shtab
    except ImportError:
        return options.refuse(command, "completion needs shtab: pip install shtab")
    print(shtab.complete(parser, shell=shell))
    return 0
