"""The common part of commands about one view of a run: its path and rank, JSON or text, errors."""

from __future__ import annotations

import argparse
import json
from typing import Any, Callable, Optional

from stalloc.tools.commands import options
from stalloc.tools.report import collect, select
from stalloc.tools.report.collect import ViewOptions

View = dict[str, Any]
Rows = list[dict[str, Any]]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.add_run(parser)
    options.add_rank(parser)
    options.add_json(parser)


def answer(
    name: str,
    arguments: argparse.Namespace,
    of_device: Callable[[View, int], dict[str, Any]],
    show: Callable[[dict[str, Any]], None],
    further: Optional[ViewOptions] = None,
) -> int:
    """Prints what `of_device` finds of each device of the view; returns the exit code.

    Args:
        name: of the command, for errors.
        arguments: those of `add_arguments`.
        of_device: takes the planner's JSON and the index of a device; ValueError says why there is no answer.
        show: prints it as text.
        further: inputs of the view in addition to its trace.
    """
    try:
        view = select.view_of(arguments.path, arguments.rank, further)
        options.warn(name, collect.broken_off(view))
        found = [of_device(view, index) for index in range(len(view["devices"]))]
    except (collect.CollectError, ValueError) as error:
        return options.refuse(name, error)
    if arguments.json:
        print(json.dumps({"rank": view["rank"]["rank"], "truncation": collect.broken_off(view), "devices": found}))
        return 0
    for device in found:
        show(device)
    return 0
