"""The order in which offloaded tensors go and come back: that of the stations of a forward pass.

A pass is one call of the module around the chosen ones. Stations are calls of modules within it, of all that are called
alike where one of them is chosen: the layers of a model. What a station saved is let go where the station `AFTER` it
ends, and is on its way back where the backward pass of the one `AHEAD` of it begins; at the latest where the pass ends,
from where its backward pass begins. So copies have the time of some layers, and memory falls at the same point of each
iteration. Each thread has its own passes.
"""

from __future__ import annotations

import collections
import contextlib
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Optional

import torch
from torch.utils._pytree import tree_leaves

from stalloc.train.changes.transfers import Transfer

AFTER = 3  # stations, forward: the host's bus takes about as long for what a layer saves as three layers run
AHEAD = 2  # stations, backward, where a layer takes twice as long

_NO_FORWARD = torch.nn.Module.forward


class Pass:
    """What was saved in the stations of one forward pass. The graph's hooks hold it; it holds no part of the graph, and
    transfers only until they are released."""

    def __init__(self) -> None:
        self._stations: list[list[weakref.ref[Transfer]]] = []
        self._flying: collections.deque[tuple[int, Transfer]] = collections.deque()
        self.known: dict[Any, Any] = {}  # what was saved, by what it is: offload.py's

    def begin(self) -> None:
        self._stations.append([])

    def add(self, transfer: Transfer) -> None:
        """It was saved, perhaps again, in the station that runs."""
        station = self._stations[-1]
        if not any(known() is transfer for known in station):
            station.append(weakref.ref(transfer))

    def sent(self, transfer: Transfer) -> None:
        """Its copy has begun in the station that runs."""
        self._flying.append((len(self._stations) - 1, transfer))

    def end(self, output: Any) -> None:
        """Of the station that runs."""
        self._release(len(self._stations) - AFTER)
        self._fetch_at(output, len(self._stations))

    def close(self, output: Any) -> None:
        self.known.clear()
        self._release(len(self._stations))
        self._fetch_at(output, len(self._stations) + 1)

    def _release(self, count: int) -> None:
        """What the first so many stations have saved."""
        while self._flying and self._flying[0][0] < count:
            self._flying.popleft()[1].release()

    def _fetch_at(self, output: Any, place: int) -> None:
        """When the output's gradient is there, the `AHEAD` stations before the place come back, and the one that ends
        there."""
        ahead = range(max(0, place - 1 - AHEAD), min(place, len(self._stations)))
        if not any(self._stations[i] for i in ahead):
            return
        tensor = next(_with_gradients(output), None)
        if tensor is not None:
            tensor.register_hook(lambda _: self.fetch(ahead))  # type: ignore[no-untyped-call]

    def fetch(self, stations: Iterable[int]) -> None:
        """The last one first, each as it was saved last."""
        for i in sorted(stations, reverse=True):
            for known in reversed(self._stations[i]):
                transfer = known()
                if transfer is not None:
                    transfer.fetch()


class _Here(threading.local):
    def __init__(self) -> None:
        self.current: Optional[Pass] = None
        self.in_station = False
        self.open: list[tuple[Any, Callable[[Any], None]]] = []  # calls of marked modules, and what ends them


_here = _Here()


def is_saving() -> bool:
    """Whether what this thread runs is a forward pass that has a backward pass later. What a checkpoint runs again
    within one is needed at once."""
    return torch.is_grad_enabled() and torch._C._current_graph_task_id() == -1


@contextlib.contextmanager
def stop() -> Iterator[Callable[[Any], None]]:
    """Around a chosen module's call; returns the function that takes the call's result. Outside of a marked module the
    call is a pass of its own, outside of a station a station of its own."""
    ends = [end for end in (_begin_pass(), _begin_station()) if end is not None]
    outputs: list[Any] = []
    try:
        yield outputs.append
    finally:
        for end in reversed(ends):
            end(outputs[-1] if outputs else None)


def current() -> Pass:
    """REQUIRES: within `stop`."""
    assert _here.current is not None
    return _here.current


def _begin_pass() -> Optional[Callable[[Any], None]]:
    """What ends it; None: there is one."""
    if _here.current is not None:
        return None
    begun = _here.current = Pass()

    def end(output: Any) -> None:
        _here.current = None
        begun.close(output)

    return end


def _begin_station() -> Optional[Callable[[Any], None]]:
    running = _here.current
    if running is None or _here.in_station:
        return None
    _here.in_station = True
    running.begin()

    def end(output: Any) -> None:
        _here.in_station = False
        running.end(output)

    return end


# -- Marks: hooks of modules. A model is copied and pickled with them.


def mark(model: Any, chosen: Iterable[Any]) -> Callable[[], None]:
    """Has calls of the modules around the chosen ones be passes, and those of their likes stations. Returns what undoes
    that. What is marked stays as it is. A module at two paths counts at the first."""
    known = dict(model.named_modules())
    paths = {id(module): path for path, module in known.items()}
    handles: list[Any] = []
    for path in (paths[id(module)] for module in chosen):
        around, stations = _around(path, known)
        if around is not None:
            handles += _marked(around, _pass_begins)
            handles += [handle for station in stations for handle in _marked(station, _station_begins)]

    def undo() -> None:
        for handle in handles:
            handle.remove()

    return undo


def _around(path: str, known: Mapping[str, Any]) -> tuple[Any, list[Any]]:
    """The innermost module around it that is called, and the modules among which it is one: of "model.layers.3.mlp"
    those are the layers. None: it is the model itself."""
    parts = path.split(".")
    number = next((i for i, part in enumerate(parts) if part.isdigit()), len(parts) - 1)
    holders = [known.get(".".join(parts[:count])) for count in range(number, -1, -1)] if path else []
    called = (one for one in holders if one is not None and type(one).forward is not _NO_FORWARD)
    return next(called, None), list(holders[0].children()) if holders and holders[0] is not None else []


def _marked(module: Any, begins: Callable[..., None]) -> list[Any]:
    if begins in module._forward_pre_hooks.values():
        return []
    handles = [module.register_forward_pre_hook(begins)]
    if _ends not in module._forward_hooks.values():
        handles.append(module.register_forward_hook(_ends, always_call=True))
    return handles


def _pass_begins(module: Any, _: Any) -> None:
    _begins(module, _begin_pass)


def _station_begins(module: Any, _: Any) -> None:
    _begins(module, _begin_station)


def _begins(module: Any, begin: Callable[[], Optional[Callable[[Any], None]]]) -> None:
    if torch.compiler.is_compiling() or not is_saving():
        return
    end = begin()
    if end is not None:
        _here.open.append((module, end))


def _ends(module: Any, _: Any, output: Any) -> None:
    if torch.compiler.is_compiling() or not _here.open:
        return
    while any(each is module for each, _ in _here.open):
        innermost, end = _here.open.pop()
        end(output if innermost is module else None)


def _with_gradients(output: Any) -> Iterator[torch.Tensor]:
    for each in [output] if isinstance(output, torch.Tensor) else tree_leaves(output):
        if isinstance(each, torch.Tensor) and each.grad_fn is not None:
            yield each
