"""The other end: `stalloc sleep PID` and `stalloc wake PID`."""

from __future__ import annotations

import argparse
import json
import socket
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Optional

from stalloc._core._report import size
from stalloc._sleep import sockets

_SLACK_SECONDS = 600.0  # for the sleep itself, once it has begun
_EPILOG = """
A process takes such orders where it was started with STALLOC_SLEEP_SOCKET=1 or calls stalloc.serve_sleep(), from its
own user. A training loop obeys between two iterations, and stays there until it is woken.
"""


def prepare_parser(parser: argparse.ArgumentParser, verb: str) -> None:
    parser.epilog = _EPILOG
    parser.add_argument("pids", metavar="PID", nargs="+", type=int, help=f"the processes that are to {verb}")
    parser.add_argument("--tags", metavar="NAME,...", help="regions whose blocks do so (default: everything)")
    if verb == "sleep":
        parser.add_argument(
            "--keep", metavar="NAME,...", help="regions whose bytes are kept (default: as they say themselves)"
        )
        parser.add_argument("--to", choices=("host", "nothing"), default="host", help="where the bytes go")
    parser.add_argument(
        "--timeout",
        type=float,
        default=300.0,
        metavar="SECONDS",
        help="how long to wait for the end of an iteration (default: 300)",
    )
    parser.add_argument("--json", action="store_true", help="as JSON")


def run(verb: str, arguments: argparse.Namespace) -> int:
    """All processes at once: one that sleeps alone may keep the others from their boundary."""
    message: dict[str, Any] = {"do": verb, "timeout": arguments.timeout, "tags": _names(arguments.tags)}
    if verb == "sleep":
        message |= {"keep": _names(arguments.keep), "to": arguments.to}
    with ThreadPoolExecutor(len(arguments.pids)) as pool:
        answers = list(pool.map(lambda pid: ask(pid, message), arguments.pids))
    if arguments.json:
        rows = [{"pid": pid, **answer} for pid, answer in zip(arguments.pids, answers)]
        print(json.dumps({"processes": rows}, indent=1))
    for pid, answer in zip(arguments.pids, answers):
        if not answer["ok"]:
            print(f"stalloc {verb}: process {pid}: {answer['error']}", file=sys.stderr)
        elif not arguments.json:
            print(f"{pid}: {_line(answer['result'])}")
    return 0 if all(answer["ok"] for answer in answers) else 1


def ask(pid: int, message: dict[str, Any]) -> dict[str, Any]:
    try:
        path = sockets.path_of(pid)
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(message["timeout"] + _SLACK_SECONDS)
            connection.connect(str(path))
            sockets.send(connection, message)
            return sockets.receive(connection)
    except (FileNotFoundError, ConnectionRefusedError):
        return _failed("it takes no orders: start it with STALLOC_SLEEP_SOCKET=1, or let it call stalloc.serve_sleep()")
    except TimeoutError:
        return _failed(f"no answer within {message['timeout'] + _SLACK_SECONDS:g} s")
    except (OSError, ValueError) as error:
        return _failed(str(error))


def _failed(why: str) -> dict[str, Any]:
    return {"ok": False, "error": why}


def _names(text: Optional[str]) -> Optional[list[str]]:
    return None if text is None else [name for name in text.split(",") if name]


def _line(result: dict[str, Any]) -> str:
    devices = result["devices"]
    facts = [
        f"{size(sum(device['copied_bytes'] for device in devices))} copied",
        f"{size(sum(device['given_back_bytes'] for device in devices))} of device memory",
        f"{sum(device['seconds'] for device in devices):.3f} s",
    ]
    stays = [f"{size(row['bytes'])} {row['what']}" for row in result["stays"]]
    return "; ".join([", ".join(facts)] + ([f"stays: {', '.join(stays)}"] if stays else []))
