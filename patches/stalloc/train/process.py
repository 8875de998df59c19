"""Which processes are training processes: launchers, the command line and helper children are not.

A process that installs leaves `STALLOC_OWNER=<pid>:<rank>` in the environment. Its children inherit that; those with
the same rank (data loader workers, compilers, any subprocess) stay inactive; workers of a launcher have other ranks.
Before it has allocated anything it leaves `<pid>:<rank>:idle`: its place is then anyone's who trains (started.py).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Optional

OWNER_VARIABLE = "STALLOC_OWNER"

_LAUNCHER_PROGRAMS = frozenset({"torchrun", "torchrun-hpc", "accelerate", "deepspeed", "colossalai", "fabric"})
_LAUNCHER_MODULES = frozenset(
    {
        "torch.distributed.run",
        "torch.distributed.launch",
        "accelerate.commands.launch",
        "accelerate.commands.accelerate_cli",
        "deepspeed.launcher.runner",
        "deepspeed.launcher.launch",
    }
)
_OUR_PROGRAMS = frozenset({"stalloc"})
_OUR_MODULES = frozenset({"stalloc", "stalloc.cli"})

_denied = False


def deny() -> None:
    """This process launches others, whatever it looks like from now on (`stalloc run torchrun …`)."""
    global _denied
    _denied = True


def module_of_command(command: Sequence[str]) -> Optional[str]:
    """The MODULE of a `python … -m MODULE …` command line, or None."""
    rest = iter(command[1:])
    for word in rest:
        if not word.startswith("-") or word in ("-", "--"):
            return None  # a script, or standard input
        if word.startswith("--"):
            if word == "--check-hash-based-pycs":
                next(rest, None)
            continue
        for position, letter in enumerate(word[1:], start=2):
            if letter == "m":
                return word[position:] or next(rest, None)
            if letter == "c":
                return None
            if letter in "WX":
                if not word[position:]:
                    next(rest, None)
                break
    return None


def command_of_process() -> list[str]:
    command = getattr(sys, "orig_argv", None)  # Python 3.10 on
    if command is not None:
        return list(command)
    try:
        return os.fsdecode(Path("/proc/self/cmdline").read_bytes()).split("\0")[:-1]
    except OSError:
        return []


def is_launcher(program: str, module: Optional[str] = None) -> bool:
    """True for programs and modules that start training processes and do not train themselves."""
    return os.path.basename(program) in _LAUNCHER_PROGRAMS or module in _LAUNCHER_MODULES


def trains(command: Optional[Sequence[str]] = None, program: Optional[str] = None) -> bool:
    """False in a launcher's process and in `stalloc`'s own command line (whose `run` installs by itself)."""
    if _denied:
        return False
    if program is None:
        program = sys.argv[0] if getattr(sys, "argv", None) else ""
    module = module_of_command(command_of_process() if command is None else command)
    if is_launcher(program, module):
        return False
    return os.path.basename(program) not in _OUR_PROGRAMS and module not in _OUR_MODULES


class Owner(NamedTuple):
    """A process that installed, as it stood when it started this one, or one above."""

    pid: str
    rank: str
    idle: bool  # it had allocated nothing


def other_owner(environ: Mapping[str, str], rank: str, pid: int) -> Optional[Owner]:
    """The process that installed, where that is another one of this same rank."""
    words = environ.get(OWNER_VARIABLE, "").split(":")
    if len(words) < 2:
        return None
    owner = Owner(words[0], words[1], words[2:] == ["idle"])
    return owner if owner.pid != str(pid) and owner.rank == rank else None


def claim(rank: str, idle: bool = False) -> None:
    """Marks for the processes that this one starts that it is the one which installed."""
    os.environ[OWNER_VARIABLE] = f"{os.getpid()}:{rank}" + (":idle" if idle else "")
