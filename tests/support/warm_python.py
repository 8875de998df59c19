"""Programs in processes whose torch has been imported already, since that takes longer than most tests' programs run.

A server imports torch once and forks for each program: a process of its own with its own environment, arguments, files
and end, as under `python`. The one difference is that torch's modules are there, as in a program that imports torch
before stalloc; tests of the order of imports start python itself. Under STALLOC_COLD_TESTS=1 all do.

Any number of threads may run programs: each program has the server that is idle, or a new one.
"""

from __future__ import annotations

import atexit
import builtins
import importlib
import json
import os
import runpy
import select
import signal
import subprocess
import sys
import tempfile
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Optional

_TIMEOUT_S = 600


def wanted() -> bool:
    """False where every program shall have a fresh interpreter."""
    return os.environ.get("STALLOC_COLD_TESTS") != "1"


def run(arguments: list[str], environment: Mapping[str, str], cwd: Optional[Path]) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of `python ARGUMENTS`. The environment is the whole one.

    Raises:
        RuntimeError: the server has ended; what it said is on standard error.
        subprocess.TimeoutExpired: the program ran too long; it has been ended.
    """
    try:
        server = _idle.pop()
    except IndexError:
        server = _Server()
    answer = server.run(arguments, environment, cwd)
    _idle.append(server)
    return answer


class _Server:
    """The client's side of a server, started for its first program."""

    def __init__(self) -> None:
        self._process: Optional[subprocess.Popen[str]] = None

    def run(self, arguments: list[str], environment: Mapping[str, str], cwd: Optional[Path]) -> tuple[int, str, str]:
        with tempfile.TemporaryDirectory() as scratch:
            out, err = Path(scratch) / "out", Path(scratch) / "err"
            request = {
                "arguments": arguments,
                "environment": dict(environment),
                "cwd": str(cwd or Path.cwd()),
                "out": str(out),
                "err": str(err),
            }
            code = self._ask(json.dumps(request))
            return code, out.read_text(), err.read_text()

    def _ask(self, request: str) -> int:
        process = self._process or self._start()
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(request + "\n")
        process.stdin.flush()
        if not select.select([process.stdout], [], [], _TIMEOUT_S)[0]:
            self.stop()
            raise subprocess.TimeoutExpired(request, _TIMEOUT_S)
        answer = process.stdout.readline()
        if not answer:
            raise RuntimeError(f"{__file__}: expected the exit code of a program, found that the server has ended")
        return int(answer)

    def _start(self) -> subprocess.Popen[str]:
        # Without what would reach the program's own import path or torch: each program has that from its request.
        environment = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "STALLOC_"))}
        environment.update(TORCH_DEVICE_BACKEND_AUTOLOAD="0", OMP_NUM_THREADS="1")
        self._process = subprocess.Popen(
            [sys.executable, __file__],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        atexit.register(self.stop)
        return self._process

    def stop(self) -> None:
        """Ends the server and what it runs."""
        process, self._process = self._process, None
        if process is not None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()


_idle: list[_Server] = []


# The server's side --------------------------------------------------------------------------------------------------


def _next_program(import_path: list[str]) -> list[str]:
    """Serves until it returns in the process of a program, with the program's arguments."""
    replies = os.fdopen(os.dup(1), "w")
    for line in sys.stdin:
        request = json.loads(line)
        child = os.fork()
        if child == 0:
            replies.close()
            _become(request, import_path)
            arguments: list[str] = request["arguments"]
            return arguments
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), file=replies, flush=True)
    os._exit(0)  # nobody asks any more


def _become(request: dict[str, Any], import_path: list[str]) -> None:
    files = (
        (0, os.devnull, os.O_RDONLY),
        (1, request["out"], os.O_WRONLY | os.O_CREAT),
        (2, request["err"], os.O_WRONLY | os.O_CREAT),
    )
    for descriptor, path, flags in files:
        opened = os.open(path, flags)
        os.dup2(opened, descriptor)
        os.close(opened)
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["cwd"])
    sys.orig_argv = [sys.executable, *request["arguments"]]  # whoever asks which program this is
    more = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    sys.path[:] = [_first_on_path(request["arguments"]), *more, *import_path]
    importlib.invalidate_caches()


def _first_on_path(arguments: list[str]) -> str:
    if arguments[0] == "-c":
        return ""
    return os.getcwd() if arguments[0] == "-m" else os.path.dirname(os.path.realpath(arguments[0]))


def _run(arguments: list[str]) -> None:
    """As `python ARGUMENTS`: -m MODULE, -c CODE or a script, and what follows."""
    if arguments[0] == "-m":
        sys.argv = ["-m", *arguments[2:]]
        runpy._run_module_as_main(arguments[1])  # type: ignore[attr-defined]
        return
    main = types.ModuleType("__main__")
    main.__dict__["__builtins__"] = builtins
    sys.modules["__main__"] = main
    if arguments[0] == "-c":
        sys.argv = ["-c", *arguments[2:]]
        exec(compile(arguments[1], "<string>", "exec"), main.__dict__)
        return
    sys.argv = list(arguments)
    main.__file__ = arguments[0]
    exec(compile(Path(arguments[0]).read_bytes(), arguments[0], "exec"), main.__dict__)


if __name__ == "__main__":
    import torch._dynamo  # noqa: F401  (what an optimizer's first step imports)

    _run(_next_program(sys.path[1:]))
