"""Decides whether and how this process runs under stalloc, and makes it so. Idempotent.

Mode Torch never imports torch: its hooks are placed when the program imports it. Trace and Alloc must have replaced the
allocator before CUDA is initialised, so they import torch at once.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any, Union

from stalloc.core import log, variables
from stalloc.core.config import AUTO, TRACE, Config, detail_of, rank_text, read_config
from stalloc.train import graph_errors, lifetime, modes, placing, process, started
from stalloc.train import session as _session
from stalloc.train.frameworks import adapters
from stalloc.train.imports import when_imported
from stalloc.train.marking.graphs import GraphMarks
from stalloc.train.marking.hooks import OptimizerHooks
from stalloc.train.marking.marks import Marker
from stalloc.train.marking.modules import ModuleMarks
from stalloc.train.oom import reports, torch_mode
from stalloc.train.session import Session
from stalloc.train.sleep import boundary, server

_MODE, _REPORTED = "STALLOC_MODE", "STALLOC_TOLD"

_activating = False
_watches_memory_errors = False  # without a mode
_checked_again = False  # whether this process trains


def activate(to_the_end: bool = True, trains: bool = False) -> None:
    """Does what STALLOC_MODE requests of this process; nothing if it is unset, or a second time.

    Args:
        to_the_end: a trace of fake tensors ends the program where it ends; else the caller ends FakeRun.
        trains: it is about to, so that it takes a place that the process which started it does not need.

    Raises:
        ValueError: a variable's value is not allowed.
        RuntimeError: the allocator could not be put in place.
    """
    global _activating
    config = _read_environment()
    if config.mode is None:
        _watch_memory_errors()
    if config.mode is None or _activating or placing.unfit or _session.current is not None:
        return
    if _is_anothers(config, trains):
        return
    if config.mode == TRACE and not config.traced:
        log.info(f"is not traced: STALLOC_TRACE_RANKS={os.environ['STALLOC_TRACE_RANKS']}")
        return
    process.claim(config.rank, idle=True)
    _activating = True  # importing torch below comes back here through the autoload entry point
    try:
        parts = modes.build(config, to_the_end)
        if parts is None:
            return
        _begin(config, parts)
        if parts.fake is not None:
            parts.fake.begin(to_the_end)
        if parts.library is not None:
            server.serve_if_wanted(config.sleep_socket)
        adapters.watch()
    finally:
        _activating = False


def _begin(config: Config, parts: modes.Parts) -> None:
    """The session, and what marks by itself."""
    observers = parts.observers if parts.library is None else [*parts.observers, boundary.reached]
    if config.fit:
        watching = importlib.import_module("stalloc.train.fitted.watching")
        paths = None if parts.tracing is None else parts.tracing.paths
        observers = [*observers, watching.begin(config.rank, sys.modules["torch"], paths)]

    def finished(iteration: int) -> None:
        for observer in observers:
            observer(iteration)

    marker = Marker(parts.mark, finished)
    session = Session(str(config.mode), parts.library, marker, parts.tracing, fake=parts.fake, auto=parts.auto)
    if parts.library is None:
        lifetime.start(session)
        when_imported("torch", OptimizerHooks(marker).install)
        torch_mode.watch(config.rank)
        return
    torch = sys.modules["torch"]
    reports.watch(parts.library, torch, session.mode)
    lifetime.start(session, placing.device_of(config.device, torch))
    OptimizerHooks(marker, None if parts.tracing is None else parts.tracing.names).install(torch)
    _watch_modules(config, torch, session)


def _is_anothers(config: Config, trains: bool) -> bool:
    """The process that started this one has its rank. Whether that one needs it is checked again when this one
    trains."""
    global _checked_again
    owner = process.other_owner(os.environ, config.rank, os.getpid())
    if owner is None or (trains and owner.idle):
        return False
    idle = owner.idle

    def check_again() -> None:
        if idle:
            started.take_rank()
        activate(trains=True)

    if trains:
        started.report_steps(owner)
    elif not (_checked_again or config.trace_fake):
        _checked_again = True
        when_imported("torch", lambda torch: started.before_use(placing.device_of(config.device, torch), check_again))
    return True


def _read_environment() -> Config:
    _report_misspelt()
    os.environ.update(detail_of(os.environ))  # the library reads them there
    return read_config()


def _report_misspelt() -> None:
    """Variables that nothing reads, once for a run: its other ranks and what it starts have the same."""
    found = variables.misspelt(os.environ)
    reported = os.environ.get(_REPORTED, "").split(",")
    meant = bool(os.environ.get(_MODE))  # else only what looks like one of ours
    new = {name: nearest for name, nearest in found.items() if name not in reported and (meant or nearest)}
    if not new or rank_text(os.environ) not in ("", "0"):
        return
    os.environ[_REPORTED] = ",".join(found)
    for name, nearest in new.items():
        guess = f"did you mean {nearest}?" if nearest else "docs/variables.md has those that are"
        log.warning(f"{name} is not read by anything: {guess}")


def _watch_memory_errors() -> None:
    """STALLOC_OOM_REPORT alone: nothing else is requested of this process."""
    global _watches_memory_errors
    rank = rank_text(os.environ)
    if not _watches_memory_errors and process.other_owner(os.environ, rank, os.getpid()) is None:
        _watches_memory_errors = True
        torch_mode.watch(rank, "none")


def _watch_modules(config: Config, torch: Any, session: Session) -> None:
    marker, tracing = session.marker, session.tracing
    if session.library is not None:
        graph_errors.install(torch, session.library)
    if session.auto is not None:
        session.auto.watch_set_up(torch, marker)
    if tracing is not None and session.library is not None and not session.library.follows_graphs():
        GraphMarks(lambda name, begins: marker.module(name, "F", begins)).install(torch)
    if config.trace_modules and tracing is not None:
        inputs = () if tracing.names is None else (tracing.names.layer_inputs,)
        marks = ModuleMarks(marker.module, tracing.paths, torch.compiler.is_compiling, *inputs)
        marks.install(torch)
        tracing.when_ended(marks.remove)


def activate_auto(directory: Union[str, os.PathLike[str], None]) -> None:
    """Starts mode Auto for a program that requests it itself. RuntimeError: the allocator could not be put in place."""
    if os.environ.get(_MODE):
        return
    os.environ[_MODE] = AUTO
    if directory is not None:
        os.environ["STALLOC_MODEL_INFO_PATH"] = os.fspath(directory)
    try:
        activate()
    except (RuntimeError, ValueError):
        del os.environ[_MODE]  # processes that this one starts would request it again
        raise
