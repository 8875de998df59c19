"""Sizes of memory on the command line."""

from __future__ import annotations

import argparse
import re

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_LEAST = 1 << 20  # without a unit; less was meant in another one


def parse(text: str) -> int:
    """Bytes of "80G", "40960MiB" or "85899345920", as an argument's type. Units are binary."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(i?B)?", text, re.IGNORECASE)
    if match is None:
        raise argparse.ArgumentTypeError(f"expected a size as 80G or 40960M: {text!r}")
    size = round(float(match[1]) * _UNITS[match[2].upper()])
    if 0 < size < _LEAST and not match[2] and not match[3]:
        raise argparse.ArgumentTypeError(f"{text} is {text} bytes; did you mean {text}G?")
    return size
