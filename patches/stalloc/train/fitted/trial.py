"""A trial: the program's first iterations, traced at a smaller micro-batch where its framework takes one, and ended.

What it has seen is noted in a file next to the trace, as soon as it is known. The process is left without running what
comes after the loop: `finally` blocks and callbacks of trainers save models that nobody requested.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import dataclasses
import os
import signal
import site
import sys
import sysconfig
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Optional

from stalloc.core import fit_files, log
from stalloc.core.fit_files import Batch, Model, Notes
from stalloc.train import lifetime
from stalloc.train.fitted import batches, models
from stalloc.train.fitted.models import Models, first_rows, parameters
from stalloc.train.marking.paths import ModulePaths

_ACCUMULATED = 2  # micro-batches of a step: those after the first one find gradients
_MOST_FILES = 4096
_DIES_WITH_PARENT = 1  # PR_SET_PDEATHSIG
_NO_MEMORY = ("out of memory", "can't allocate memory")


class Trial:
    """Of this process. `paths`: the names that the trace gives to modules."""

    def __init__(self, order: fit_files.Trial, path: Path, torch: Any, paths: Optional[ModulePaths]) -> None:
        self._order = order
        self._path = path
        self._paths = paths
        self._notes = Notes()
        self._found: list[tuple[weakref.ref[Any], Model]] = []
        self._models: Optional[Models] = Models(torch, self._find, self._note_rows)
        self._no_memory: type[BaseException] = getattr(torch, "OutOfMemoryError", MemoryError)
        batches.watch(self._settle, saves=False)
        self._process = os.getpid()  # a forked one has nothing to say
        self._ends = False  # the program does so by itself
        _die_with_parent()
        lifetime.before_the_end(self._program_ends)
        atexit.register(self._end)

    def iteration_finished(self, _: int) -> None:
        self._notes.iterations += 1
        self._name_models()
        if self._models is not None and self._notes.iterations >= models.ITERATIONS:
            self._models.stop()
            self._models = None
        if self._notes.iterations >= self._order.iterations and not self._ends:
            self._leave()

    def _program_ends(self) -> None:
        self._ends = True

    def _find(self, model: Any) -> None:
        self._found.append((weakref.ref(model), Model(type(model).__name__, parameters(model))))
        self._notes.modules.append(models.modules(model))

    def _note_rows(self, args: tuple[Any, ...]) -> None:
        if self._notes.rows is None:
            self._notes.rows = first_rows(args)

    def _settle(self, own: Batch) -> Batch:
        order = self._order
        rows = order.rows or max(min(own.micro_batch, order.least), own.micro_batch // order.smaller)
        new = dataclasses.replace(own, micro_batch=rows, accumulation=min(own.accumulation, _ACCUMULATED))
        if rows < own.micro_batch:
            new = dataclasses.replace(new, accumulation=_ACCUMULATED)
        self._notes.own, self._notes.traced = own, new
        self._write()
        return new

    def _leave(self) -> None:
        """Files of the trace are whole; nothing else of the program runs."""
        try:
            sys.stdout.flush()
            atexit._run_exitfuncs()
        finally:
            os._exit(0)

    def _end(self) -> None:
        if os.getpid() != self._process or self._another_has_trained():
            return
        error = getattr(sys, "last_value", None)
        if isinstance(error, self._no_memory) or any(text in str(error) for text in _NO_MEMORY):
            self._notes.ended = fit_files.OUT_OF_MEMORY
        elif error is not None:
            self._notes.ended = fit_files.FAILED
        else:
            traced = self._notes.iterations >= self._order.iterations
            self._notes.ended = fit_files.TRACED if traced else fit_files.FINISHED
        self._name_models()
        self._notes.models = [model for _, model in self._found]
        self._notes.sources = sources()
        self._write()

    def _another_has_trained(self) -> bool:
        """A process that this one has started, for the same rank."""
        if self._notes.iterations > 0:
            return False
        with contextlib.suppress(OSError, ValueError):
            noted = fit_files.read_notes(self._path)
            return noted is not None and noted.iterations > 0
        return False

    def _name_models(self) -> None:
        """As long as they live: a program that ends by itself may have left them."""
        for i, (at, noted) in enumerate(self._found):
            model = at()
            if model is not None and self._paths is not None:
                self._found[i] = at, dataclasses.replace(noted, traced_as=self._paths[model])

    def _write(self) -> None:
        try:
            fit_files.write_notes(self._path, self._notes)
        except OSError as error:
            log.error(f"what the trial has seen could not be noted: {error}")


def _die_with_parent() -> None:
    """`stalloc run` waits for this process; a launcher may kill it alone."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_DIES_WITH_PARENT, signal.SIGKILL)


def sources() -> dict[str, str]:
    """Digests of the files of this program: its modules that are not installed, and files that its arguments name."""
    found = {}
    for path in sorted(set(_files()))[:_MOST_FILES]:
        digest = fit_files.digest(path)
        if digest is not None:
            found[str(path)] = digest
    return found


def _files() -> Iterator[Path]:
    installed, packages = _installed(), {"site-packages", "dist-packages"}
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        path = Path(os.path.realpath(file)) if isinstance(file, str) else Path()
        if path.suffix == ".py" and not str(path).startswith(installed) and packages.isdisjoint(path.parts):
            yield path
    for word in sys.argv[1:]:
        file = word.rpartition("=")[2]
        if file and os.path.isfile(file):
            yield Path(os.path.realpath(file))


def _installed() -> tuple[str, ...]:
    ours = Path(__file__).resolve().parents[2]
    folders = [*sysconfig.get_paths().values(), *site.getsitepackages(), site.getusersitepackages(), str(ours)]
    return tuple(os.path.join(os.path.realpath(folder), "") for folder in folders if folder)
