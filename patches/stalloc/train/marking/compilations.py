"""When torch.compile compiles: what hooks of ours must know, since it guards on the hooks that are there.

A hook that is removed after Dynamo has seen it fails a guard of everything that was compiled, which is then compiled
again. So a hook goes before a compilation begins, or stays (and does nothing) for good.

Dynamo calls back around its outermost compilation. Callbacks that are registered with it are lost in
`torch._dynamo.reset()`; so the two functions that run them are wrapped instead.
"""

from __future__ import annotations

import importlib
import sys
import warnings
from typing import Any, Callable

from stalloc.train.imports import forget, when_imported

_MODULE = "torch._dynamo.callback"


def _nothing() -> None:
    """Counts only."""


def traced() -> bool:
    """True, as a constant, in what torch.compile traces; a hook that does nothing then leaves the graph whole."""
    compiler: Any = sys.modules.get("torch.compiler")
    return compiler is not None and bool(compiler.is_dynamo_compiling())


def leave_uncompiled(*functions: Any) -> None:
    """What python calls while it runs code that torch.compile leaves alone is compiled; these, and what they call, are
    not. In a graph that calls them they are traced all the same."""
    frames: Any = getattr(getattr(sys.modules.get("torch._C"), "_dynamo", None), "eval_frame", None)
    skip = getattr(frames, "_FrameAction", None)
    if skip is None:  # a torch that has another way: such a call may lose its mark
        return
    for function in functions:
        strategy = frames._FrameExecStrategy(skip.SKIP, skip.SKIP)
        frames.set_code_exec_strategy(function.__code__, strategy)


class Compilations:
    """Calls `begins` and `ends` around each outermost compilation, on the thread that compiles, until `stop()`."""

    def __init__(self, begins: Callable[[], object] = _nothing, ends: Callable[[], object] = _nothing) -> None:
        self._begins = begins
        self._ends = ends
        self._watching = True
        self.seen = False  # there was one
        when_imported(_MODULE, self._install)

    def stop(self) -> None:
        self._watching = False
        forget(_MODULE, self._install)

    def _install(self, module: Any) -> None:
        handler = module.callback_handler
        handler.run_start_callbacks = self._before(handler.run_start_callbacks, self._begin)
        handler.run_end_callbacks = self._before(handler.run_end_callbacks, self._end)

    def _before(self, original: Callable[..., Any], call: Callable[[], None]) -> Callable[..., Any]:
        def run(*args: Any, **kwargs: Any) -> Any:
            if self._watching:
                call()
            return original(*args, **kwargs)

        return run

    def _begin(self) -> None:
        self.seen = True
        self._begins()

    def _end(self) -> None:
        self._ends()


def ignore_warning_of_hooks() -> None:
    """The extra time of which torch warns is that of our hooks, which do nothing in what is compiled."""
    warnings.filterwarnings("ignore", r"Using `torch\.compile\(module\)` when there are global hooks", UserWarning)


class ModuleHooks:
    """torch's global hooks before and after each call of a module: a module's own would be copied, pickled and refused
    with it. Those that torch.compile has seen stay when they are removed, and must do nothing then."""

    def __init__(self, before: Callable[..., None], after: Callable[..., None], **how: bool) -> None:
        """`how`: of register_module_forward_hook."""
        self._compilations = Compilations()
        leave_uncompiled(before.__func__, after.__func__)  # type: ignore[attr-defined]  # both are methods
        ignore_warning_of_hooks()
        modules = importlib.import_module("torch.nn.modules.module")
        self._handles = [
            modules.register_module_forward_pre_hook(before),
            modules.register_module_forward_hook(after, **how),
        ]

    def remove(self) -> None:
        self._compilations.stop()
        if not self._compilations.seen:
            for handle in self._handles:
                handle.remove()
