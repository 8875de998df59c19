"""`stalloc completion`: what a shell needs to complete stalloc's commands and options."""

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
    try:
        import shtab
    except ImportError:
        return options.refuse("completion", "completion needs shtab: pip install shtab")
    print(shtab.complete(arguments.whole_parser(), shell=arguments.shell))
    return 0
