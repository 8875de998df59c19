"""Sizes of memory as people write and read them."""

from __future__ import annotations

import argparse
import re

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_NAMES = ("B", "KiB", "MiB", "GiB", "TiB")
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


def size(count: float) -> str:
    """ "34.93 GiB": the largest binary unit of which there is at least one."""
    value, unit = float(count), 0
    while abs(value) >= 1024 and unit < len(_NAMES) - 1:
        value /= 1024
        unit += 1
    return f"{count:.0f} B" if unit == 0 else f"{value:.2f} {_NAMES[unit]}"
