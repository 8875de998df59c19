"""Wrappers that most frameworks need: a mark around a call."""

from __future__ import annotations

from typing import Any, Callable, Union

from stalloc.train import api
from stalloc.train import session as _session
from stalloc.train.patching import Function, argument

Wrapper = Callable[[Function], Function]


def around(mark: Callable[[], Any]) -> Wrapper:
    """The call inside a mark."""

    def wrap(original: Function) -> Function:
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            with mark():
                return original(*args, **kwargs)

        return wrapper

    return wrap


def inputs(batch: Any) -> None:
    """Names the tensors of a batch, where a trace names any: those that only the loss takes are no model's argument."""
    session = _session.current
    names = None if session is None or session.tracing is None else session.tracing.names
    if names is not None:
        names.inputs.batch(batch)


def fenced(kind: str) -> Wrapper:
    """The call is no part of the steady loop."""
    return around(lambda: api.fence(kind))


def optimizer() -> Wrapper:
    """The call is the optimizer's part."""
    return around(api.optimizer)


def passes(kind: str, index: str = "", chunk: Union[str, Callable[[Any], int]] = "") -> Wrapper:
    """The call is a pass of one micro-batch.

    Args:
        kind: F, B, W or FB.
        index: the parameter that numbers the micro-batch; without one they are counted.
        chunk: the parameter that numbers the model chunk, or a function that finds it in the call's first argument;
            else 0.
    """

    def wrap(original: Function) -> Function:
        index_of = argument(original, index)
        chunk_of = argument(original, chunk) if isinstance(chunk, str) else lambda args, _: chunk(args[0])

        def wrapper(*args: Any, **kwargs: Any) -> Any:
            with api.microbatch(kind, index_of(args, kwargs), chunk_of(args, kwargs) or 0):
                return original(*args, **kwargs)

        return wrapper

    return wrap
