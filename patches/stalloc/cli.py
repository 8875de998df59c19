"""The command line `stalloc`. One module a subcommand; results on stdout, the rest on stderr.

Exit codes: 0 fine, 1 bad input or infeasible, 2 usage. `run` ends with the code of the program that it runs.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Sequence
from typing import Optional, Protocol

from stalloc.core.version import __version__
from stalloc.tools.commands import (
    advise,
    check,
    clean,
    completion,
    diff,
    doctor,
    dump,
    estimate,
    export,
    fit,
    import_,
    info,
    leaks,
    oom,
    pack,
    plan,
    planner,
    report,
    runs,
    sleep,
    status,
    summary,
    synth,
    wake,
    whatif,
)
from stalloc.train import run


class Command(Protocol):
    """What a module in `tools.commands` offers. Those of the planner have their examples in its help."""

    HELP: str

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None: ...

    def run(self, arguments: argparse.Namespace) -> int: ...


COMMANDS: dict[str, Command] = {
    "run": run,
    "status": status,
    "summary": summary,
    "runs": runs,
    "clean": clean,
    "plan": plan,
    "report": report,
    "diff": diff,
    "leaks": leaks,
    "advise": advise,
    "whatif": whatif,
    "fit": fit,
    "estimate": estimate,
    "import": import_,
    "export": export,
    "dump": dump,
    "pack": pack,
    "check": check,
    "synth": synth,
    "sleep": sleep,
    "wake": wake,
    "oom": oom,
    "doctor": doctor,
    "info": info,
    "completion": completion,
}

# Their arguments are another program's: argparse must not look at them.
VERBATIM = frozenset({"plan", "dump", "pack", "check", "synth"})
# Behind -- they take options of the training program that a trace's command line lacks.
MODEL_OPTIONS = frozenset({"advise", "estimate", "report", "whatif"})


def build_parser() -> argparse.ArgumentParser:
    """Of all commands, for the command line itself, shell completion and the page of commands."""
    parser = argparse.ArgumentParser(
        prog="stalloc",
        description="Plans the memory of a training run from a trace of its first iterations.",
        epilog="`stalloc COMMAND --help` tells more. Exit codes: 0 fine, 1 bad input or infeasible, 2 usage.",
    )
    parser.add_argument("--version", action="version", version=f"stalloc {__version__}")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, command in COMMANDS.items():
        of_command = subparsers.add_parser(
            name,
            help=command.HELP,
            description=command.HELP,
            add_help=name not in VERBATIM,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        command.prepare_parser(of_command)
        shown = "".join(f"  stalloc {example}\n" for example in examples(command))
        of_command.epilog = f"{(of_command.epilog or '').strip()}\n\nexamples:\n{shown}".lstrip()
    return parser


def examples(command: Command) -> Sequence[str]:
    """Command lines without `stalloc`; none of a command that the planner carries out."""
    found: Sequence[str] = getattr(command, "EXAMPLES", ())
    return found


def planners_help(name: str) -> str:
    """Of a command that the planner carries out, with the flags that are the package's. planner.PlannerError."""
    return planner.help_text(name, getattr(COMMANDS[name], "MORE_FLAGS", ""))


def whole_parser() -> argparse.ArgumentParser:
    """The command line's, with the options of the planner, too, where it can be started."""
    parser = build_parser()
    commands = next(action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    for name in VERBATIM:
        with contextlib.suppress(planner.PlannerError):
            for flag, value, meaning in planner.flags(planners_help(name)):
                takes = {} if value else {"action": "store_true"}
                commands.choices[name].add_argument(f"--{flag}", help=meaning.replace("%", "%%"), **takes)
    return parser


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Runs one command and returns the exit code. argparse leaves by SystemExit: 0 after --help, 2 on bad usage."""
    words = list(sys.argv[1:] if argv is None else argv)
    if words and words[0] == "run":
        return _main(words)
    try:
        code = _main(words)
        sys.stdout.flush()
        return code
    except BrokenPipeError:  # a reader as `head` that has seen enough
        return _leave_closed_pipe()
    except SystemExit:
        try:
            sys.stdout.flush()  # of --help
        except BrokenPipeError:
            return _leave_closed_pipe()
        raise


def _leave_closed_pipe() -> int:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 1


def _main(words: list[str]) -> int:
    if words and words[0] in VERBATIM:
        return COMMANDS[words[0]].run(argparse.Namespace(arguments=words[1:]))
    program: list[str] = []
    if words and words[0] == "run":
        words, program = run.split(words)
    elif words and words[0] in MODEL_OPTIONS and "--" in words:
        words, program = words[: words.index("--")], words[words.index("--") + 1 :]
    arguments = build_parser().parse_args(words)
    arguments.program = program
    arguments.whole_parser = whole_parser
    return COMMANDS[arguments.command].run(arguments)
