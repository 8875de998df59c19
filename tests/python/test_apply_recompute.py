"""What is recomputed is what was computed: random numbers, autocast and arguments, however a module is called."""

from __future__ import annotations

import copy
import dataclasses
import json
from typing import Any

import pytest

import stalloc
from processes import SCRIPTS, run_with_torch

torch = pytest.importorskip("torch")

from torch.multiprocessing.reductions import StorageWeakRef  # noqa: E402

from applied_models import Layer, Model, gradients, same  # noqa: E402


def test_the_generator_of_a_device_is_where_it_was() -> None:
    """A stand-in for one that no argument is on. torch's checkpoint by itself draws another mask."""
    if not hasattr(torch.utils.backend_registration, "_setup_privateuseone_for_python_backend"):
        pytest.skip("this torch has no stand-ins for accelerators")
    done = run_with_torch(str(SCRIPTS / "stand_in_generator.py")).good()
    masks: dict[str, list[list[int]]] = json.loads(done.out)
    first, again = masks.pop("plain")
    assert first != again
    assert len(masks) == 6
    assert all(drawn == [first, first] for drawn in masks.values()), masks


@dataclasses.dataclass
class Held:
    tensor: Any


class Nested(torch.nn.Module):  # type: ignore[misc]
    """Called with keywords alone, with tensors in what holds them, and with keywords that checkpoint has, too."""

    def __init__(self) -> None:
        super().__init__()
        self.up = torch.nn.Linear(8, 8)
        self.drop = torch.nn.Dropout(0.5)
        self.seen: list[Any] = []

    def forward(self, *, debug: Any, early_stop: Any, held: Any, function: Any) -> Any:
        self.seen.append((debug, early_stop, function))
        x = debug["x"][0] * held.tensor
        return self.drop(self.up(x).exp()) * torch.rand(8)


class Calling(torch.nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(8, 8)
        self.nested = Nested()

    def forward(self, x: Any) -> Any:
        x = self.first(x)
        return self.nested(debug={"x": (x, x)}, early_stop=None, held=Held(x), function="f")


def test_keywords_alone_and_nested_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    model = Calling()
    expected = gradients(copy.deepcopy(model))
    stalloc.recompute(model.nested)
    assert same(gradients(model), expected)
    assert len(model.nested.seen) == 2
    assert [seen[1:] for seen in model.nested.seen] == [(None, "f")] * 2


def test_an_input_that_was_changed_meanwhile_is_an_error() -> None:
    layer, x = Layer(), torch.ones(4, 8, requires_grad=True) * 2
    stalloc.recompute(layer)
    loss = layer(x).sum()
    x.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_autocast_is_as_it_was() -> None:
    model = Model()
    stalloc.recompute(model.layers[0])
    plain = copy.deepcopy(model)
    types: list[Any] = []
    model.layers[0].linear.register_forward_hook(lambda module, args, output: types.append(output.dtype))
    torch.manual_seed(3)
    with torch.autocast("cpu", torch.bfloat16):
        loss = model(torch.ones(4, 8))
    loss.backward()  # outside of it
    assert types == [torch.bfloat16] * 2
    torch.manual_seed(3)
    with torch.autocast("cpu", torch.bfloat16):
        expected = plain(torch.ones(4, 8))
    expected.backward()
    assert all(torch.equal(a.grad, b.grad) for a, b in zip(model.parameters(), plain.parameters()))


class Twice(torch.nn.Module):  # type: ignore[misc]
    """Calls one layer several times, without and with what holds gradients."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = Layer()
        self.outer = Model(layers=2)

    def forward(self, x: Any) -> Any:
        return self.outer(self.layer(self.layer(x, scale=0.25)))


@pytest.mark.parametrize(
    ("recomputed", "runs"),
    [
        (["layer"], [4, 1]),
        (["outer", "outer.layers.0"], [2, 3]),  # of the two: once for the outer one, once for its own
        (["layer", "outer", "outer.layers.0", "outer.layers.1"], [4, 3]),
    ],
)
def test_several_calls_and_modules_inside_each_other(recomputed: list[str], runs: list[int]) -> None:
    model = Twice()
    expected = gradients(copy.deepcopy(model))
    for path in recomputed:
        stalloc.recompute(model.get_submodule(path))
    assert same(gradients(model), expected)
    assert [model.layer.runs, model.outer.layers[0].runs] == runs


def test_gradients_of_gradients() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh())

    def second() -> Any:
        x = torch.linspace(0, 1, 4).requires_grad_()
        (first,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
        return torch.autograd.grad(first.pow(2).sum(), x)[0]

    expected = second()
    stalloc.recompute(model)
    assert torch.equal(second(), expected)


class Keeping(torch.nn.Module):  # type: ignore[misc]
    """Keeps a tensor of its last forward pass, with the graph of it, and computes gradients in this pass."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(8, 8)
        self.saved: list[Any] = []

    def forward(self, x: Any) -> Any:
        middle = self.linear(x).exp()
        self.saved.append(StorageWeakRef(middle.untyped_storage()))
        self.kept = middle.sin()
        (slope,) = torch.autograd.grad(self.kept.sum(), middle, retain_graph=True)
        return (self.kept * slope).exp().sum()


@pytest.mark.every_torch
def test_what_a_module_keeps_of_a_recomputation_holds_no_other_tensors() -> None:
    model = Keeping()
    expected = gradients(copy.deepcopy(model))
    stalloc.recompute(model)
    assert same(gradients(model), expected)
    assert all(saved.expired() for saved in model.saved), "of the pass, and of its recomputations"
    with pytest.raises(RuntimeError, match="no tensors after its recomputation"):
        model.kept.sum().backward()


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is:FutureWarning")
def test_what_cannot_be_recomputed_is_an_error() -> None:
    with pytest.raises(TypeError, match="ModuleList is never called: it has no forward"):
        stalloc.recompute(torch.nn.ModuleList())
    with pytest.raises(TypeError, match=r"is compiled by torch\.jit"):
        stalloc.recompute(torch.jit.script(torch.nn.Linear(2, 2)))
