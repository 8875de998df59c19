"""Runs a script or module in this process the way `python SCRIPT` and `python -m MODULE` do.

`sys.argv`, `sys.path[0]` and `sys.modules["__main__"]` are what the program would see under plain python, and stay so
until the process ends: pickling and the spawn method of multiprocessing find the program as their main module.
"""

from __future__ import annotations

import builtins
import importlib.machinery
import io
import os
import pkgutil
import runpy
import sys
import types
from typing import Any, Callable


def prepare_script(path: str, arguments: list[str]) -> None:
    """Sets `sys.argv` and `sys.path` as python would before it runs the script."""
    sys.argv = [path, *arguments]
    _set_first_on_path(os.path.abspath(path) if _holds_main(path) else os.path.dirname(os.path.realpath(path)))


def _holds_main(path: str) -> bool:
    """Whether the path is a directory or an archive that python imports `__main__` from."""
    return pkgutil.get_importer(path) is not None


def prepare_module(name: str, arguments: list[str]) -> None:
    """Does the same for a module; python shows `-m` as the program until it has found the module."""
    sys.argv = ["-m", *arguments]
    _set_first_on_path(os.getcwd())


def _set_first_on_path(directory: str) -> None:
    # Under -P or -I python puts nothing in front, so there is no entry to replace.
    if not (sys.flags.isolated or getattr(sys.flags, "safe_path", False)):
        sys.path[0] = directory


def run_script(path: str) -> int:
    """Runs a file, or a directory or archive that holds `__main__.py`. Returns 0, or 1 after an exception.

    SystemExit and KeyboardInterrupt pass through.
    """
    if _holds_main(path):
        return _run_as_main("__main__", False)
    path = os.path.join(os.getcwd(), path)  # absolute and as it was written
    with io.open_code(path) as file:
        source = file.read()
    main = _new_main()
    main.__file__ = path
    main.__dict__["__cached__"] = None
    main.__loader__ = importlib.machinery.SourceFileLoader("__main__", path)
    return _guarded(lambda: exec(compile(source, path, "exec"), main.__dict__))


def run_module(name: str) -> int:
    """Runs a module as `python -m` does."""
    return _run_as_main(name, True)


def _run_as_main(name: str, alter_argv: bool) -> int:
    _new_main()
    run_as_main: Callable[[str, bool], Any] = runpy._run_module_as_main  # type: ignore[attr-defined]
    return _guarded(lambda: run_as_main(name, alter_argv))


def _new_main() -> types.ModuleType:
    main = types.ModuleType("__main__")
    main.__dict__["__builtins__"] = builtins
    sys.modules["__main__"] = main
    return main


def _guarded(program: Callable[[], Any]) -> int:
    """Shows an exception as python would, without the frames that led to the program."""
    try:
        program()
    except Exception as error:
        traceback = error.__traceback__
        while traceback is not None and _is_ours(traceback):
            traceback = traceback.tb_next
        sys.last_type, sys.last_value, sys.last_traceback = type(error), error, traceback
        sys.excepthook(type(error), error.with_traceback(traceback), traceback)
        return 1
    return 0


def _is_ours(traceback: types.TracebackType) -> bool:
    return traceback.tb_frame.f_code.co_filename in (__file__, runpy.__file__, "<frozen runpy>")
