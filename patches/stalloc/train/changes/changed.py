"""Changed modules: one that is recomputed or offloaded gets a class of the same name, derived from its own, that runs
the same forward in that way.

There is one such class for each class and set of ways, so that torch.compile takes alike modules for alike. It is
pickled as what it is made of: modules are copied, saved and sent to other processes as before, and are changed there.
A module with a forward of its own, as accelerate gives it one, keeps its class, and gets another forward of its own.
"""

from __future__ import annotations

import copyreg
import functools
import threading
from collections.abc import Callable, Collection, Iterable
from typing import Any, Optional, cast

import torch

from stalloc.train.changes import stations
from stalloc.train.changes.offload import offloaded
from stalloc.train.changes.recompute import recomputed

RECOMPUTE, OFFLOAD = "recompute", "offload"

_OWN = "forward"  # in a module's __dict__
_MADE = "_stalloc_made_of"  # in a class's: the class that it was made of, and the ways

_lock = threading.Lock()  # of making classes


class ChangeError(TypeError):
    """A module cannot be changed. The text says why."""

    def __init__(self, module: Any, text: str) -> None:
        super().__init__(text)
        self.module = module


class Changed(type):
    """The class of classes that were made here. Each other metaclass of a module has a derived one."""


def change(changes: Iterable[tuple[Any, str]], model: Optional[Any] = None) -> Callable[[], None]:
    """Changes modules, all or none, and returns what changes them back. A module that runs in a way already stays.

    Args:
        changes: modules, each with RECOMPUTE or OFFLOAD. With both, what recomputing needs of its inputs is offloaded.
        model: they are in it, and copies of offloaded tensors overlap with what runs around them (stations.py); None:
            only with the module itself.
    Raises:
        ChangeError: one of them cannot be changed; none was.
    """
    undone: list[Callable[[], object]] = []

    def undo() -> None:
        for each in reversed(undone):
            each()

    offloads: list[Any] = []
    for module, way in changes:
        try:
            undone.append(_change(module, way))
            offloads += [module] if way == OFFLOAD else []
        except Exception as error:
            undo()
            raise error if isinstance(error, ChangeError) else ChangeError(module, str(error)) from error
    if model is not None:
        undone.append(stations.mark(model, offloads))
    return undo


def run(ways: Collection[str], forward: Callable[..., Any], module: Any, /, *args: Any, **kwargs: Any) -> Any:
    """`forward`, a function of the module and its arguments, run in these ways. It is not bound: torch.compile would
    take each module's for another function."""
    inner = functools.partial(recomputed, forward) if RECOMPUTE in ways else forward
    return offloaded(inner, module, args, kwargs) if OFFLOAD in ways else inner(module, *args, **kwargs)


def of_its_own(own: Callable[..., Any], _: Any, /, *args: Any, **kwargs: Any) -> Any:
    """A module's own forward as a function of the module."""
    return own(*args, **kwargs)


def _change(module: Any, way: str) -> Callable[[], object]:
    kind, own = type(module), vars(module).get(_OWN)
    if isinstance(module, torch.jit.ScriptModule):
        raise ChangeError(module, f"{kind.__name__} is compiled by torch.jit")
    if own is None and kind.forward is torch.nn.Module.forward:
        raise ChangeError(module, f"{kind.__name__} is never called: it has no forward")
    if own is None or way in _ways(kind):
        made = changed_class(kind, {way})
        object.__setattr__(module, "__class__", made)
        return lambda: object.__setattr__(module, "__class__", kind)
    before, forward = frozenset[str](), functools.partial(of_its_own, own)
    if getattr(own, "func", None) is run:
        before, forward, _ = own.args
    module.__dict__[_OWN] = functools.partial(run, before | {way}, forward, module)
    return lambda: module.__dict__.update({_OWN: own})


def changed_class(kind: type, ways: Iterable[str]) -> type:
    """The class that runs the forward of `kind` in these ways, and in the ways that it already has. Thread-safe."""
    missing = frozenset(ways) - _ways(kind)
    if not missing:
        return kind
    origin, before = vars(kind).get(_MADE, (kind, frozenset()))
    with _lock:
        return _derived(origin, missing | before)


def _ways(kind: type) -> frozenset[str]:
    """The ways of a class, also if another library has derived from it, as fully_shard does."""
    made = (vars(base)[_MADE][1] for base in kind.__mro__ if _MADE in vars(base))
    return frozenset().union(*made)


def _derived(kind: type, ways: frozenset[str]) -> type:
    """The existing class, or a new one. Python knows the derived classes of a class, and holds them weakly."""
    classes: list[type] = type.__subclasses__(kind)
    for derived in classes:
        if vars(derived).get(_MADE) == (kind, ways):
            return derived
    return _made(kind, ways)


def _made(kind: type, ways: frozenset[str]) -> type:
    inherited: Any = kind

    def inner(self: Any, *args: Any, **kwargs: Any) -> Any:
        return super(made, self).forward(*args, **kwargs)

    @functools.wraps(inherited.forward, updated=())
    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(self, made):  # a lazy module has changed its class within its first call
            return self.forward(*args, **kwargs)
        return run(ways, inner, self, *args, **kwargs)

    names: dict[str, Any] = {name: getattr(kind, name) for name in ("__module__", "__qualname__", "__doc__")}
    names |= {"forward": forward, _MADE: (kind, ways)}
    become = getattr(kind, "cls_to_become", None)  # a lazy module's class after its first call
    if become is not None:
        names["cls_to_become"] = _derived(become, ways)
    made: Any = _metaclass(type(kind))(kind.__name__, (kind,), names)
    return cast(type, made)


def _metaclass(of: type) -> type:
    if of is type:
        return Changed
    if issubclass(of, Changed):
        return of
    metaclasses: list[type] = type.__subclasses__(of)
    for derived in metaclasses:
        if issubclass(derived, Changed):
            return derived
    made = type("Changed", (Changed, of), {})
    copyreg.pickle(made, _reduced)
    return made


def _reduced(kind: type) -> Any:
    """For pickle: a class that does not exist is made anew from its origin. A class that another library has
    derived is found by its name, as any class."""
    return (changed_class, vars(kind)[_MADE]) if _MADE in vars(kind) else kind.__qualname__


copyreg.pickle(Changed, _reduced)
