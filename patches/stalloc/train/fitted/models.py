"""Outermost modules that train, each found once: before it is compiled, sharded or wrapped, else at its first forward
pass.

What gets a module before its first pass is patched: torch.compile, Module.compile, fully_shard, and the classes that
wrap a whole model. A block that is sharded stands for the model that holds it. torch.compile must not see that calls of
modules are watched (marking/compilations.py): they are left before anything is compiled.
"""

from __future__ import annotations

import functools
import gc
import hashlib
import threading
import weakref
from collections.abc import Iterable, Iterator
from typing import Any, Callable, Optional

from stalloc.train.imports import forget, when_imported
from stalloc.train.marking.compilations import Compilations

ITERATIONS = 2  # in which all models have trained: where optimizers take turns, a step of the first ends one
_WRAPPERS = {  # module: its classes whose constructor takes a model
    "torch.nn.parallel.distributed": "DistributedDataParallel",
    "torch.distributed.fsdp.fully_sharded_data_parallel": "FullyShardedDataParallel",
}
_SHARDING = "torch.distributed.fsdp._fully_shard._fully_shard"
_SHARDING_FACES = (_SHARDING, "torch.distributed.fsdp._fully_shard", "torch.distributed.fsdp")
_SHARD = "fully_shard"

Found = Callable[[Any], object]
Called = Callable[[tuple[Any, ...]], object]


class Models:
    """Calls `found` with each model, and `called` with what outermost modules are called with, until `stop()`."""

    def __init__(self, torch: Any, found: Found, called: Called = lambda args: None) -> None:
        self._torch = torch
        self._found = found
        self._called = called
        self._seen: weakref.WeakSet[Any] = weakref.WeakSet()  # models, and what is in them
        self._depth = threading.local()  # count: of forward passes that run on this thread
        self._stopped = False
        self._waiting: list[tuple[str, Callable[[Any], None]]] = []
        self._original_call: Optional[Callable[..., Any]] = None
        self._watch_calls()
        self._compilations = Compilations(self._leave_calls, self._compiled)
        torch.compile = self._before(torch.compile)
        torch.nn.Module.compile = self._before(torch.nn.Module.compile)
        for name, kind in _WRAPPERS.items():
            self._when(name, functools.partial(self._watch_class, kind))
        self._when(_SHARDING, self._watch_sharding)

    def stop(self) -> None:
        """Nothing is found any more. What was patched stays, and does nothing: others may have copied it."""
        self._stopped = True
        self._leave_calls()
        self._compilations.stop()
        for name, callback in self._waiting:
            forget(name, callback)

    # -- Before the first forward pass

    def _when(self, name: str, callback: Callable[[Any], None]) -> None:
        self._waiting.append((name, callback))
        when_imported(name, callback)

    def _watch_class(self, name: str, module: Any) -> None:
        kind = getattr(module, name)
        kind.__init__ = self._before(kind.__init__, place=1)

    def _watch_sharding(self, module: Any) -> None:
        original = getattr(module, _SHARD)
        watched = self._before(original)

        def replace(face: Any) -> None:
            if getattr(face, _SHARD, None) is original:
                setattr(face, _SHARD, watched)

        for face in _SHARDING_FACES:
            self._when(face, replace)

    def _before(self, original: Callable[..., Any], place: int = 0) -> Callable[..., Any]:
        """The call, after models of what it is given at `place` have been found."""

        @functools.wraps(original)
        def call(*args: Any, **kwargs: Any) -> Any:
            if not self._stopped:
                given = args[place] if place < len(args) else kwargs.get("module", kwargs.get("model"))
                for model in list(self._models_of(given)):
                    self._see(model)
            return original(*args, **kwargs)

        return call

    def _models_of(self, given: Any) -> Iterator[Any]:
        """That hold a module, or one of several; of a function, all that there are."""
        kind = self._torch.nn.Module
        parts = given if isinstance(given, (list, tuple)) else [given]
        parts = [part for part in parts if isinstance(part, kind)]
        if not parts and not callable(given):
            return
        if any(part in self._seen for part in parts):
            return
        for root in roots(self._torch):
            if self._is_known(root) or not root.training or not any(True for _ in root.parameters()):
                continue
            if not parts or any(inner is part for inner in root.modules() for part in parts):
                yield root

    # -- At the first forward pass

    def _watch_calls(self) -> None:
        """A hook would come too late: by then the call has its forward."""
        kind = self._torch.nn.Module
        original = kind.__call__

        @functools.wraps(original)
        def call(module: Any, *args: Any, **kwargs: Any) -> Any:
            self._depth.count = depth = getattr(self._depth, "count", 0) + 1
            try:
                if depth == 1 and module.training and self._torch.is_grad_enabled():
                    self._enter(module, (*args, *kwargs.values()))
                return original(module, *args, **kwargs)
            finally:
                self._depth.count -= 1

        kind.__call__ = call
        self._original_call = original

    def _leave_calls(self) -> None:
        if self._original_call is not None:
            self._torch.nn.Module.__call__ = self._original_call
            self._original_call = None

    def _compiled(self) -> None:
        """What was compiled before any model was there has none in it."""
        if not self._stopped and self._original_call is None and not self._seen:
            self._watch_calls()

    def _enter(self, module: Any, args: tuple[Any, ...]) -> None:
        if not self._stopped and not self._is_known(module):
            self._see(module)
        self._called(args)

    def _is_known(self, module: Any) -> bool:
        """Itself, or what it wraps."""
        return module in self._seen or any(child in self._seen for child in module.children())

    def _see(self, model: Any) -> None:
        self._seen.update(model.modules())
        self._found(model)


def roots(torch: Any) -> list[Any]:
    """Modules of this process that no other holds, in the order in which the garbage collector has them."""
    kind = torch.nn.Module
    modules = [thing for thing in gc.get_objects() if issubclass(type(thing), kind) and "_modules" in thing.__dict__]
    held = {id(child) for module in modules for child in _children(module)}
    return [module for module in modules if id(module) not in held]


def _children(module: Any) -> Iterable[Any]:
    return (inner for inner in module.__dict__["_modules"].values() if inner is not None)


def parameters(model: Any) -> int:
    """Numbers in its weights, each weight once. A lazy one has none yet."""
    return sum(_numbers(weight) for weight in model.parameters())


def modules(model: Any) -> str:
    """A digest of the paths of all modules in it."""
    return hashlib.sha256("\n".join(name for name, _ in model.named_modules()).encode()).hexdigest()[:12]


def _numbers(weight: Any) -> int:
    try:
        return int(weight.numel())
    except (RuntimeError, ValueError):
        return 0


def first_rows(args: Iterable[Any]) -> Optional[int]:
    """Of the first tensor of the arguments."""
    return next((int(each.shape[0]) for each in args if getattr(each, "ndim", 0) > 0), None)
