"""Starts the packaged stalloc-planner, under the name `stalloc`."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence

from stalloc.core import library
from stalloc.tools.commands import options

PROGRAM = "stalloc"  # its lines begin with "stalloc plan: "
_FLAG = re.compile(r"  --(?P<name>[\w-]+)(?:=(?P<value>\S+))?  (?P<help>.*)")


class PlannerError(RuntimeError):
    """The planner cannot be started. One line for the user."""


def execute(command: str, arguments: list[str]) -> int:
    """It replaces this process. Does not return unless it cannot be started."""
    try:
        planner = _find()
        sys.stdout.flush()
        sys.stderr.flush()
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # Python's own setting would be inherited
        try:
            os.execv(planner, [PROGRAM, command, *arguments])
        except OSError as error:
            raise _not_started(planner, error) from error
    except PlannerError as error:
        return options.refuse(command, error)


def run(command: str, arguments: list[str], captured: bool = False) -> subprocess.CompletedProcess[str]:
    """It runs to its end below this process; `captured`: its standard output is in the result."""
    planner = _find()
    sys.stdout.flush()
    output = subprocess.PIPE if captured else None
    try:
        return subprocess.run([PROGRAM, command, *arguments], executable=planner, stdout=output, text=True, check=False)
    except OSError as error:
        raise _not_started(planner, error) from error


def requests_help(arguments: Sequence[str]) -> bool:
    return bool({"--help", "-h"} & set(arguments))


def help_text(command: str, more: str = "") -> str:
    """The planner's, with flags that it does not know, each on a line of its own as "  --rank=R  what it does"."""
    shown = run(command, ["--help"], captured=True).stdout
    before, separator, examples = shown.partition("\nexamples:\n")
    return before + more + separator + examples


def flags(text: str) -> list[tuple[str, str, str]]:
    """Parses a help text: each flag with the name of its value ("" for a switch) and its description."""
    found = map(_FLAG.fullmatch, text.splitlines())
    return [(match["name"], match["value"] or "", match["help"]) for match in found if match]


def _find() -> str:
    try:
        return str(library.find_or_raise(library.PLANNER_NAME))
    except library.LibraryError as error:
        raise PlannerError(str(error)) from error


def _not_started(planner: str, error: OSError) -> PlannerError:
    return PlannerError(f"cannot run {planner}: {error.strerror}")
