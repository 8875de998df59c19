"""The command line `stalloc`. One module a subcommand; results on stdout, the rest on stderr.

Exit codes: 0 fine, 1 bad input or infeasible, 2 usage. `run` ends with the code of the program that it runs.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import os
import sys
from collections.abc import Collection, Sequence
from typing import Any, Optional

from stalloc.core.version import __version__

# What each does. Its module has `prepare_parser` and `run`, and EXAMPLES, unless the planner's help has them.
COMMANDS = {
    "run": "run a training script (or -m MODULE) with stalloc's allocator in place",
    "status": "show how far a run under STALLOC_MODE=Auto is: its stages, with their times, of each rank, and "
    "whether it runs",
    "summary": "show what a run held, how many requests its plan served, and what that saved, of each rank",
    "runs": "list the runs under STALLOC_MODE=Auto whose plans are kept for later starts",
    "clean": "remove runs under STALLOC_MODE=Auto that are kept for later starts",
    "plan": "plan the memory of every traced rank below a directory",
    "report": "show where the memory of a traced run went: an HTML file, Markdown or JSON",
    "diff": "what a second run has more or less of at its peak, by class, layer, block and phase",
    "leaks": "find what makes live bytes grow from iteration to iteration, and where it is allocated",
    "advise": "what would lower the peak of a traced run, by how much, and at what cost",
    "whatif": "would a traced run fit in so much memory, and how large could its micro-batch be",
    "fit": "from one trace: the fastest micro-batch, and what to recompute or offload, for so much memory",
    "estimate": "what a Megatron-LM configuration should need on a rank, by formulas, beside what was traced",
    "import": "make a trace from a PyTorch memory snapshot with history (torch.cuda.memory._dump_snapshot)",
    "export": "write a trace for other tools: memory_viz, Perfetto, CSV, SQLite",
    "dump": "print a trace as text",
    "pack": "pack the buffers of a CSV file (id,lower,upper,size)",
    "check": "check a plan against its trace, independently of the planner",
    "synth": "make a synthetic trace of a pipeline run, or an instance for pack",
    "sleep": "put processes to sleep: what lives in their arenas goes to the host, its memory to the device",
    "wake": "wake processes that sleep: what lived in their arenas comes back to its addresses",
    "oom": "show a report that STALLOC_OOM_REPORT wrote: what was alive, what happened last, where the run "
    "was in its plan",
    "doctor": "check what works on this machine and what to do about the rest; paste its output into an issue",
    "info": "print versions, the libraries found and whether they fit this torch",
    "completion": "print the completion of commands and options for a shell (needs `pip install shtab`)",
}
_MODULES = {"import": "stalloc.tools.commands.import_", "run": "stalloc.train.run"}

# Their arguments are another program's: argparse must not look at them.
VERBATIM = frozenset({"plan", "dump", "pack", "check", "synth"})
# Behind -- they take options of the training program that a trace's command line lacks.
MODEL_OPTIONS = frozenset({"advise", "estimate", "report", "whatif"})


def module_of(name: str) -> Any:
    """A command's: one that does not run is not imported."""
    return importlib.import_module(_MODULES.get(name, f"stalloc.tools.commands.{name}"))


def build_parser(whole: Collection[str] = tuple(COMMANDS)) -> argparse.ArgumentParser:
    """With the options of the commands in `whole`; of others with the names alone."""
    parser = argparse.ArgumentParser(
        prog="stalloc",
        description="Plans the memory of a training run from a trace of its first iterations.",
        epilog="`stalloc COMMAND --help` tells more. Exit codes: 0 fine, 1 bad input or infeasible, 2 usage.",
    )
    parser.add_argument("--version", action="version", version=f"stalloc {__version__}")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, told in COMMANDS.items():
        of_command = subparsers.add_parser(
            name,
            help=told,
            description=told,
            add_help=name not in VERBATIM,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        if name in VERBATIM:
            of_command.add_argument("arguments", nargs=argparse.REMAINDER)
        elif name in whole:
            module_of(name).prepare_parser(of_command)
            shown = "".join(f"  stalloc {example}\n" for example in module_of(name).EXAMPLES)
            of_command.epilog = f"{(of_command.epilog or '').strip()}\n\nexamples:\n{shown}".lstrip()
    return parser


def planners_help(name: str) -> str:
    """Of a command that the planner carries out, with the flags that are the package's. planner.PlannerError."""
    help_text: str = module_of("planner").help_text(name, getattr(module_of(name), "MORE_FLAGS", ""))
    return help_text


def whole_parser() -> argparse.ArgumentParser:
    """The command line's, with the options of the planner, too, where it can be started."""
    parser = build_parser()
    commands = next(action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    planner = module_of("planner")
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
    name = words[0] if words and words[0] in COMMANDS else ""
    if name in VERBATIM:
        return _run(name, argparse.Namespace(arguments=words[1:]))
    program: list[str] = []
    if name == "run":
        words, program = module_of(name).split(words)
    elif name in MODEL_OPTIONS and "--" in words:
        words, program = words[: words.index("--")], words[words.index("--") + 1 :]
    arguments = build_parser((name,)).parse_args(words)
    arguments.program = program
    arguments.whole_parser = whole_parser
    return _run(arguments.command, arguments)


def _run(name: str, arguments: argparse.Namespace) -> int:
    code: int = module_of(name).run(arguments)
    return code
