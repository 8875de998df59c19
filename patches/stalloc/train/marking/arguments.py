"""The tensors among what a module is called with: a checkpoint of the module holds on to all of it.

Looked at are sequences, mappings, sets, and what objects have as their attributes (an output's class, packed sequences,
a cache); not modules, which hold their weights anyway. Where a tensor could be anywhere else (in a closure, in an
object without a dictionary), there may be more than were found.
"""

from __future__ import annotations

import enum
import functools
import importlib
import inspect
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from collections.abc import Set as AnySet
from typing import Any, NamedTuple, Optional

USE_CACHE = "use_cache"  # of a call, and of a configuration
_DEEPEST = 8
_MOST = 10000  # values in all
_BARE = (tuple, list, dict)  # what most are: without attributes
_PLAIN = (type(None), bool, int, float, complex, str, bytes, range, slice, type(Ellipsis), enum.Enum, type)
_PLAIN_OF_TORCH = ("dtype", "device", "layout", "memory_format", "Generator", "Size", "SymInt", "SymFloat", "SymBool")


class Arguments(NamedTuple):
    tensors: list[Any]
    complete: bool  # False: there may be others


def tensors_in(values: Any) -> Arguments:
    """Each object is looked at once. Nothing is kept."""
    tensors: list[Any] = []
    seen: set[int] = set()
    level, complete = [values], True
    for _ in range(_DEEPEST):
        inner: list[Any] = []
        for value in level:
            kind = _kind_of(type(value))
            if kind is _Kind.TENSOR:
                tensors.append(value)
            elif kind is not _Kind.PLAIN and id(value) not in seen:
                seen.add(id(value))
                complete = complete and kind is not _Kind.UNSEEN
                inner += _inside(value, kind)
        if len(seen) + len(inner) > _MOST:
            return Arguments(tensors, False)
        level = inner
        if not level:
            break
    return Arguments(tensors, complete and not level)


def caching(model: Any) -> Iterator[tuple[Any, int]]:
    """The modules by whose configuration layers store keys and values for later calls (transformers'), where the call
    does not say it by an argument, `use_cache`; and the argument's place. Where layers are recomputed `stalloc.apply`
    has it say no: they would store them once more when they run again."""
    for module in model.modules():
        if hasattr(getattr(module, "config", None), USE_CACHE):
            place = _place(type(module).forward)
            if place is not None:
                yield module, place


def stores_caches(model: Any) -> bool:
    """Whether such a module's configuration says so."""
    return any(getattr(module.config, USE_CACHE) for module, _ in caching(model))


@functools.lru_cache(maxsize=256)
def _place(forward: Any) -> Optional[int]:
    """The position of the argument, counted without self; None: there is none of that name."""
    try:
        parameters = list(inspect.signature(forward).parameters.values())[1:]
    except (TypeError, ValueError):
        return None
    for place, parameter in enumerate(parameters):
        if parameter.name == USE_CACHE:
            return sys.maxsize if parameter.kind is inspect.Parameter.KEYWORD_ONLY else place
    return None


class _Kind(enum.Enum):
    TENSOR, PLAIN, SEQUENCE, MAPPING, OBJECT, UNSEEN = range(6)


_kinds: dict[type, _Kind] = {}


def _kind_of(kind: type) -> _Kind:
    known = _kinds.get(kind)
    if known is None:
        known = _kinds[kind] = _kind_of_new(kind)
    return known


def _kind_of_new(kind: type) -> _Kind:
    torch = importlib.import_module("torch")
    if issubclass(kind, torch.Tensor):
        return _Kind.TENSOR
    plain = (*_PLAIN, *(getattr(torch, name) for name in _PLAIN_OF_TORCH), torch.nn.Module)
    if issubclass(kind, plain):
        return _Kind.PLAIN
    if any("__call__" in vars(base) for base in kind.__mro__) or getattr(kind, "__slots__", None):
        return _Kind.UNSEEN
    if issubclass(kind, Mapping):
        return _Kind.MAPPING
    if issubclass(kind, (Sequence, AnySet)):
        return _Kind.SEQUENCE
    return _Kind.OBJECT if kind.__dictoffset__ else _Kind.UNSEEN


def _inside(value: Any, kind: _Kind) -> Collection[Any]:
    """What it holds, as far as that can be seen."""
    if type(value) in _BARE:
        return value.values() if type(value) is dict else value
    if kind is _Kind.UNSEEN:
        return ()
    attributes = getattr(value, "__dict__", None)
    own = list(attributes.values()) if attributes else []
    if kind is _Kind.OBJECT:
        return own
    return [*(value.values() if kind is _Kind.MAPPING else value), *own]
