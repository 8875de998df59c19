"""What is offloaded comes back as it was, what cannot leave stays, and nothing that torch finds wrong goes unseen."""

from __future__ import annotations

import copy
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from applied_models import Model, gradients, same  # noqa: E402
from stalloc.train.changes import changed, offload, stations, transfers  # noqa: E402


def offloaded(model: Any, *paths: str) -> Any:
    changed.change([(model.get_submodule(path) if path else model, changed.OFFLOAD) for path in paths])
    return model


@pytest.fixture
def moved(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What leaves, where the host's own tensors leave, too."""
    found: list[Any] = []
    to_host = offload._to_host

    def seen(tensor: Any) -> Any:
        found.append(tensor)
        return to_host(tensor)

    monkeypatch.setattr(offload, "_to_host", seen)
    monkeypatch.setattr(offload, "_can_leave", lambda tensor: tensor.layout is torch.strided)
    return found


def test_the_same_numbers_come_and_weights_stay(moved: list[Any]) -> None:
    model = Model()
    expected = gradients(copy.deepcopy(model))
    offloaded(model, "layers.1")
    assert same(gradients(model), expected)
    weights = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    assert moved
    assert not weights & {tensor.untyped_storage().data_ptr() for tensor in moved}


class Shapes(torch.nn.Module):  # type: ignore[misc]
    """Saves what is expanded, transposed, a part of another, conjugated, a single number, and empty."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.linspace(-1, 1, 12).view(3, 4))
        self.register_buffer("table", torch.linspace(1, 2, 4))

    def forward(self, x: Any) -> Any:
        mask = (x[:1] > 0).expand(3, 4).double()
        y = (x * mask).t() * self.weight.t() * self.table[:, None]
        z = torch.complex(y, y).conj() * torch.complex(y, y)[:, :2].sum()
        return z.abs() * x.max() + (x[:0] * x[:0]).sum()


@pytest.mark.parametrize("ways", [[changed.OFFLOAD], [changed.OFFLOAD, changed.RECOMPUTE]])
def test_tensors_come_back_as_they_were(moved: list[Any], ways: list[str]) -> None:
    model, x = Shapes(), torch.linspace(-1, 2, 12).view(3, 4)

    def found(module: Any) -> list[Any]:
        leaf = x.clone().requires_grad_()
        return [*gradients(module, leaf * 1), *torch.autograd.grad(module(leaf).sum(), leaf)]

    expected = found(copy.deepcopy(model))
    changed.change([(model, way) for way in ways])
    assert same(found(model), expected)
    assert moved
    assert not any(tensor.untyped_storage().data_ptr() == model.table.data_ptr() for tensor in moved)


def test_an_expanded_tensor_is_copied_once(moved: list[Any]) -> None:
    mask = torch.rand(1, 1, 5).expand(4, 3, 5)
    with stations.stop():
        packed = offload._to_host(mask)
    assert transfers.lane_of(mask.device).pool.used > 0
    assert packed._transfer._piece.bytes.numel() == 5 * mask.itemsize
    back = offload._unpack(packed)
    assert torch.equal(back, mask)
    assert back.stride() == mask.stride()


class Odd(torch.nn.Module):  # type: ignore[misc]
    """Saves tensors without a storage of their own, or of a class of their own."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(4, 4))

    def forward(self, x: Any) -> Any:
        sparse = torch.eye(4).to_sparse()
        own = torch.ones(4, 4).as_subclass(Own)
        return torch.sparse.mm(sparse, self.weight * x) * own


class Own(torch.Tensor):  # type: ignore[misc]
    pass


@pytest.mark.parametrize("leaves", [False, True])
def test_tensors_without_a_storage_stay(leaves: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if leaves:  # the host's own plain ones
        plain = offload._PLAIN
        monkeypatch.setattr(offload, "_can_leave", lambda each: type(each) in plain and each.layout is torch.strided)
    model, x = Odd(), torch.rand(4, 4)
    expected = gradients(copy.deepcopy(model), x)
    assert same(gradients(offloaded(model, ""), x), expected)


def test_fake_tensors_stay() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        model = offloaded(Model(), "layers.0")
        gradients(model)


def test_nested_tensors_stay() -> None:
    class Ragged(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(4, 4)

        def forward(self, x: Any) -> Any:
            return self.linear(x).sin().values()

    x = torch.nested.nested_tensor([torch.rand(2, 4), torch.rand(3, 4)], layout=torch.jagged)
    model = Ragged()
    expected = gradients(copy.deepcopy(model), x)
    assert same(gradients(offloaded(model, ""), x), expected)


@pytest.mark.parametrize("leaves", [False, True])
def test_what_is_changed_meanwhile_is_an_error_or_was_copied(leaves: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """As without hooks: torch does not look after tensors that hooks give back."""
    monkeypatch.setattr(offload, "_can_leave", lambda tensor: leaves)

    class Exp(torch.nn.Module):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            return x.exp()

    x = torch.zeros(3, requires_grad=True)
    y = offloaded(Exp(), "")(x)
    y.detach().add_(1)
    if leaves:
        y.sum().backward()
        assert torch.equal(x.grad, torch.ones(3))
    else:
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.sum().backward()


def test_a_weight_that_is_changed_meanwhile_is_an_error() -> None:
    model = offloaded(Model(), "layers.1")
    loss = model(torch.ones(4, 8))
    with torch.no_grad():
        model.layers[1].linear.weight.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


@pytest.mark.parametrize(
    ("outer", "inner"), [("offload", "recompute"), ("recompute", "offload"), ("offload", "offload")]
)
def test_modules_inside_each_other(moved: list[Any], outer: str, inner: str) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Sequential(Model(layers=2)))
    expected = gradients(copy.deepcopy(model))
    changed.change([(model[1], outer), (model[1][0].layers[0], inner)])
    assert same(gradients(model), expected)
