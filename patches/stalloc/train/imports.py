"""Callbacks after the first import of a module, and before the first import of a package.

A finder at the head of `sys.meta_path` queries the others for the module and runs the callbacks once its code has run:
what is copied by `from … import …` is then what the callback left there. Looking for a module without importing it
(`importlib.util.find_spec`) runs none.
"""

from __future__ import annotations

import importlib.machinery
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any, Callable, Optional

Callback = Callable[[ModuleType], None]


def being_imported(name: str) -> bool:
    """True while the module's own code runs for the first time."""
    spec = getattr(sys.modules.get(name), "__spec__", None)
    return bool(getattr(spec, "_initializing", False))


def when_imported(name: str, callback: Callback) -> None:
    """Calls back with the module: now if it is there (or its import is at its end), else once it has been imported."""
    module = sys.modules.get(name)
    if module is not None:
        callback(module)
    else:
        _watch.callbacks.setdefault(name, []).append(callback)
        _watch.install()


def when_complete(name: str, callback: Callback) -> None:
    """The same for a module whose own code may be running now: calls back when it is over.

    That is noticed at the next import of anything, early enough for those who look for copies.
    """
    if being_imported(name):
        _watch.callbacks.setdefault(name, []).append(callback)
        _watch.unfinished.add(name)
        _watch.install()
    else:
        when_imported(name, callback)


def forget(name: str, callback: Callback) -> None:
    """The callback is not called any more."""
    waiting = _watch.callbacks.get(name, [])
    if callback in waiting:
        waiting.remove(callback)


def before_import(package: str, callback: Callable[[], None]) -> None:
    """Calls back now if the package is there, else before anything of it is imported."""
    if package in sys.modules:
        callback()
    else:
        _watch.packages.setdefault(package, []).append(callback)
        _watch.install()


class _Watch:
    """The finder. One per process."""

    def __init__(self) -> None:
        self.callbacks: dict[str, list[Callback]] = {}
        self.packages: dict[str, list[Callable[[], None]]] = {}
        self.unfinished: set[str] = set()  # keys of `callbacks`, imported without us

    def install(self) -> None:
        if self not in sys.meta_path:
            sys.meta_path.insert(0, self)

    def find_spec(
        self, fullname: str, path: Optional[Sequence[str]], target: Optional[ModuleType] = None
    ) -> Optional[importlib.machinery.ModuleSpec]:
        self._finish()
        for before in self.packages.pop(fullname, ()):
            before()
        if fullname not in self.callbacks:
            return None
        spec = self._found_by_others(fullname, path, target)
        if spec is not None and spec.loader is not None and not isinstance(spec.loader, type):
            self._call_back_after(spec.loader, fullname)
        return spec

    def _finish(self) -> None:
        for name in [name for name in self.unfinished if not being_imported(name)]:
            self.unfinished.discard(name)
            module = sys.modules.get(name)
            if module is not None:  # else its import has failed, and the next one comes by here
                self._call_back(name, module)

    def _call_back(self, name: str, module: ModuleType) -> None:
        for callback in self.callbacks.pop(name, ()):
            callback(module)

    def _found_by_others(
        self, fullname: str, path: Optional[Sequence[str]], target: Optional[ModuleType]
    ) -> Optional[importlib.machinery.ModuleSpec]:
        for finder in list(sys.meta_path):
            find = getattr(finder, "find_spec", None)
            spec: Optional[importlib.machinery.ModuleSpec] = None
            if find is not None and finder is not self:
                spec = find(fullname, path, target)
            if spec is not None:
                return spec
        return None

    def _call_back_after(self, loader: Any, fullname: str) -> None:
        execute = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            self._call_back(fullname, module)

        loader.exec_module = exec_module


_watch = _Watch()
