"""An optimizer's state goes to the host and back as a whole, whatever it is made of, and trains as before.

Here the host's own tensors leave, as copies: a device is not needed for what is to be shown."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

import stalloc

torch = pytest.importorskip("torch")

from applied_models import Model, gradients, same, write  # noqa: E402
from stalloc.train.changes import state  # noqa: E402


@pytest.fixture
def moves(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Calls of the optimizer's hooks; all tensors count as a device's."""
    monkeypatch.setattr(state, "_on_device", lambda tensor: True)
    found: list[str] = []
    for name in ("to_host", "to_devices"):
        move = getattr(state._State, name)

        def counted(self: Any, move: Any = move, name: str = name) -> None:
            found.append(name)
            move(self)

        monkeypatch.setattr(state._State, name, counted)
    return found


class Shampoo(torch.optim.Optimizer):  # type: ignore[misc]
    """State as others than torch's have it: nested, with numbers and words, and tensors that share their bytes."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, {"lr": 0.1})
        self.fails = False

    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for parameter in group["params"]:
                mine = self.state[parameter]
                if not mine:
                    flat = torch.zeros(2, *parameter.shape)
                    mine.update(
                        name="shampoo",
                        step=torch.tensor(0.0),
                        factors=[{"left": torch.eye(len(parameter)), "rank": 3}, (torch.ones(3), None)],
                        first=flat[0],
                        second=flat[1],
                        itself=parameter,
                    )
                    self.kept = mine["factors"][0]["left"]  # somebody else's reference
                if self.fails:
                    raise ValueError("a step that fails")
                mine["step"] += 1
                mine["factors"][0]["left"].mul_(0.5)
                mine["second"].add_(parameter.grad)
                parameter.data.sub_(mine["second"], alpha=group["lr"])


def steps(model: Any, optimizer: Any, count: int = 3) -> list[Any]:
    for _ in range(count):
        gradients(model)
        optimizer.step()
    return [parameter.detach().clone() for parameter in model.parameters()]


def choice(tmp_path: Path) -> Path:
    return write(tmp_path / "fit.json", offload_state=True)


@pytest.mark.parametrize("kind", [Shampoo, torch.optim.AdamW, lambda p: torch.optim.SGD(p, 0.1, momentum=0.9)])
def test_it_trains_as_before(tmp_path: Path, moves: list[str], kind: Any) -> None:
    model = Model()
    plain = copy.deepcopy(model)
    optimizer = kind(model.parameters())
    stalloc.apply(choice(tmp_path), model, optimizer)
    assert same(steps(model, optimizer), steps(plain, kind(plain.parameters())))
    assert moves == ["to_devices", "to_host"] * 3


def test_torch_s_and_others_containers_stay_as_they_are(tmp_path: Path, moves: list[str]) -> None:
    model = Model(layers=1)
    optimizer = Shampoo(model.parameters())
    stalloc.apply(choice(tmp_path), model, optimizer)
    steps(model, optimizer, 1)
    mine = optimizer.state[list(model.parameters())[-1]]
    left = mine["factors"][0]["left"]
    assert optimizer.kept is left
    before = left.untyped_storage()
    steps(model, optimizer, 1)
    assert mine["factors"][0]["left"] is left
    assert left.untyped_storage()._cdata != before._cdata, "it has not been away"
    assert torch.equal(left, torch.eye(len(left)) / 4)
    assert isinstance(mine["factors"][1], tuple)
    assert mine["name"] == "shampoo"


def test_what_shares_its_bytes_stays(tmp_path: Path, moves: list[str]) -> None:
    model = Model(layers=1)
    optimizer = Shampoo(model.parameters())
    steps(model, optimizer, 1)
    moved = {id(tensor) for tensor in state._movable(optimizer)}
    for parameter, mine in optimizer.state.items():
        assert not {id(parameter), id(mine["first"]), id(mine["second"]), id(mine["step"])} & moved
        assert {id(mine["factors"][0]["left"]), id(mine["factors"][1][0])} <= moved


@pytest.mark.parametrize("way", ["to_host", "to_devices"])
def test_all_of_it_moves_or_nothing(
    tmp_path: Path, moves: list[str], monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """The last copy of three finds no memory."""
    model = Model()
    plain = copy.deepcopy(model)
    optimizer, other = Shampoo(model.parameters()), Shampoo(plain.parameters())
    stalloc.apply(choice(tmp_path), model, optimizer)
    if way == "to_devices":
        steps(model, optimizer, 1)
        steps(plain, other, 1)
    storages = [tensor.untyped_storage()._cdata for tensor in state._movable(optimizer)]
    calls = []

    def fails(copied: Any) -> Any:
        def called(*args: Any, **kwargs: Any) -> Any:
            calls.append(args)
            if len(calls) == 3:
                raise torch.OutOfMemoryError("none is left")
            return copied(*args, **kwargs)

        return called

    gradients(model)
    with monkeypatch.context() as patch:
        if way == "to_host":
            patch.setattr(torch, "empty_like", fails(torch.empty_like))
        else:
            patch.setattr(torch.Tensor, "to", fails(torch.Tensor.to))
        with pytest.raises(torch.OutOfMemoryError):
            optimizer.step()
    if way == "to_devices":
        assert [tensor.untyped_storage()._cdata for tensor in state._movable(optimizer)] == storages
        assert same(steps(model, optimizer), steps(plain, other))
    else:  # the step itself was made
        steps(plain, other, 1)
        assert same(steps(model, optimizer), steps(plain, other))


def test_a_step_that_fails_leaves_its_state_whole(tmp_path: Path, moves: list[str]) -> None:
    model = Model()
    plain = copy.deepcopy(model)
    optimizer, other = Shampoo(model.parameters()), Shampoo(plain.parameters())
    stalloc.apply(choice(tmp_path), model, optimizer)
    steps(model, optimizer, 1)
    optimizer.fails = True
    with pytest.raises(ValueError, match="a step that fails"):
        steps(model, optimizer, 1)
    optimizer.fails = False
    steps(plain, other, 1)
    assert same(steps(model, optimizer), steps(plain, other))


def test_a_state_that_is_loaded_is_used(tmp_path: Path, moves: list[str]) -> None:
    model = Model()
    plain = copy.deepcopy(model)
    optimizer, other = (torch.optim.AdamW(each.parameters()) for each in (model, plain))
    stalloc.apply(choice(tmp_path), model, optimizer)
    for each, its in ((model, optimizer), (plain, other)):
        steps(each, its, 1)
        saved = copy.deepcopy(its.state_dict())
        steps(each, its, 2)
        its.load_state_dict(saved)
    assert same(steps(model, optimizer), steps(plain, other))


def test_twice_is_as_once_and_an_optimizer_is_not_kept(tmp_path: Path, moves: list[str]) -> None:
    import gc
    import weakref

    model = Model()
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(2):
        stalloc.apply(choice(tmp_path), model, optimizer)
    steps(model, optimizer, 1)
    assert moves == ["to_devices", "to_host"]
    gone = weakref.ref(optimizer)
    del optimizer
    gc.collect()
    assert gone() is None


def test_an_error_leaves_the_optimizer_as_it_was(tmp_path: Path, moves: list[str]) -> None:
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters())
    with pytest.raises(ValueError, match="layers cannot be changed"):
        stalloc.apply(write(tmp_path / "fit.json", offload_state=True, recompute=["layers"]), model, optimizer)
    steps(model, optimizer, 1)
    assert moves == []
    stalloc.apply(choice(tmp_path), model, optimizer)
    steps(model, optimizer, 1)
    assert moves == ["to_devices", "to_host"]


def test_state_that_is_of_no_parameter_and_no_dictionary(tmp_path: Path, moves: list[str]) -> None:
    model = Model(layers=1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    optimizer.state["all"] = [torch.ones(3), {"count": 3}]
    stalloc.apply(choice(tmp_path), model, optimizer)
    before = optimizer.state["all"][0].untyped_storage()  # as long as it lives, no other lies there
    steps(model, optimizer, 2)
    assert optimizer.state["all"][0].untyped_storage()._cdata != before._cdata
    assert torch.equal(optimizer.state["all"][0], torch.ones(3))


def test_on_a_cpu_nothing_moves(tmp_path: Path) -> None:
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters())
    stalloc.apply(choice(tmp_path), model, optimizer)
    steps(model, optimizer, 2)
    assert state._movable(optimizer) == []


def test_of_a_tensor_made_of_others_these_move(moves: list[str]) -> None:
    """As a DTensor is, or a quantized state."""
    from torch.testing._internal.two_tensor import TwoTensor

    a, b = torch.ones(3), torch.zeros(3)
    both = TwoTensor(a, b)
    parameter = torch.nn.Parameter(torch.ones(3))
    optimizer = torch.optim.SGD([parameter], 0.1)
    optimizer.state[parameter]["momentum"] = [both]
    assert [id(tensor) for tensor in state._movable(optimizer)] == [id(a), id(b)]
    mover = state._State(optimizer)
    storages = [a.untyped_storage(), b.untyped_storage()]
    mover.to_host()
    assert [a.untyped_storage()._cdata, b.untyped_storage()._cdata] != [each._cdata for each in storages]
    assert torch.equal(both.a, torch.ones(3))
