"""Which tensors a module is called with, as a checkpoint of it would hold them, and what a trace is told of them."""

from __future__ import annotations

import collections
import dataclasses
import functools
from types import SimpleNamespace
from typing import Any

import pytest

from stalloc.train.marking.arguments import caching, stores_caches, tensors_in
from stalloc.train.marking.modules import ModuleMarks

torch = pytest.importorskip("torch")


@dataclasses.dataclass
class Packed:
    lengths: Any
    inner: Any = None


class Slots:
    __slots__ = ("tensor",)


def names(values: Any, **known: Any) -> tuple[list[str], bool]:
    """Of the tensors that were found among those that are known, and whether these are all."""
    found = tensors_in(values)
    return sorted(
        name for name, tensor in known.items() if any(tensor is each for each in found.tensors)
    ), found.complete


def test_tensors_are_found_in_what_holds_them() -> None:
    a, b, c, d = (torch.zeros(2) for _ in range(4))
    held = ((a, None, 3, "text", torch.float32), {"b": [b], "c": Packed(c, collections.deque([d]))})
    assert names(held, a=a, b=b, c=c, d=d) == (["a", "b", "c", "d"], True)
    assert names(SimpleNamespace(cache=[SimpleNamespace(keys=a)]), a=a) == (["a"], True)


def test_weights_of_a_module_are_none_of_its_arguments() -> None:
    assert tensors_in((torch.nn.Linear(2, 2),)) == ([], True)


def test_where_tensors_cannot_be_seen_there_may_be_more() -> None:
    a = torch.zeros(2)
    hidden = Slots()
    hidden.tensor = torch.zeros(2)
    for unseen in (lambda: a, functools.partial(print, a), hidden, iter([a])):
        assert names((a, unseen), a=a) == (["a"], False)
    deep: Any = a
    for _ in range(20):
        deep = [deep]
    assert not tensors_in(deep).complete


def test_a_circle_ends() -> None:
    circle: list[Any] = [torch.zeros(2)]
    circle.append(circle)
    assert len(tensors_in(circle).tensors) == 1
    assert tensors_in(circle).complete


class Outer(torch.nn.Module):  # type: ignore[misc, name-defined]
    def __init__(self, **config: Any) -> None:
        super().__init__()
        self.one = torch.nn.Linear(4, 4)
        self.config = SimpleNamespace(**config)

    def forward(self, x: Any, scale: Any = None, more: Any = None) -> Any:
        return self.one(x) + x * scale


class Caching(Outer):
    def forward(self, x: Any, scale: Any = None, use_cache: Any = None) -> Any:
        return super().forward(x, scale)


class ByKeyword(Outer):
    def forward(self, x: Any, *scale: Any, use_cache: Any = None) -> Any:
        return super().forward(x, *scale)


def told(
    model: Any, *arguments: Any, takes: bool = True, **keywords: Any
) -> tuple[dict[str, set[int]], dict[str, int]]:
    """By path: the storages of the inputs, and what the end of the forward pass says of them."""
    inputs: dict[str, set[int]] = {}
    ends: dict[str, int] = {}

    def take(path: str, tensors: list[Any]) -> bool:
        assert path not in ends, "before the end"
        inputs[path] = {tensor.untyped_storage().data_ptr() for tensor in tensors}
        return takes

    def sink(path: str, kind: str, begins: bool, _: Any, known: int) -> None:
        if kind == "F" and not begins:
            ends[path] = known

    marks = ModuleMarks(sink, inputs=take)
    marks.install(torch)
    try:
        model(*arguments, **keywords)
    except RuntimeError:
        pass
    finally:
        marks.remove()
    return inputs, ends


def test_each_call_tells_its_arguments_and_keywords() -> None:
    x, scale = torch.zeros(2, 4), torch.ones(4)
    inputs, ends = told(Outer(), x[:1], scale=scale)
    assert inputs["Outer"] == {x.untyped_storage().data_ptr(), scale.untyped_storage().data_ptr()}
    assert inputs["Outer.one"] == {x.untyped_storage().data_ptr()}
    assert ends == {"Outer": 1, "Outer.one": 1}


def test_what_is_not_all_or_not_taken_is_not_told() -> None:
    x, scale = torch.zeros(2, 4), torch.ones(4)
    assert told(Outer(), x, scale, lambda: x)[1] == {"Outer": 0, "Outer.one": 1}
    assert told(Outer(), x, scale, takes=False)[1] == {"Outer": 0, "Outer.one": 0}


@pytest.mark.parametrize("kind", [Caching, ByKeyword])
def test_a_model_that_can_leave_its_caches_out_says_so(kind: Any) -> None:
    x, scale = torch.zeros(2, 4), torch.ones(4)
    model = kind(use_cache=True)
    assert told(model, x, scale)[1] == {kind.__name__: 2, f"{kind.__name__}.one": 2}
    assert stores_caches(model)
    model.config.use_cache = False
    assert told(model, x, scale)[1] == {kind.__name__: 1, f"{kind.__name__}.one": 1}
    assert not stores_caches(model)
    ((owner, place),) = caching(model)
    assert owner is model
    assert place == 2 if kind is Caching else place > 1000, "an argument by position is never one by keyword"


def test_a_model_that_takes_no_such_argument_cannot_leave_them_out() -> None:
    x, scale = torch.zeros(2, 4), torch.ones(4)
    model = Outer(use_cache=True)
    assert told(model, x, scale)[1] == {"Outer": 1, "Outer.one": 1}
    assert not stores_caches(model)


def test_an_exception_ends_a_call_without_keywords() -> None:
    _, ends = told(Outer(), torch.zeros(2, 5), scale=torch.ones(5))
    assert set(ends) == {"Outer", "Outer.one"}
