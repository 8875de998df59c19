"""Changed models are copied, pickled, saved, sent to other processes and changed again as others are."""

from __future__ import annotations

import abc
import copy
import io
import multiprocessing
import pickle
from pathlib import Path
from typing import Any

import pytest

import stalloc

torch = pytest.importorskip("torch")

from torch.nn.modules.lazy import LazyModuleMixin  # noqa: E402

from applied_models import Layer, Model, gradients, same, write  # noqa: E402


class Abstract(Layer, abc.ABC):
    """A class with another metaclass."""


class Derived(Layer):
    """Recomputed by itself, and as another library derives a class from it."""


@pytest.fixture
def model(tmp_path: Path) -> Model:
    torch.manual_seed(1)
    made = Model()
    made.layers[2] = Abstract()
    choice = write(tmp_path / "fit.json", recompute=["layers.1", "layers.2"], offload=["layers.0", "layers.1"])
    stalloc.apply(choice, made)
    return made


def runs(model: Any) -> list[int]:
    return [layer.runs for layer in model.layers]


def torch_saved(model: Any) -> Any:
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


def pickled(model: Any) -> Any:
    for protocol in range(pickle.HIGHEST_PROTOCOL):
        pickle.loads(pickle.dumps(model, protocol))
    return pickle.loads(pickle.dumps(model))


@pytest.mark.parametrize("copied", [copy.deepcopy, pickled, torch_saved])
def test_a_copy_is_changed_as_the_model_is(model: Model, copied: Any) -> None:
    twin = copied(model)
    assert [type(layer) for layer in twin.layers] == [type(layer) for layer in model.layers]
    assert same(gradients(twin), gradients(model))
    assert runs(twin) == runs(model) == [1, 2, 2]


def train(model: Any, results: Any) -> None:
    found = gradients(model)
    results.put((runs(model), [each.tolist() for each in found]))


def test_a_spawned_process_gets_it_changed(model: Model) -> None:
    context = multiprocessing.get_context("spawn")
    results = context.SimpleQueue()
    child = context.Process(target=train, args=(copy.deepcopy(model), results))
    child.start()
    found = results.get()
    child.join()
    assert found == ([1, 2, 2], [each.tolist() for each in gradients(model)])


def test_a_forward_of_its_own_goes_with_a_copy(tmp_path: Path) -> None:
    model = Model()
    model.layers[0].forward = model.layers[0].forward
    stalloc.apply(write(tmp_path / "fit.json", recompute=["layers.0"]), model)
    twin = copy.deepcopy(model)
    gradients(twin)
    assert (runs(twin), runs(model)) == ([2, 1, 1], [0, 0, 0])


def test_twice_is_as_once(model: Model, tmp_path: Path) -> None:
    classes = [type(layer) for layer in model.layers]
    changed = stalloc.apply(tmp_path / "fit.json", model)
    assert changed == ["layers.1", "layers.2", "layers.0"]
    assert [type(layer) for layer in model.layers] == classes
    gradients(model)
    assert runs(model) == [1, 2, 2]


@pytest.mark.parametrize("order", [("recompute", "offload"), ("offload", "recompute")])
def test_one_way_after_the_other_is_as_both_at_once(tmp_path: Path, order: tuple[str, str]) -> None:
    at_once, one_by_one = Model(layers=1), Model(layers=1)
    stalloc.apply(write(tmp_path / "fit.json", recompute=["layers.0"], offload=["layers.0"]), at_once)
    for way in order:
        stalloc.apply(write(tmp_path / "fit.json", **{way: ["layers.0"]}), one_by_one)
    assert type(one_by_one.layers[0]) is type(at_once.layers[0])
    gradients(one_by_one)
    assert runs(one_by_one) == [2]


def test_a_class_derived_by_others_stays_theirs(tmp_path: Path) -> None:
    """As fully_shard derives one: it is not changed again, and is found by its name."""
    layer = Derived()
    stalloc.recompute(layer)
    theirs = type("Sharded", (type(layer),), {"__module__": __name__, "__qualname__": "Sharded"})
    layer.__class__ = theirs
    stalloc.recompute(layer)
    assert type(layer) is theirs
    layer(torch.ones(2, 8)).sum().backward()
    assert layer.runs == 2
    with pytest.raises(pickle.PicklingError, match="Sharded"):
        pickle.dumps(layer)
    globals()["Sharded"] = theirs
    assert type(pickle.loads(pickle.dumps(layer))) is theirs
    del globals()["Sharded"]


class Lazy(LazyModuleMixin, Layer):  # type: ignore[misc]
    cls_to_become = Layer

    def __init__(self) -> None:
        super().__init__()
        self.size = torch.nn.UninitializedParameter()

    def initialize_parameters(self, x: Any) -> None:
        if self.has_uninitialized_params():
            self.size.materialize((1,))


@pytest.mark.filterwarnings("ignore:Lazy modules are a new feature:UserWarning")
def test_a_lazy_module_is_still_recomputed_when_it_knows_its_size() -> None:
    layer, other = Lazy(), Layer()
    stalloc.recompute(layer)
    stalloc.recompute(other)
    for runs in (2, 4):
        layer(torch.ones(2, 8)).sum().backward()
        assert layer.runs == runs
    assert type(layer) is type(other)
