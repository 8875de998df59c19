"""The other end: `stalloc sleep PID ...` and `stalloc wake PID ...`.

A sleep of several processes is one of all or of none: ranks wait for each other. What was put to sleep is kept only
once all sleep.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import selectors
import socket
import sys
import time
from typing import Any, Optional

from stalloc.core import sleep_places, sleep_sockets
from stalloc.core.sizes import size
from stalloc.tools.commands import options

_SLACK_SECONDS = 600.0  # for the sleep itself, once it has begun
_CONNECT_SECONDS = 10.0
_EPILOG = """
A process takes such orders where it was started with STALLOC_SLEEP_SOCKET=1 or calls stalloc.serve_sleep(), from its
own user. A training loop obeys between two iterations, and stays there until it is woken.
"""
_ALL_OR_NONE = """
Of several processes all sleep, or none: where one does not, the others are woken again. What is interrupted (Ctrl-C) is
withdrawn.
"""


def prepare_parser(parser: argparse.ArgumentParser, verb: str) -> None:
    parser.epilog = _EPILOG + (_ALL_OR_NONE if verb == "sleep" else "")
    parser.add_argument("pids", metavar="PID", nargs="+", type=_pid, help=f"make these processes {verb}")
    parser.add_argument("--tags", type=_names, metavar="NAME,...", help="take only these regions (default: everything)")
    if verb == "sleep":
        parser.add_argument(
            "--keep",
            type=_names,
            metavar="NAME,...",
            help="keep the bytes of these regions (default: as each region says)",
        )
        parser.add_argument("--to", choices=("host", "nothing"), default="host", help="move the bytes there")
    parser.add_argument(
        "--timeout",
        type=_seconds,
        default=300.0,
        metavar="SECONDS",
        help="wait this long for the end of an iteration (default: 300)",
    )
    options.add_json(parser)


def _pid(text: str) -> int:
    if text.isdecimal() and 0 < int(text) < 1 << 31:
        return int(text)
    raise argparse.ArgumentTypeError(f"a process has a number above 0: {text!r}")


def _names(text: str) -> list[str]:
    names = [name for name in text.split(",") if name]
    if not names:
        raise argparse.ArgumentTypeError(f"names no region: {text!r}")
    return names


def _seconds(text: str) -> float:
    try:
        return sleep_sockets.seconds_of(float(text))
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def run(verb: str, arguments: argparse.Namespace) -> int:
    """All processes at once: one that sleeps alone may keep the others from their boundary."""
    message: dict[str, Any] = {"do": verb, "timeout": arguments.timeout, "tags": arguments.tags}
    if verb == "sleep":
        message |= {"keep": arguments.keep, "to": arguments.to}
    ordered = [Ordered(pid) for pid in dict.fromkeys(arguments.pids)]
    try:
        order(ordered, message)
    except KeyboardInterrupt:
        withdrawn = "; what sleeps of them is woken again" if verb == "sleep" else ""
        print(f"stalloc {verb}: interrupted: the orders are withdrawn{withdrawn}", file=sys.stderr)
        return 130
    finally:
        for one in ordered:
            one.close()
    if arguments.json:
        rows = [{"pid": one.pid, **one.result()} for one in ordered]
        print(json.dumps({"processes": rows}, indent=1))
    for one in ordered:
        answer = one.result()
        if not answer["ok"]:
            print(f"stalloc {verb}: process {one.pid}: {answer['error']}", file=sys.stderr)
        elif not arguments.json:
            print(f"{one.pid}: {_line(answer['result'])}")
    return 0 if all(one.is_done for one in ordered) else 1


class Ordered:
    """One process, and what it has answered."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.answer: Optional[dict[str, Any]] = None
        self.connection: Optional[socket.socket] = None
        self.lines: Optional[sleep_sockets.Lines] = None

    @property
    def is_done(self) -> bool:
        return self.answer is not None and self.answer["ok"] is True

    def result(self) -> dict[str, Any]:
        return self.answer or sleep_sockets.failed("it did not answer")

    def fail(self, why: str) -> None:
        self.answer = sleep_sockets.failed(why)
        self.close()

    def connect(self) -> None:
        try:
            self.connection = _connected(self.pid)
            self.lines = sleep_sockets.Lines(self.connection)
        except OSError as error:
            self.fail(str(error))

    def send(self, message: dict[str, Any]) -> None:
        if self.connection is None:
            return
        try:
            self.connection.settimeout(_CONNECT_SECONDS)
            sleep_sockets.send(self.connection, message)
            self.answer = None
        except OSError as error:
            self.fail(f"it was not reached: {error}")

    def read(self) -> None:
        """Once something has come."""
        assert self.lines is not None
        try:
            if not self.lines.take():
                return
            answer = self.lines.message()
            if not (answer.get("ok") is True or isinstance(answer.get("error"), str)):
                raise ValueError(f"an answer must say whether it was done: {sleep_sockets.short(answer)}")
            self.answer = answer
        except ConnectionError:
            self.fail("it ended before it answered")
        except (OSError, ValueError) as error:
            self.fail(f"it gave no answer: {error}")

    def close(self) -> None:
        if self.connection is not None:
            self.connection.close()
        self.connection = None


def order(ordered: list[Ordered], message: dict[str, Any]) -> None:
    """Gives the order to all, and waits for their answers. Of a sleep that not all carry out, nothing is left."""
    sleeps = message["do"] == "sleep"
    for one in ordered:
        one.connect()
    if sleeps and any(one.connection is None for one in ordered):
        for one in ordered:
            if one.connection is not None:
                one.fail("it was not ordered to sleep, since not all of them take orders")
        return
    seconds = message["timeout"] + _SLACK_SECONDS
    for one in ordered:
        one.send(message)
    _wait(ordered, seconds)
    if not sleeps:
        return
    asleep = [one for one in ordered if one.is_done]
    if len(asleep) == len(ordered):
        for one in asleep:
            _keep(one)
    else:
        _undo(asleep)


def _keep(one: Ordered) -> None:
    answer = one.answer
    one.send({"do": "keep"})
    if one.connection is not None:
        one.answer = answer


def _undo(asleep: list[Ordered]) -> None:
    for one in asleep:
        one.send({"do": "undo"})
    _wait(asleep, _SLACK_SECONDS)
    for one in asleep:
        if one.is_done:
            one.fail("it was put to sleep, and is awake again, since not all of them sleep")
        else:
            one.fail(f"it sleeps, and not all of them do: {one.result()['error']}; to wake it: stalloc wake {one.pid}")


def _wait(ordered: list[Ordered], seconds: float) -> None:
    """The time to wait for answers. A process that gives none in time has its order withdrawn: the connection
    closes."""
    deadline = time.monotonic() + seconds
    with selectors.DefaultSelector() as selector:
        for one in ordered:
            if one.connection is not None:
                selector.register(one.connection, selectors.EVENT_READ, one)
        while selector.get_map() and time.monotonic() < deadline:
            for key, _ in selector.select(deadline - time.monotonic()):
                one = key.data
                one.read()
                if one.answer is not None:
                    selector.unregister(key.fileobj)
        for key in list(selector.get_map().values()):
            key.data.fail(f"no answer within {seconds:g} s: the order is withdrawn")


# Where the process is ------------------------------------------------------------------------------------------------


def _connected(pid: int) -> socket.socket:
    """OSError says why there is none, and where it was looked for."""
    try:
        directories, user, name = sleep_places.of_process(pid), sleep_places.user_of(pid), sleep_places.name_of(pid)
    except (FileNotFoundError, ProcessLookupError):
        raise OSError(f"it takes no orders: no process has the number {pid} here") from None
    looked = []
    for directory in directories:
        try:
            with sleep_places.opened(directory, user) as descriptor:
                return _connection_to(pid, sleep_places.address(directory, descriptor, name))
        except FileNotFoundError:
            looked.append(str(directory))
        except OSError as error:
            looked.append(f"{directory} ({error})")
    raise OSError(
        "it takes no orders: start it with STALLOC_SLEEP_SOCKET=1, or let it call stalloc.serve_sleep(); "
        f"{name} was looked for in {', '.join(looked)}"
    )


def _connection_to(pid: int, at: str) -> socket.socket:
    with contextlib.ExitStack() as stack:
        connection = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        connection.settimeout(_CONNECT_SECONDS)
        connection.connect(at)
        found, _ = sleep_sockets.peer(connection)
        if found != pid:
            raise OSError(f"process {found} listens there" if found else "a process of another PID namespace does")
        stack.pop_all()
        return connection


def _line(result: dict[str, Any]) -> str:
    devices = result["devices"]
    facts = [
        f"{size(sum(device['copied_bytes'] for device in devices))} copied",
        f"{size(sum(device['given_back_bytes'] for device in devices))} of device memory",
        f"{sum(device['seconds'] for device in devices):.3f} s",
    ]
    stays = [f"{size(row['bytes'])} {row['what']}" for row in result["stays"]]
    if "stays_unknown" in result:
        stays = [f"not known: {result['stays_unknown']}"]
    return "; ".join([", ".join(facts)] + ([f"stays: {', '.join(stays)}"] if stays else []))
