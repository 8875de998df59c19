"""`stalloc synth`: make a synthetic trace, or an instance for `pack`."""

from __future__ import annotations

import argparse

from stalloc.tools.commands import planner


def run(arguments: argparse.Namespace) -> int:
    return planner.execute("synth", arguments.arguments)
