"""Hands a subcommand over to the packaged stalloc-planner, which replaces this process."""

from __future__ import annotations

import os
import sys

from stalloc import _library


def execute(command: str, arguments: list[str]) -> int:
    """Does not return unless the planner cannot be started."""
    try:
        planner = str(_library.find_or_raise(_library.PLANNER_NAME))
    except _library.LibraryError as error:
        print(f"stalloc {command}: {error}", file=sys.stderr)
        return 1
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        os.execv(planner, [planner, command, *arguments])
    except OSError as error:
        print(f"stalloc {command}: cannot run {planner}: {error.strerror}", file=sys.stderr)
        return 1
