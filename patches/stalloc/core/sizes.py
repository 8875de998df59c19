"""Sizes of memory as people write and read them."""

from __future__ import annotations

import argparse
import re

# The same as allocator/runtime/size_text.h, which the cases of tests/runtime/sizes.txt hold.
GRAMMAR = (
    "a number with a unit, as 80G, 1.5 GiB or 40960m: K, M, G and T are binary, with or without B or iB; up to six "
    "digits after the point. Without a unit it is whole bytes, 1048576 at least, or 0. Less than 16 EiB"
)
_SIZE = re.compile(r"(\d+)(?:\.(\d{1,6}))?(?: ?(?:([KMGT])(?:i?B)?|(B)))?", re.ASCII | re.IGNORECASE)
_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_NAMES = ("B", "KiB", "MiB", "GiB", "TiB")
_LEAST = 1 << 20  # without a unit; less was meant in another one
_END = 1 << 64


def parse(text: str) -> int:
    """Bytes of "80G", "1.5 GiB" or "85899345920", as an argument's type: GRAMMAR says which texts are sizes."""
    match = _SIZE.fullmatch(text)
    if match is None or (match[2] and not match[3]):
        raise argparse.ArgumentTypeError(f"expected a size as 80G or 40960M: {text!r}")
    unit = _UNITS[match[3].upper()] if match[3] else 1
    size = int(match[1]) * unit
    if match[2]:
        size += int(match[2]) * unit // 10 ** len(match[2])
    if size >= _END:
        raise argparse.ArgumentTypeError(f"expected a size of less than 16 EiB: {text!r}")
    if 0 < size < _LEAST and not match[3] and not match[4]:
        raise argparse.ArgumentTypeError(f"{text} is {text} bytes; did you mean {text}G?")
    return size


def parse_some(text: str) -> int:
    """Like `parse`, but refuses 0."""
    size = parse(text)
    if size == 0:
        raise argparse.ArgumentTypeError(f"expected more than 0 bytes: {text!r}")
    return size


def size(count: float) -> str:
    """ "34.93 GiB": the largest binary unit of which there is at least one."""
    value, unit = float(count), 0
    while abs(value) >= 1024 and unit < len(_NAMES) - 1:
        value /= 1024
        unit += 1
    return f"{count:.0f} B" if unit == 0 else f"{value:.2f} {_NAMES[unit]}"
