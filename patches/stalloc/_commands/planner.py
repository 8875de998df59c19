"""Starts the packaged stalloc-planner."""

from __future__ import annotations

import os
import subprocess
import sys

from stalloc._core import _library


class PlannerError(RuntimeError):
    """The planner cannot be started. One line for the user."""


def execute(command: str, arguments: list[str]) -> int:
    """It replaces this process. Does not return unless it cannot be started."""
    try:
        planner = _find()
        sys.stdout.flush()
        sys.stderr.flush()
        try:
            os.execv(planner, [planner, command, *arguments])
        except OSError as error:
            raise _not_started(planner, error) from error
    except PlannerError as error:
        print(f"stalloc {command}: {error}", file=sys.stderr)
        return 1


def run(command: str, arguments: list[str], captured: bool = False) -> subprocess.CompletedProcess[str]:
    """It runs to its end below this process; `captured`: its standard output is in the result."""
    planner = _find()
    sys.stdout.flush()
    output = subprocess.PIPE if captured else None
    try:
        return subprocess.run([planner, command, *arguments], stdout=output, text=True, check=False)
    except OSError as error:
        raise _not_started(planner, error) from error


def _find() -> str:
    try:
        return str(_library.find_or_raise(_library.PLANNER_NAME))
    except _library.LibraryError as error:
        raise PlannerError(str(error)) from error


def _not_started(planner: str, error: OSError) -> PlannerError:
    return PlannerError(f"cannot run {planner}: {error.strerror}")
