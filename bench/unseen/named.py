"""Arguments of programs whose NAME is a kind, with options after dashes: "mixtral-eager-acc8"."""

from __future__ import annotations

import argparse
from collections.abc import Collection, Sequence
from typing import Optional

_MICRO_BATCHES = {"acc1": 1, "acc8": 8}  # of a step


def parse_arguments(about: Optional[str], kinds: Collection[str], options: Sequence[str]) -> argparse.Namespace:
    """With `kind`, `options` and `micro_batches` of the name."""
    options, known = [*options, *_MICRO_BATCHES], ", ".join(kinds)
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", metavar="NAME", help=f"one of {known}, and options")
    parser.add_argument("--iterations", type=int, default=16)
    parser.add_argument("--seed", type=int, default=0, help="of weights, data and sizes")
    arguments = parser.parse_args()
    arguments.kind, *arguments.options = arguments.name.split("-")
    if arguments.kind not in kinds or not set(arguments.options) <= set(options):
        parser.error(f"{arguments.name}: expected one of {known}, and options of {', '.join(options)}")
    arguments.micro_batches = next((_MICRO_BATCHES[each] for each in arguments.options if each in _MICRO_BATCHES), 4)
    return arguments
