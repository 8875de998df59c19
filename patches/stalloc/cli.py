"""The command line `stalloc`. One module a subcommand; results on stdout, the rest on stderr.

Exit codes: 0 fine, 1 bad input or infeasible, 2 usage. `run` ends with the code of the program that it runs.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import Optional, Protocol

from stalloc._commands import (
    advise,
    check,
    diff,
    dump,
    estimate,
    export,
    import_,
    info,
    leaks,
    oom,
    pack,
    plan,
    report,
    run,
    status,
    synth,
    whatif,
)
from stalloc._core._version import __version__


class Command(Protocol):
    """What a module in `_commands` offers."""

    HELP: str

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None: ...

    def run(self, arguments: argparse.Namespace) -> int: ...


COMMANDS: dict[str, Command] = {
    "run": run,
    "status": status,
    "plan": plan,
    "report": report,
    "diff": diff,
    "leaks": leaks,
    "advise": advise,
    "whatif": whatif,
    "estimate": estimate,
    "import": import_,
    "export": export,
    "dump": dump,
    "pack": pack,
    "check": check,
    "synth": synth,
    "info": info,
    "oom": oom,
}

# Their arguments are another program's: argparse must not look at them.
_VERBATIM = frozenset({"plan", "dump", "pack", "check", "synth"})
# Behind -- they take options of the training program that a trace's command line lacks.
_MODEL_OPTIONS = frozenset({"advise", "estimate", "report", "whatif"})


def _build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="stalloc", description="Plans the memory of a training run from a trace of its first iterations."
    )
    parser.add_argument("--version", action="version", version=f"stalloc {__version__}")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, command in COMMANDS.items():
        command.prepare_parser(
            subparsers.add_parser(
                name,
                help=command.HELP,
                description=command.HELP,
                add_help=name not in _VERBATIM,
                formatter_class=argparse.RawDescriptionHelpFormatter,
            )
        )
    return parser


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Runs one command and returns the exit code. argparse leaves by SystemExit: 0 after --help, 2 on bad usage."""
    words = list(sys.argv[1:] if argv is None else argv)
    if words and words[0] in _VERBATIM:
        return COMMANDS[words[0]].run(argparse.Namespace(arguments=words[1:]))
    program: list[str] = []
    if words and words[0] == "run":
        words, program = run.split(words)
    elif words and words[0] in _MODEL_OPTIONS and "--" in words:
        words, program = words[: words.index("--")], words[words.index("--") + 1 :]
    arguments = _build_parser().parse_args(words)
    arguments.program = program
    if arguments.command == "run":
        return run.run(arguments)
    try:
        return COMMANDS[arguments.command].run(arguments)
    except BrokenPipeError:  # a reader as `head` that has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
