"""The common parts of commands: options for ranks, files and JSON, and the line of an error."""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path
from typing import Callable, Optional

from stalloc.core import sizes

HIGHEST = "the rank with the highest peak"


def add_json(parser: argparse._ActionsContainer, what: str = "") -> None:
    parser.add_argument("--json", action="store_true", help=f"print {what and f'{what} as '}JSON")


def add_rank(parser: argparse._ActionsContainer, default: str = HIGHEST) -> None:
    parser.add_argument(
        "--rank", type=at_least(0), metavar="R", help=f"take rank R of a directory (default: {default})"
    )


def add_run(parser: argparse._ActionsContainer) -> None:
    """The run to read, `path`: its directory or a trace."""
    parser.add_argument("path", metavar="DIR|TRACE", type=Path, help="read the run in this directory, or one trace")


def add_memory(parser: argparse._ActionsContainer) -> None:
    parser.add_argument(
        "--memory",
        type=sizes.parse_some,
        required=True,
        metavar="80G",
        help="take this for the device's memory, in binary units",
    )


def add_count(
    parser: argparse._ActionsContainer, name: str, what: str, default: Optional[int] = None, least: int = 1
) -> None:
    if default is not None:
        what = f"{what} (default {default})"
    parser.add_argument(name, type=at_least(least), default=default, metavar="N", help=what)


def at_least(least: int) -> Callable[[str], int]:
    """The type of an argument: a whole number from `least` on."""

    def count(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            number = least - 1
        if number < least:
            raise argparse.ArgumentTypeError(f"expected a number from {least} on: {text!r}")
        return number

    return count


def add_bus(parser: argparse._ActionsContainer, name: str, default: Optional[float] = 25) -> None:
    """`default`: GB/s; None: as measured with the trace."""
    known = "25" if default is not None else "as measured with the trace, else 25"
    what = f"take this for the speed of copies to the host (default {known})"
    parser.add_argument(name, type=_bandwidth, default=default, metavar="GB/s", help=what)


def _bandwidth(text: str) -> float:
    try:
        speed = float(text)
    except ValueError:
        speed = math.nan
    if not 0 < speed < math.inf:
        raise argparse.ArgumentTypeError(f"expected GB/s, more than 0: {text!r}")
    return speed


_ENDS_OF_FILES = (".html", ".htm", ".md", ".json", ".txt", ".log", ".csv", ".pickle", ".trace")


def output_file(text: str) -> Path:
    """An argument's type: a file that can be written, in an existing folder."""
    path = Path(text)
    if path.is_dir() or not text or text.endswith("/"):
        raise argparse.ArgumentTypeError(f"expected a file, found a folder: {text!r}")
    if not path.parent.is_dir():
        raise argparse.ArgumentTypeError(f"expected a file in an existing folder; there is no {path.parent}")
    return path


def output_folder(text: str) -> Path:
    """An argument's type: a folder, created if missing, within an existing one."""
    path = Path(text)
    if path.is_file() or (path.suffix in _ENDS_OF_FILES and not path.is_dir()):
        raise argparse.ArgumentTypeError(f"expected a folder, found the name of a file: {text!r}")
    if not path.absolute().parent.is_dir():
        raise argparse.ArgumentTypeError(f"expected a folder within an existing one; there is no {path.parent}")
    return path


def add_second_traces(parser: argparse._ActionsContainer, fitted: str) -> None:
    """`--beside` and `--graphs-beside`: the same program, traced in another way."""
    what = f"learn how {fitted} grow from a second trace, of the program with a micro-batch of N"
    parser.add_argument("--beside", nargs=2, metavar=("DIR|TRACE", "N"), help=what)
    what = "compare with the program traced with CUDA graphs, or without them"
    parser.add_argument("--graphs-beside", metavar="DIR|TRACE", type=Path, help=what)


def warn(command: str, text: Optional[str]) -> None:
    """A line on standard error; None: nothing."""
    if text is not None:
        print(f"stalloc {command}: warning: {text}", file=sys.stderr)


def refuse(command: str, error: object) -> int:
    """Says why the command ends here; the exit code of bad input."""
    print(f"stalloc {command}: {error}", file=sys.stderr)
    return 1
