"""Sockets of programs that take orders: where they are, whose they are, and what comes on them that is no order."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Optional

import pytest

from processes import FakeProcess
from sleepers import IDLE, LOOP, Sleeper, eventually
from stalloc.core import identity, sleep_places
from stalloc.tools import sleep_client
from stalloc.train.sleep import api, boundary, server


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[server.Server]:
    """A server in this process, whose arena does nothing; its loop comes to no end of an iteration."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr(api, "library", object)
    monkeypatch.setattr(server, "_MESSAGE_SECONDS", 0.5)
    boundary.forget()
    serving = server.Server(server.BOUNDARY)
    yield serving
    serving.close()
    boundary.forget()


def answer_of(path: Path, message: bytes) -> dict[str, Any]:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(30)
        connection.connect(str(path))
        connection.sendall(message)
        answer: dict[str, Any] = json.loads(connection.makefile().readline())
        return answer


# What is no order ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("message", "says"),
    [
        (b'{"do": "dance"}\n', "expected an order to sleep or wake, found 'dance'"),
        (b'{"do": ["sleep"]}\n', "expected an order to sleep or wake, found ['sleep']"),
        (b'{"do": "sleep", "tags": "weights"}\n', "tags must be a list of names, found 'weights'"),
        (b'{"do": "sleep", "keep": [1]}\n', "keep must be a list of names, found [1]"),
        (b'{"do": "wake", "tags": ["a\\u0000b"]}\n', "a region's tag must have no NUL character: 'a\\x00b'"),
        (b'{"do": "sleep", "to": "disk"}\n', "to must be 'host' or 'nothing': 'disk'"),
        (b'{"do": "sleep", "device": 4294967296}\n', "device must be an index, 'cpu' or 'cuda:N': 4294967296"),
        (b'{"do": "sleep", "device": true}\n', "device must be an index, 'cpu' or 'cuda:N': True"),
        (b'{"do": "sleep", "timeout": -1}\n', "the timeout must be more than 0 and at most 86400 seconds: -1"),
        (b'{"do": "sleep", "timeout": NaN}\n', "the timeout must be more than 0 and at most 86400 seconds: nan"),
        (b'{"do": "sleep", "timeout": Infinity}\n', "the timeout must be more than 0"),
        (b'{"do": "sleep", "timeout": "5"}\n', "the timeout must be more than 0"),
        (b'{"do": "sleep", "timeout": 1' + b"0" * 400 + b"}\n", "the timeout must be more than 0"),
        (b"[1]\n", "a message must be an object: [1]"),
        (b"sleep\n", "Expecting value"),
        (b'"\xff"\n', "codec can't decode"),
        (b"[" * 100000 + b"\n", "a message is nested too deeply"),
        (b"x" * (1 << 21), "a message is too long"),
        (b'{"do": "sleep"}', "no whole message came within 0.5 s"),
    ],
)
def test_what_is_no_order_is_an_error_of_who_sent_it(here: server.Server, message: bytes, says: str) -> None:
    threads = threading.active_count()
    for _ in range(2):  # it listens on
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # what is too long is not read to its end
            answer = answer_of(here.path, message)
            assert not answer["ok"]
            assert says in answer["error"]
    assert eventually(lambda: threading.active_count() <= threads), "nothing waits on"


def test_who_connects_and_says_nothing_keeps_no_thread(here: server.Server) -> None:
    threads = threading.active_count()
    with socket.socket(socket.AF_UNIX) as silent:
        silent.connect(str(here.path))
        assert eventually(lambda: threading.active_count() > threads)
        assert eventually(lambda: threading.active_count() == threads, 20)


def test_a_server_without_descriptors_listens_on(here: server.Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_PAUSE_SECONDS", 0.05)
    real = here._socket

    class Full:
        """The process has no descriptor for a connection."""

        failures = 2

        def accept(self) -> Any:
            if self.failures:
                self.failures -= 1
                raise OSError(24, "Too many open files")
            return real.accept()

        def __getattr__(self, name: str) -> Any:
            return getattr(real, name)

    here._socket = Full()  # type: ignore[assignment]
    for _ in range(3):
        assert not answer_of(here.path, b"[]\n")["ok"]
    assert Full.failures == 2
    assert here._socket.failures == 0  # type: ignore[attr-defined]


def test_a_server_without_threads_listens_on(here: server.Server, monkeypatch: pytest.MonkeyPatch) -> None:
    def start(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched, socket.socket(socket.AF_UNIX) as connection:
        patched.setattr(threading.Thread, "start", start)
        connection.settimeout(30)
        connection.connect(str(here.path))
        assert connection.recv(1) == b""
    assert not answer_of(here.path, b"[]\n")["ok"]


def test_regions_with_a_name_that_the_library_would_cut_are_refused() -> None:
    with pytest.raises(ValueError, match="NUL"), api.region("a\0b", True):
        pass


# Where they are ------------------------------------------------------------------------------------------------------


@pytest.fixture
def idle(fake: FakeProcess, tmp_path: Path) -> Iterator[Sleeper]:
    with Sleeper(fake, tmp_path / "idle", IDLE) as program:
        yield program


def test_a_client_with_another_runtime_directory_finds_it(idle: Sleeper, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir(mode=0o700)
    assert idle.path.parent == tmp_path / "stalloc"
    assert idle.order("sleep", idle.pid, XDG_RUNTIME_DIR=str(other)).code == 0
    assert idle.order("wake", idle.pid, XDG_RUNTIME_DIR="").code == 0
    assert idle.calls() == ["sleep", "wake"]
    assert not list(other.iterdir()), "a sleep_client makes nothing"


def test_without_a_runtime_directory_it_is_in_the_users_own_below_tmp(fake: FakeProcess, tmp_path: Path) -> None:
    for text in ("", "relative", str(tmp_path / "nowhere")):
        program = "import os\nos.environ['XDG_RUNTIME_DIR'] = " + repr(text) + "\n" + IDLE
        with Sleeper(fake, tmp_path / "idle", program) as idle:
            assert idle.path == Path(f"/tmp/stalloc-{os.getuid()}") / sleep_places.own_name(idle.process.pid)
            assert idle.order("sleep", idle.pid).code == 0
            assert idle.end().code == 0
        assert not idle.path.exists(), "the socket goes with its process"


def test_a_program_that_takes_no_orders_is_told_with_where_it_was_looked(tmp_path: Path, idle: Sleeper) -> None:
    (tmp_path / "chosen" / "stalloc").mkdir(parents=True, mode=0o755)
    quiet = subprocess.Popen(
        [sys.executable, "-c", "input()"], stdin=subprocess.PIPE, env={"XDG_RUNTIME_DIR": "/its/own"}
    )
    told = idle.order("sleep", str(quiet.pid), XDG_RUNTIME_DIR=str(tmp_path / "chosen"))
    quiet.communicate(b"\n")
    assert told.code == 1
    assert (
        "it takes no orders: start it with STALLOC_SLEEP_SOCKET=1, or let it call stalloc.serve_sleep(); " in told.err
    )
    unfit = f"{tmp_path}/chosen/stalloc ({tmp_path}/chosen/stalloc must be a directory of this user with mode 0700"
    for place in ("looked for in /its/own/stalloc, ", unfit, f"/tmp/stalloc-{os.getuid()}"):
        assert place in told.err
    assert sleep_places.own_name(quiet.pid) in told.err


def test_a_path_that_is_too_long_for_an_address_is_none_of_the_users_business(
    fake: FakeProcess, tmp_path: Path
) -> None:
    long = tmp_path / ("d" * 120)
    long.mkdir()
    with Sleeper(fake, long / "idle", IDLE) as idle:
        assert len(str(idle.path)) > 150
        assert idle.path.is_socket()
        assert idle.order("sleep", idle.pid).code == 0
        assert idle.end().code == 0
        assert not idle.path.exists()


@pytest.mark.parametrize("kind", ["link", "open to others", "file"])
def test_a_directory_that_is_not_the_users_alone_is_not_used(tmp_path: Path, kind: str) -> None:
    directory, elsewhere = tmp_path / "stalloc", tmp_path / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    if kind == "link":
        directory.symlink_to(elsewhere)
    elif kind == "file":
        directory.write_text("")
    else:
        directory.mkdir(mode=0o755)
    with pytest.raises(OSError, match="must be a directory of this user with mode 0700"):  # noqa: SIM117
        with sleep_places.opened(directory, os.getuid()):
            pass
    assert not list(elsewhere.iterdir())


def test_where_no_directory_can_be_used_each_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir(mode=0o755)
    monkeypatch.setattr(
        sleep_places, "of_user", lambda *_: [tmp_path / "one", tmp_path / "two", tmp_path / "no" / "three"]
    )
    with pytest.raises(OSError, match=r"one must be .*; .*two must be .*; .*No such file.*three"):
        server.Server(server.ONCE)


# Whose they are ------------------------------------------------------------------------------------------------------


def test_a_name_is_of_one_process_of_one_namespace_and_boot(monkeypatch: pytest.MonkeyPatch) -> None:
    own = sleep_places.own_name()
    assert own == sleep_places.name_of(os.getpid())
    assert own.startswith(f"{os.getpid()}-")
    monkeypatch.setattr(identity, "namespace", lambda: "pid:[1]")
    assert sleep_places.own_name() != own, "a container's"


def test_a_socket_that_somebody_listens_on_is_never_taken_away(
    here: server.Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = here.path.stat().st_ino
    monkeypatch.setattr(sleep_places, "of_user", lambda *_: [here.path.parent])
    with pytest.raises(OSError, match="a process listens there already"):
        server.Server(server.ONCE)
    assert here.path.stat().st_ino == before
    assert not answer_of(here.path, b"[]\n")["ok"]


def test_what_another_has_put_in_its_place_is_not_removed(here: server.Server) -> None:
    here.path.unlink()
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(here.path))
        other.listen()
        here.close()
        assert here.path.is_socket()


def test_sockets_of_processes_that_were_killed_are_replaced_and_swept_up(fake: FakeProcess, tmp_path: Path) -> None:
    with Sleeper(fake, tmp_path / "killed", IDLE) as killed:
        killed.process.send_signal(signal.SIGKILL)
    stranger = killed.path.with_name(f"{killed.pid}-0123456789ab.sock")
    shutil.copyfile(os.devnull, stranger)  # of another namespace, whose processes cannot be seen
    assert killed.path.is_socket()
    with Sleeper(fake, tmp_path / "idle", IDLE) as idle:
        assert not killed.path.exists()
        assert stranger.exists()
        at_work = idle.path.stat().st_ino
        with Sleeper(fake, tmp_path / "another", IDLE):
            assert idle.path.stat().st_ino == at_work
        assert idle.order("sleep", idle.pid).code == 0


def test_a_process_that_begins_anew_under_its_number_serves_again(fake: FakeProcess, tmp_path: Path) -> None:
    anew = IDLE.replace(
        "sys.stdin.readline()",
        "import os\nsys.stdin.readline()\n"
        "os.execv(sys.executable, [sys.executable, '-c', " + repr(LOOP) + ", *sys.argv[1:]])",
    )
    with Sleeper(fake, tmp_path / "anew", anew) as program:
        assert program.process.stdin is not None
        assert program.process.stdout is not None
        program.process.stdin.write("\n")
        program.process.stdin.flush()
        assert program.process.stdout.readline().strip() == str(program.path)
        assert program.order("sleep", program.pid).code == 0


def test_a_client_obeys_no_stranger_under_the_name(idle: Sleeper, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(idle.runtime))
    idle.path.unlink()
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(idle.path))
        other.listen()
        with pytest.raises(OSError, match=f"process {os.getpid()} listens there"):
            sleep_client._connected(idle.process.pid)


def _namespaces() -> Optional[list[str]]:
    """A command that runs another in a PID namespace of its own; None where that is not allowed."""
    command = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc", "--kill-child"]
    if shutil.which("unshare") is None:
        return None
    done = subprocess.run([*command, "true"], check=False, capture_output=True)
    return command if done.returncode == 0 else None


def test_programs_of_one_number_in_two_containers_have_sockets_of_their_own(fake: FakeProcess, tmp_path: Path) -> None:
    """They share a directory. The system that holds them has other numbers for them, and reaches each."""
    command = _namespaces()
    if command is None:
        pytest.skip("no PID namespaces are allowed here")
    containers = [Sleeper(fake, tmp_path / name, LOOP, within=command) for name in ("one", "two")]
    with containers[0] as one, containers[1] as two:
        assert one.path.name.split("-")[0] == two.path.name.split("-")[0] == "1"
        assert len(list((tmp_path / "stalloc").iterdir())) == 2
        told = one.order("sleep", one.pid)
        assert told.code == 0, told.err
        assert one.calls() == ["sleep"]
        assert two.goes_on(60)
        assert two.calls() == []
        assert one.order("sleep", two.pid).code == 0
        assert two.calls() == ["sleep"]
        assert one.order("wake", one.pid, two.pid).code == 0
        assert two.goes_on(60)
        assert one.end().code == two.end().code == 0
    assert not list((tmp_path / "stalloc").iterdir())
