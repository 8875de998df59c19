"""`stalloc --completion SHELL`: a script that completes stalloc's commands and options in a shell."""

from __future__ import annotations

import argparse

from stalloc.tools.commands import options

EXAMPLES = (
    "completion bash > ~/.local/share/bash-completion/completions/stalloc",
    "completion zsh > ~/.zfunc/_stalloc",
)


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "shell", metavar="SHELL", choices=("bash", "zsh", "tcsh"), help="complete for bash, zsh or tcsh"
    )


def run(arguments: argparse.Namespace) -> int:
    return complete("completion", arguments.whole_parser(), arguments.shell)


def complete(command: str, parser: argparse.ArgumentParser, shell: str) -> int:
    """Prints the script; 1 and a message of `command` if shtab is missing."""
    try:
        import shtab
    except ImportError:
        return options.refuse(command, "completion needs shtab: pip install shtab")
    print(shtab.complete(parser, shell=shell))
    return 0
