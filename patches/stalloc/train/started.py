"""Ranks that a script starts itself (`torch.multiprocessing.spawn`): whether one trains is seen when it does.

A process is not active where the one that started it has the same rank, which most have: workers of data loaders and
compilers are such. But one that has allocated nothing may have started ranks to train in its place. They are recognized
by what they do: before CUDA is initialised, or a module gets its first parameter where there is none, the question is
put again, of the rank that they have by then.
"""

from __future__ import annotations

import functools
import importlib
import os
import sys
import threading
from typing import Any, Callable, Optional

from stalloc.core import config, log
from stalloc.train.imports import when_imported
from stalloc.train.process import Owner

RANK, RANKS = "STALLOC_STARTED_RANK", "STALLOC_STARTED_RANKS"


def before_use(device: str, call: Callable[[], object]) -> None:
    """Calls back once, before torch allocates anything on a GPU ("cuda"), or ("cpu") the second parameter of a module.

    What it raises ends the program as in activation.activate: a value that is not allowed, and under STALLOC_STRICT=1.
    """
    once = _Once(call)
    when_imported("torch", lambda torch: _watch_cuda(torch, once) if device == "cuda" else _watch_modules(once))


class _Once:
    """A call that any thread may request: the others wait until it is done, and it may request itself."""

    def __init__(self, call: Callable[[], object]) -> None:
        self._call = call
        self._guard = threading.RLock()
        self._called = False

    def __call__(self) -> None:
        with self._guard:
            if self._called:
                return
            self._called = True
            try:
                self._call()
            except config.ConfigError as error:
                log.error(str(error))
                sys.exit(2)
            except Exception as error:
                if os.environ.get("STALLOC_STRICT") == "1":
                    raise
                log.error(f"{error}; going on with plain torch")


def _watch_cuda(torch: Any, once: _Once) -> None:
    """Every way to CUDA comes by this function, whose callers hold torch's lock."""
    initialise = getattr(torch._C, "_cuda_init", None)
    if initialise is None:
        return  # built without CUDA

    @functools.wraps(initialise)
    def initialise_after() -> Any:
        torch._C._cuda_init = initialise
        once()
        return initialise()

    torch._C._cuda_init = initialise_after


def _watch_modules(once: _Once) -> None:
    modules = importlib.import_module("torch.nn.modules.module")
    # It stays, since torch goes through its hooks meanwhile; and costs nothing when it has been called.
    modules.register_module_parameter_registration_hook(lambda *_: once())


def take_rank() -> None:
    """Where no launcher has given one: that of the process group, else by the order in which they were started."""
    if config.rank_text(os.environ):
        return
    group: Any = sys.modules.get("torch.distributed")
    if group is not None and group.is_available() and group.is_initialized():
        os.environ[RANK], os.environ[RANKS] = str(group.get_rank()), str(group.get_world_size())
        return
    number = _number()
    if number is not None:
        os.environ[RANK] = str(number)


def _number() -> Any:
    """The index of this process among its parent's multiprocessing children, from 0 on; None: it is none."""
    process: Any = sys.modules.get("multiprocessing.process")
    identity = () if process is None else getattr(process.current_process(), "_identity", ())
    return identity[-1] - 1 if identity else None


# Who stays inactive --------------------------------------------------------------------------------------------------


def report_steps(owner: Owner) -> None:
    """Says once, of all that a process has started, that one trains and nothing is planned for it."""
    if _number() in (None, 0):
        why = f"process {owner.pid}, which started it, has allocated memory as rank {owner.rank or 0} itself"
        when_imported("torch", lambda torch: _watch_steps(torch, why))


def _watch_steps(torch: Any, why: str) -> None:
    once = _Once(lambda: report_untraced(why))
    uncompiled: Callable[[Any], Any] = getattr(torch, "_disable_dynamo", lambda hook: hook)
    optimizers = importlib.import_module("torch.optim.optimizer")
    optimizers.register_optimizer_step_post_hook(uncompiled(lambda *_: once()))


def report_forked_steps(parent: int, on_cuda: bool) -> Callable[[int], None]:
    """The same of a forked process: a function to be called with each of its iterations. `parent`: its number."""

    def report() -> None:
        torch: Any = sys.modules["torch"]
        if _number() in (None, 0) and (torch.cuda.is_initialized() or not on_cuda):
            report_untraced(f"process {parent}, which has the allocator, forked it")

    once = _Once(report)
    return lambda _: once()


def report_untraced(why: str) -> None:
    log.warning(
        f"this process steps an optimizer, and its memory is neither traced nor planned: {why}; start ranks with "
        "torchrun, or set RANK for each before it imports torch"
    )


# The process that starts them ----------------------------------------------------------------------------------------


def claims(claim: Callable[[], None], has_allocated: Optional[Callable[[], bool]]) -> Callable[[int], None]:
    """A function to be called with each iteration that is over: the first one claims. So does, where this process has
    allocated anything, each process that multiprocessing starts. `has_allocated`: None where that is not known."""
    claimed = False

    def claim_once(_: int = 0) -> None:
        nonlocal claimed
        if not claimed:
            claimed = True
            claim()

    def watch(process: Any) -> None:
        start = process.BaseProcess.start

        @functools.wraps(start)
        def start_after(self: Any, *arguments: Any, **keywords: Any) -> Any:
            if not claimed and has_allocated is not None and has_allocated():
                claim_once()
            return start(self, *arguments, **keywords)

        process.BaseProcess.start = start_after

    if has_allocated is not None:
        when_imported("multiprocessing.process", watch)
    return claim_once
