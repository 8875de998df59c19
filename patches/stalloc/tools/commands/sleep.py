"""`stalloc sleep`: a process gives its device's memory away for a while."""

from __future__ import annotations

import argparse

from stalloc.tools import sleep_client

EXAMPLES = (
    "sleep 4711",
    "sleep 4711 4712 --tags kv_cache,weights --json",
)


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    sleep_client.prepare_parser(parser, "sleep")


def run(arguments: argparse.Namespace) -> int:
    return sleep_client.run("sleep", arguments)
