"""Layer marks with the paths of torch modules (STALLOC_TRACE_MODULES=1): "Model.blocks.0.up", forward and backward.

Hooks are torch's global ones, so that no model has to be known. A module that runs inside no other is a root, and its
submodules are named by their paths in it. In the backward pass a mark begins where the gradient of a module's output
arrives: a node of the graph calls back, so nothing is wrapped and no tensor is kept. It lasts until the next one that
is not inside it, and at most to the end of the backward pass.

At the end of a forward pass the mark also says how much of the module's output its own backward pass keeps: recomputing
the module does not free that as long as what comes after it needs the output (kept.py). And the trace records which
blocks the module was called with, since a checkpoint of it would keep them (arguments.py), and those that it has put
there itself, as into a cache.

Outputs are looked at in tuples, lists and dictionaries. Modules that torch.compile has taken into its graph are not
seen; the one that was compiled is, by torch.compile(module) and by module.compile(). Marks do not change what is
allocated; a run from the plan needs none of them.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterator
from typing import Any, Callable, Optional

from stalloc.train.marking.arguments import stores_caches, tensors_in
from stalloc.train.marking.compilations import ModuleHooks, leave_uncompiled
from stalloc.train.marking.kept import kept_bytes
from stalloc.train.marking.marks import CACHES_TRACED, INPUTS_TRACED
from stalloc.train.marking.paths import ModulePaths

_KEY = "stalloc"  # in a graph node's metadata

# Path and pass ("F", "B"), whether it begins, and where a forward pass ends, kept_bytes of the output, if known, and
# INPUTS_TRACED, CACHES_TRACED or 0.
LayerSink = Callable[[str, str, bool, Optional[int], int], object]
# Path, and the tensors that the module was called with; whether the trace has them.
InputSink = Callable[[str, list[Any]], bool]


def _untold(path: str, tensors: list[Any]) -> bool:
    """Used where nobody requests inputs."""
    return False


class ModuleMarks:
    """Reports to `sink` where modules begin and end. Threads have stacks of their own; the sink must be thread-safe."""

    def __init__(
        self,
        sink: LayerSink,
        paths: Optional[ModulePaths] = None,
        is_compiling: Callable[[], bool] = lambda: False,
        inputs: InputSink = _untold,
    ) -> None:
        self._sink = sink
        self._inputs = inputs
        self._is_compiling = is_compiling  # then hooks are taken into a graph, where they must do nothing
        self._paths = ModulePaths() if paths is None else paths
        self._stacks = threading.local()
        self._unsee_compiled: Callable[[], object] = lambda: None
        self._torch: Any = None
        self._removed = False
        self._hooks: Optional[ModuleHooks] = None

    def install(self, torch: Any) -> None:
        self._torch = torch
        leave_uncompiled(ModuleMarks._arrive)
        self._hooks = ModuleHooks(self._enter, self._leave_call, with_kwargs=True, always_call=True)
        self._see_compiled(torch.nn.Module)

    def remove(self) -> None:
        """No mark from now on."""
        self._removed = True
        self._unsee_compiled()
        if self._hooks is not None:
            self._hooks.remove()

    def _see_compiled(self, kind: Any) -> None:
        """Module.compile() takes a module's hooks into its graph: it is marked around what it compiles then."""
        compile_it = kind.compile

        @functools.wraps(compile_it)
        def compile_seen(module: Any, *args: Any, **kwargs: Any) -> None:
            compile_it(module, *args, **kwargs)
            module._compiled_call_impl = self._marked(module, module._compiled_call_impl)

        def restore() -> None:
            kind.compile = compile_it

        kind.compile = compile_seen
        self._unsee_compiled = restore

    def _marked(self, module: Any, call: Callable[..., Any]) -> Callable[..., Any]:
        def marked(*args: Any, **kwargs: Any) -> Any:
            if self._is_compiling() or self._removed:  # a part of a larger graph
                return call(*args, **kwargs)
            self._enter(module, args)
            output = None
            try:
                output = call(*args, **kwargs)
            finally:
                self._leave(module, (args, kwargs), output)
            return output

        return marked

    # -- Forward

    def _forward_stack(self) -> list[str]:
        if not hasattr(self._stacks, "forward"):
            self._stacks.forward = []
        stack: list[str] = self._stacks.forward
        return stack

    def _enter(self, module: Any, inputs: Any) -> None:
        if self._is_compiling() or self._removed:
            return
        stack = self._forward_stack()
        path = self._paths.name(module, stack[-1] if stack else None)
        if not stack:
            self._stacks.inputs = CACHES_TRACED if stores_caches(module) else INPUTS_TRACED
        stack.append(path)
        self._sink(path, "F", True, None, 0)

    # Where an exception has ended the call, torch leaves the keywords out.
    def _leave_call(self, module: Any, args: Any, *rest: Any) -> None:
        *keywords, output = rest
        self._leave(module, (args, keywords), output)

    def _leave(self, module: Any, inputs: Any, output: Any) -> None:
        if self._is_compiling() or self._removed:
            return
        stack = self._forward_stack()
        path = self._paths[module]
        if path is None or path not in stack:
            return
        tensors = list(_tensors(output))
        kept = kept_bytes(tensors)
        given = tensors_in(inputs)
        while stack[-1] != path:  # what an exception left open ends, too
            self._sink(stack.pop(), "F", False, None, 0)
        traced = self._inputs(path, given.tensors) and given.complete
        stack.pop()
        self._sink(path, "F", False, kept, self._stacks.inputs if traced else 0)
        for tensor in tensors:
            self._watch(getattr(tensor, "grad_fn", None), path)

    # -- Backward

    # A node is the end of its module, and of those around it whose result it is: the innermost leaves first.
    def _watch(self, node: Optional[Any], path: str) -> None:
        if node is None:
            return
        paths: Optional[list[str]] = node.metadata.get(_KEY)
        if paths is None:
            node.metadata[_KEY] = paths = []
            known = paths
            node.register_prehook(lambda gradients: self._arrive(known))
        if path not in paths:
            paths.append(path)

    def _arrive(self, paths: list[str]) -> None:
        if self._is_compiling():  # of a backward pass that is compiled, too
            return
        if not hasattr(self._stacks, "backward"):
            self._stacks.backward = []
        stack: list[str] = self._stacks.backward
        if not stack:
            self._torch.autograd.Variable._execution_engine.queue_callback(lambda: self._end(stack))
        outermost = min(paths, key=len)
        # One that is open already belongs to the pass before.
        while stack and (outermost in stack or not _holds(stack[-1], outermost)):
            self._sink(stack.pop(), "B", False, None, 0)
        for path in sorted(paths, key=len):
            stack.append(path)
            self._sink(path, "B", True, None, 0)

    def _end(self, stack: list[str]) -> None:
        while stack:
            self._sink(stack.pop(), "B", False, None, 0)


def _holds(outer: str, inner: str) -> bool:
    return inner == outer or inner.startswith(outer + ".")


def _tensors(value: Any) -> Iterator[Any]:
    if hasattr(value, "grad_fn"):
        yield value
    elif isinstance(value, (tuple, list)):
        for part in value:
            yield from _tensors(part)
    elif isinstance(value, dict):
        for part in value.values():
            yield from _tensors(part)
