"""`stalloc report --leaks`: what makes live bytes grow from iteration to iteration."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from stalloc.core.sizes import size
from stalloc.tools.commands import viewed
from stalloc.tools.report import findings, text
from stalloc.tools.report.figures import device_name

EXAMPLES = ("leaks run1",)

ABOUT = """
A leak is a kind of block (size, class, phase, layer; with STALLOC_TRACE_STACKS=1 also its call site) that grows: four
times or more, an iteration begins with more live bytes of it than the one before. The first iteration does not count:
trace 6 iterations or more. A program that keeps the last N tensors grows until it has N: to distinguish this from
a leak, trace more than N + 2. The exit code is 0 with and without leaks.
"""
_SHOWN = 12  # beginnings of iterations


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.epilog = ABOUT
    viewed.add_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    return answer("leaks", arguments)


def answer(command: str, arguments: argparse.Namespace) -> int:
    """What `command` prints of the leaks of a view; viewed.answer has the arguments."""
    return viewed.answer(command, arguments, findings.leaks, _show)


def _show(device: dict[str, Any]) -> None:
    name, needed = device_name(device["device"]), device["needed_iterations"]
    live = [size(row["bytes"]) for row in device["live_at_begin"]]
    if not device["enough_iterations"]:
        print(f"{name}: too few iterations: {device['iterations']} traced, {needed} are needed")
    elif not device["groups"]:
        print(f"{name}: no leak in {device['iterations']} iterations")
    else:
        print(f"{name}: {size(device['bytes_per_iteration'])} more in every iteration")
    print(f"live where iterations begin: {', '.join(_shortened(live))}")
    if not device["groups"]:
        return
    rows = [
        (
            size(group["bytes_per_iteration"]),
            f"{group['blocks_per_iteration']:.3g}",
            _block(group),
            str(group["since_iteration"]),
            group["class"],
            group["layer"] or "-",
            group["phase"],
            group["call_site"] or "-",
        )
        for group in device["groups"]
    ]
    header = ("an iteration", "blocks", "of", "since", "class", "layer", "phase", "allocated at")
    print("\n" + text.table(header, rows, text_columns=(4, 5, 6, 7)), end="")
    if not any(group["call_site"] for group in device["groups"]):
        print("\nSTALLOC_TRACE_STACKS=1 when tracing shows the line that allocates it.")


def _block(group: dict[str, Any]) -> str:
    least, most = size(group["bytes"]), size(group["most_bytes"])
    return least if least == most else f"{least} to {most}"


def _shortened(values: Sequence[str]) -> list[str]:
    """The first and the last ones of many."""
    if len(values) <= _SHOWN:
        return list(values)
    return [*values[:4], "...", *values[-(_SHOWN - 4) :]]
