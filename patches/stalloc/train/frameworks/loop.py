"""stalloc.frameworks.loop: marks by hooks of the outermost module and of its output's gradients."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any, Callable

from stalloc.train import api
from stalloc.train.marking.compilations import leave_uncompiled, traced

_HOOKED = "_stalloc_marked"


def mark_model(model: Any) -> Any:
    """Hooks the module, and returns it. A second time nothing."""
    if not getattr(model, _HOOKED, False):
        setattr(model, _HOOKED, True)
        _Hooks().install(model)
    return model


class _Hooks:
    """One model's. Calls may nest (a model that calls itself): the outermost is marked."""

    def __init__(self) -> None:
        self._marks: list[Any] = []

    def install(self, model: Any) -> None:
        leave_uncompiled(_Hooks._begins, _Hooks._ends)
        model.register_forward_pre_hook(self._begins, prepend=True)
        model.register_forward_hook(self._ends, always_call=True)
        if model._compiled_call_impl is not None:  # its hooks are in the graph, where they do nothing
            model._compiled_call_impl = self._around(model, model._compiled_call_impl)

    def _around(self, model: Any, call: Callable[..., Any]) -> Callable[..., Any]:
        def compiled(*args: Any, **kwargs: Any) -> Any:
            self._begins(model, args)
            output = None
            try:
                output = call(*args, **kwargs)
            finally:
                self._ends(model, args, output)
            return output

        return compiled

    def _begins(self, module: Any, _: Any) -> None:
        if traced():
            return
        mark = None
        if not self._marks:
            trains = module.training and sys.modules["torch"].is_grad_enabled()
            mark = api.microbatch("F") if trains else api.fence("eval")
            mark.__enter__()
        self._marks.append(mark)

    def _ends(self, module: Any, _: Any, output: Any) -> None:
        if traced():
            return
        mark = self._marks.pop() if self._marks else None
        if mark is None:
            return
        mark.__exit__(None, None, None)
        if module.training:
            _mark_backward(output)


def _mark_backward(output: Any) -> None:
    """B begins with the first of the output's gradients."""
    begun = False

    def begins(_: Any) -> None:
        nonlocal begun
        if not begun:
            begun = True
            api.microbatch("B")

    leave_uncompiled(begins)
    for tensor in _tensors(output):
        if tensor.requires_grad:
            tensor.register_hook(begins)


def _tensors(output: Any) -> Iterator[Any]:
    """The tensors in it, as deep as models nest them: tuples, lists, dicts (model outputs are)."""
    if hasattr(output, "register_hook"):
        yield output
    elif isinstance(output, dict):
        for value in output.values():
            yield from _tensors(value)
    elif isinstance(output, (list, tuple)):
        for value in output:
            yield from _tensors(value)
