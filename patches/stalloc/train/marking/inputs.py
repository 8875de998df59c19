"""Names for what a model is called with: the tensors among the arguments of a call that no other module's call holds.

    LlamaForCausalLM.input_ids       an argument, by its name
    Net.batch:labels                 a tensor in an argument that is a dict, a list or a tuple

Not named: what has a gradient to come (activations of another stage, parameters), and what such a call has given out
before (a discriminator's images, a teacher's logits). What a model is called with in a backward pass is recomputation.

Hooks do nothing in what torch.compile traces. A compiled module is seen, what its graph calls is not.
"""

from __future__ import annotations

import inspect
import threading
import weakref
from collections.abc import Iterator, Mapping
from typing import Any, Callable, Optional

from stalloc.train.marking.compilations import ModuleHooks
from stalloc.train.marking.paths import ModulePaths

_DEEPEST = 4  # of an argument's containers
_DISCOVERIES = 3

# A tensor and its name.
Report = Callable[[Any, str], object]


class ModelInputs:
    """Reports inputs while `wanted` says so. Calls may come from any thread that runs a model."""

    def __init__(self, torch: Any, paths: ModulePaths, wanted: Callable[[], bool], report: Report) -> None:
        self._torch = torch
        self._paths = paths
        self._wanted = wanted
        self._report = report
        self._calls = threading.local()  # depth: of the thread's open calls
        self._given_out: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()  # by storage
        self._discoveries = 0
        self._removed = False
        self._hooks: Optional[ModuleHooks] = None

    def install(self) -> None:
        self._hooks = ModuleHooks(self._enter, self._leave, with_kwargs=True)

    def remove(self) -> None:
        """No call is seen from now on."""
        self._removed = True
        if self._hooks is not None:
            self._hooks.remove()

    def next_iteration(self) -> None:
        """Calls that an exception has ended are over, and what was given out counts no more."""
        self._calls.depth = 0
        self._given_out.clear()

    def batch(self, values: Any) -> None:
        """What a framework hands to a training step."""
        if self._wanted():
            for name, tensor in _tensors(values, "batch"):
                self._see(tensor, name)

    def _enter(self, module: Any, arguments: Any) -> None:
        if not self._torch.compiler.is_compiling() and not self._removed:
            self._calls.depth = getattr(self._calls, "depth", 0) + 1

    def _leave(self, module: Any, arguments: Any, keywords: Any, output: Any) -> None:
        if self._torch.compiler.is_compiling() or self._removed:
            return
        self._calls.depth = max(0, getattr(self._calls, "depth", 0) - 1)
        if self._calls.depth > 0 or not self._wanted() or self._torch._C._current_graph_task_id() != -1:
            return
        path = self._path_of(module)
        for argument, value in [*zip(_parameters(module, len(arguments)), arguments), *keywords.items()]:
            for name, tensor in _tensors(value, f"{path}.{argument}"):
                self._see(tensor, name)
        for _, tensor in _tensors(output, ""):
            storage = _storage(tensor)
            if storage is not None:
                self._given_out[storage] = tensor

    def _path_of(self, module: Any) -> str:
        if self._paths[module] is None and self._discoveries < _DISCOVERIES:
            self._discoveries += 1
            self._paths.discover(self._torch)
        return self._paths.name(module)

    def _see(self, tensor: Any, name: str) -> None:
        if tensor.requires_grad or isinstance(tensor, self._torch.nn.Parameter):
            return
        storage = _storage(tensor)
        if storage is not None and storage not in self._given_out:
            self._report(tensor, name)


def _storage(tensor: Any) -> Any:
    try:
        return tensor.untyped_storage()._cdata
    except (RuntimeError, NotImplementedError):  # none: sparse, meta, functional
        return None


def _parameters(module: Any, count: int) -> Iterator[str]:
    """Names of so many arguments of a module's forward function; a number where there is no name."""
    try:
        known = list(inspect.signature(module.forward).parameters.values())
    except (TypeError, ValueError):
        known = []
    for number in range(count):
        named = number < len(known) and known[number].kind in (
            inspect.Parameter.POSITIONAL_ONLY,
            inspect.Parameter.POSITIONAL_OR_KEYWORD,
        )
        yield known[number].name if named else str(number)


def _tensors(value: Any, name: str, depth: int = 0) -> Iterator[tuple[str, Any]]:
    if hasattr(value, "untyped_storage"):
        yield name, value
    elif depth < _DEEPEST and isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _tensors(inner, f"{name}:{key}", depth + 1)
    elif depth < _DEEPEST and isinstance(value, (list, tuple)):
        for number, inner in enumerate(value):
            yield from _tensors(inner, f"{name}:{number}", depth + 1)
