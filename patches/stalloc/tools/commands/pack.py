"""`stalloc pack`: pack the buffers of a CSV file (id,lower,upper,size)."""

from __future__ import annotations

import argparse

from stalloc.tools.commands import planner


def run(arguments: argparse.Namespace) -> int:
    return planner.execute("pack", arguments.arguments)
