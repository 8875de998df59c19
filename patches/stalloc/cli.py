"""The command line `stalloc`. One module a subcommand; results on stdout, the rest on stderr.

Exit codes: 0 fine, 1 bad input or infeasible, 2 usage. `run` ends with the code of the program that it runs.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import importlib
import os
import sys
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn, Optional

from stalloc.core.version import __version__

# What each command does. Its module has `prepare_parser` and `run`, and EXAMPLES, unless the planner's help has them.
GROUPS = {
    "every day": {
        "run": "run a training script (or -m MODULE) under stalloc's allocator",
        "status": "show how far a run is, what it held and what its plan saved",
        "plan": "plan the memory of every traced rank below a directory",
        "report": "show where the memory of a traced run went: HTML, Markdown, JSON",
        "fit": "choose the fastest micro-batch and savings that fit a memory size",
        "doctor": "check what works on this machine, and what to do about the rest",
    },
    "look closer": {
        "advise": "list what would lower the peak of a traced run, and its cost",
        "whatif": "compute whether a traced run would fit a memory size, and by how much",
        "diff": "compare two runs at their peaks: class, layer, block and phase",
        "oom": "show the report that an out-of-memory error left",
    },
    "move files": {
        "import": "make a trace from a PyTorch memory snapshot with history",
        "export": "write a trace for other tools: memory_viz, Perfetto, CSV, SQLite",
        "runs": "list the runs whose plans are kept for later starts, or remove some",
    },
    "share a device": {
        "sleep": "put processes to sleep, so that other processes can use their memory",
        "wake": "wake sleeping processes, and restore their memory",
    },
}
COMMANDS = {name: does for group in GROUPS.values() for name, does in group.items()}
_WHERE = " (stalloc doctor says where it is)"
# They still run, and the next version lacks them: what to type instead.
GOING = {
    "summary": "stalloc status DIR",
    "leaks": "stalloc report DIR --leaks",
    "clean": "stalloc runs --remove NAME",
    "info": "stalloc doctor",
    "completion": "stalloc --completion SHELL",
    "estimate": "stalloc report DIR --md, which compares the estimate with the trace, or stalloc run --fake",
    "dump": "stalloc export DIR --format text --output FILE",
    "check": f"stalloc-planner check PLAN TRACE{_WHERE}; stalloc plan checks each plan that it writes",
    "pack": f"stalloc-planner pack{_WHERE}",
    "synth": f"stalloc-planner synth{_WHERE}",
}
_PASSED_ON = "stalloc.tools.commands.passed_on"
_MODULES = {
    **dict.fromkeys(("dump", "check", "pack", "synth"), _PASSED_ON),
    "import": "stalloc.tools.commands.import_",
    "run": "stalloc.train.run",
}

# Their arguments are another program's: argparse must not look at them.
VERBATIM = frozenset({"plan", "dump", "pack", "check", "synth"})
# After -- they take options of the training program that a trace's command line lacks.
MODEL_OPTIONS = frozenset({"advise", "estimate", "report", "whatif"})


def module_of(name: str) -> Any:
    """The module of a command: only the command that runs is imported."""
    return importlib.import_module(_MODULES.get(name, f"stalloc.tools.commands.{name}"))


class Parser(argparse.ArgumentParser):
    """Names the nearest option for an unknown one."""

    _words: Sequence[str] = ()

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        self._words = args or ()
        known, rest = super().parse_known_args(args, namespace)
        if rest:
            self.error(f"unrecognized arguments: {' '.join(rest)}")
        return known, rest

    def error(self, message: str) -> NoReturn:
        names = [word.partition("=")[0] for word in self._words if word.startswith("--")]
        options = self._option_string_actions
        unknown = [name for name in names if not any(option.startswith(name) for option in options)]
        super().error(message + "".join(f"; {name}{_did_you_mean(name, options)}" for name in unknown))


def _did_you_mean(word: str, known: Iterable[str]) -> str:
    return "".join(f": did you mean {name}?" for name in difflib.get_close_matches(word, list(known), 1))


class _Format(argparse.RawDescriptionHelpFormatter):
    """Omits the list of commands: the description has them in groups."""

    def add_argument(self, action: argparse.Action) -> None:
        if not isinstance(action, argparse._SubParsersAction):
            super().add_argument(action)


class _Completion(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, _namespace: object, shell: Any, _option: object = None) -> None:
        parser.exit(module_of("completion").complete("--completion", whole_parser(), shell))


def build_parser(names: Sequence[str] = tuple(COMMANDS)) -> argparse.ArgumentParser:
    """The parser of the command line with these commands; none: only the options before a command."""
    parser = Parser(
        prog="stalloc",
        usage="stalloc COMMAND ...",
        description="Plans the memory of a training run from a trace of its first iterations.\n" + _groups(),
        epilog="`stalloc COMMAND --help` describes a command. Exit codes: 0 fine, 1 bad input or infeasible, 2 usage.",
        formatter_class=_Format,
    )
    parser.add_argument("--version", action="version", version=f"stalloc {__version__}")
    parser.add_argument(
        "--completion",
        metavar="SHELL",
        choices=("bash", "zsh", "tcsh"),
        action=_Completion,
        help="print the script that completes commands and options in bash, zsh or tcsh",
    )
    if not names:
        return parser
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", prog="stalloc", required=True)
    for name in names:
        does = COMMANDS.get(name) or f"The next version removes this command. Use instead: {GOING[name]}."
        command = commands.add_parser(
            name,
            help=does,
            description=does,
            add_help=name not in VERBATIM,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        if name in VERBATIM:
            command.add_argument("arguments", nargs=argparse.REMAINDER)
            continue
        module_of(name).prepare_parser(command)
        shown = "".join(f"  stalloc {example}\n" for example in module_of(name).EXAMPLES)
        command.epilog = f"{(command.epilog or '').strip()}\n\nexamples:\n{shown}".lstrip()
    return parser


def _groups() -> str:
    return "".join(
        f"\n{title}:\n" + "".join(f"  {name:<8}{does}\n" for name, does in group.items())
        for title, group in GROUPS.items()
    )


def planners_help(name: str) -> str:
    """The help of a command that the planner carries out, with the package's own flags. planner.PlannerError."""
    help_text: str = module_of("planner").help_text(name, module_of(name).MORE_FLAGS)
    return help_text


def whole_parser() -> argparse.ArgumentParser:
    """The command line's, with the options of the planner, too, where it can be started."""
    parser = build_parser()
    commands = next(action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    planner = module_of("planner")
    with contextlib.suppress(planner.PlannerError):
        for flag, value, meaning in planner.flags(planners_help("plan")):
            takes = {} if value else {"action": "store_true"}
            commands.choices["plan"].add_argument(f"--{flag}", help=meaning.replace("%", "%%"), **takes)
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
    name = words[0] if words and not words[0].startswith("-") else ""
    if name in GOING:
        print(f"stalloc {name}: the next version removes this command; instead: {GOING[name]}", file=sys.stderr)
    elif name not in COMMANDS:
        parser = build_parser(())
        if not name:
            parser.parse_args(words)
        parser.error(f"there is no command {name}{_did_you_mean(name, COMMANDS)}" if name else "expected a COMMAND")
    if name in VERBATIM:
        return _run(argparse.Namespace(command=name, arguments=words[1:]))
    program: list[str] = []
    if name == "run":
        words, program = module_of(name).split(words)
    elif name in MODEL_OPTIONS and "--" in words:
        words, program = words[: words.index("--")], words[words.index("--") + 1 :]
    arguments = build_parser((name,)).parse_args(words)
    arguments.program = program
    arguments.whole_parser = whole_parser
    arguments.make_choice = _make_choice  # of `run`
    return _run(arguments)


def _make_choice(program: Sequence[str], memory: Optional[int]) -> tuple[int, str]:
    """For `run --fit`: an exit code, and the file of the choice."""
    made: tuple[int, str] = module_of("run_fit").make_choice(program, memory)
    return made


def _run(arguments: argparse.Namespace) -> int:
    code: int = module_of(arguments.command).run(arguments)
    return code
