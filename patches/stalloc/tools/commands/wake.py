"""`stalloc wake`: a process that sleeps gets its device's memory back."""

from __future__ import annotations

import argparse

from stalloc.tools import sleep_client

EXAMPLES = (
    "wake 4711",
    "wake 4711 --tags weights",
)


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    sleep_client.prepare_parser(parser, "wake")


def run(arguments: argparse.Namespace) -> int:
    return sleep_client.run("wake", arguments)
