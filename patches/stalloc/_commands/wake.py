"""`stalloc wake`: a process that sleeps gets its device's memory back."""

from __future__ import annotations

import argparse

from stalloc._sleep import client

HELP = "wake processes that sleep: what lived in their arenas comes back to its addresses"
EXAMPLES = (
    "wake 4711",
    "wake 4711 --tags weights",
)

_EPILOG = """
A process takes such orders where it was started with STALLOC_SLEEP_SOCKET=1 or calls stalloc.serve_sleep(), from its
own user. A training loop obeys between two iterations, and stays there until it is woken.
"""


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EPILOG
    client.prepare_parser(parser, "wake")


def run(arguments: argparse.Namespace) -> int:
    return client.run("wake", arguments)
