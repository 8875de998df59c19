"""`stalloc.apply`: exactly the chosen modules are recomputed, and nothing else about the model changes."""

from __future__ import annotations

import copy
import inspect
import json
from pathlib import Path
from typing import Any

import pytest

import stalloc
from stalloc.tools.fitting import settings

torch = pytest.importorskip("torch")

from applied_models import Layer, Model, gradients, same, write  # noqa: E402


@pytest.fixture
def model() -> Model:
    torch.manual_seed(1)
    return Model()


def runs(model: Model) -> list[int]:
    return [layer.runs for layer in model.layers]


def test_the_chosen_run_twice_and_the_same_numbers_come(model: Model, tmp_path: Path) -> None:
    expected = gradients(copy.deepcopy(model))
    changed = stalloc.apply(write(tmp_path / "fit.json", recompute=["layers.0", "layers.2"]), model)
    assert changed == ["layers.0", "layers.2"]
    assert same(gradients(model), expected), "dropout has another mask"
    assert runs(model) == [2, 1, 2]


def test_names_and_types_stay(model: Model, tmp_path: Path) -> None:
    names = list(model.state_dict())
    stalloc.apply(write(tmp_path / "fit.json", recompute=["layers.1"]), model)
    assert list(model.state_dict()) == names
    assert isinstance(model.layers[1], Layer)
    assert type(model.layers[1]).__name__ == "Layer"
    assert type(model.layers[1]).__module__ == Layer.__module__
    assert inspect.signature(model.layers[1].forward) == inspect.signature(model.layers[0].forward)


def test_without_gradients_nothing_runs_twice(model: Model, tmp_path: Path) -> None:
    stalloc.apply(write(tmp_path / "fit.json", recompute=["layers.0"], offload=["layers.1"]), model)
    with torch.no_grad():
        model(torch.ones(4, 8))
    assert runs(model) == [1, 1, 1]


def test_a_forward_of_the_module_s_own_is_wrapped_too(model: Model, tmp_path: Path) -> None:
    layer = model.layers[0]
    layer.forward = layer.forward
    stalloc.apply(write(tmp_path / "fit.json", recompute=["layers.0"]), model)
    gradients(model)
    assert layer.runs == 2


# -- Paths


class Wrapper(torch.nn.Module):  # type: ignore[misc]
    def __init__(self, module: Any) -> None:
        super().__init__()
        self.module = module

    def forward(self, x: Any, **others: Any) -> Any:
        return 2 * self.module(x, **others)


@pytest.mark.parametrize("path", ["layers.0", "module.layers.0", "module.module.layers.0", "layers._orig_mod.0"])
def test_wrapped_models_have_their_modules_under_the_plain_names(model: Model, tmp_path: Path, path: str) -> None:
    stalloc.apply(write(tmp_path / "fit.json", recompute=[path]), Wrapper(model))
    gradients(model)
    assert runs(model) == [2, 1, 1]


@pytest.mark.parametrize("path", ["layers.0", "module.layers.0"])
def test_a_choice_of_a_wrapped_model_fits_one_that_is_not(model: Model, tmp_path: Path, path: str) -> None:
    stalloc.apply(write(tmp_path / "fit.json", recompute=[path]), model)
    gradients(model)
    assert runs(model) == [2, 1, 1]


def test_of_a_wrapped_module_the_inner_one_is_meant(model: Model, tmp_path: Path) -> None:
    layer = model.layers[0]
    model.layers[0] = torch.compile(layer, backend="eager")
    stalloc.apply(write(tmp_path / "fit.json", recompute=["layers.0"]), model)
    assert type(layer) is not Layer
    assert isinstance(model.layers[0], torch._dynamo.OptimizedModule)


def test_a_module_of_the_user_s_by_a_wrapper_s_name_can_be_addressed(tmp_path: Path) -> None:
    """And the one that has it: both have been traced by their own paths."""
    for path, changed in (("layers.0", [True, False]), ("layers.0.module", [False, True])):
        assert settings.module_path(f"Model.{path}") == path
        model = Model(lambda: Wrapper(Layer()), 1)
        for outer in (model, Wrapper(model)):
            stalloc.apply(write(tmp_path / "fit.json", recompute=[path]), outer)
            assert [type(model.layers[0]) is not Wrapper, type(model.layers[0].module) is not Layer] == changed, path


def test_names_of_a_trace_are_paths_in_the_model() -> None:
    assert settings.module_path("DistributedDataParallel#2.module.layers.0._orig_mod.drop") == "layers.0.drop"
    assert settings.module_path("DistributedDataParallel.module.module.layers.0") == "layers.0"
    assert settings.module_path("Model.module.layers.0") == "module.layers.0"
    assert settings.module_path("Model.encoder.module.layers.0") == "encoder.module.layers.0"


def test_a_path_that_can_mean_two_modules_is_an_error(tmp_path: Path) -> None:
    two = torch.nn.ModuleDict({"a": Model(layers=1), "b": Model(layers=1)})
    with pytest.raises(
        ValueError, match=r"expected a module layers\.0 in the model, found 2; it has a\.layers\.0, b\."
    ):
        stalloc.apply(write(tmp_path / "fit.json", recompute=["layers.0"]), two)


def test_a_module_at_two_paths_is_changed_once(model: Model, tmp_path: Path) -> None:
    model.layers[2] = model.layers[0]
    expected = gradients(copy.deepcopy(model))
    paths = ["layers.2", "layers.0"]
    assert stalloc.apply(write(tmp_path / "fit.json", recompute=paths), model) == paths
    assert same(gradients(model), expected), "it is called twice in a pass"
    assert runs(model) == [4, 1, 4]


# -- Errors: nothing is changed


def test_a_module_that_is_not_there_is_an_error_and_nothing_changes(model: Model, tmp_path: Path) -> None:
    choice = write(tmp_path / "fit.json", recompute=["layers.0", "layers.7"])
    with pytest.raises(ValueError, match=r"fit.json: expected a module layers.7 in the model, found none"):
        stalloc.apply(choice, model)
    assert type(model.layers[0]) is Layer


def test_a_module_that_is_never_called_is_an_error_and_nothing_changes(model: Model, tmp_path: Path) -> None:
    own = model.layers[1].forward = model.layers[1].forward
    choice = write(tmp_path / "fit.json", recompute=["layers.0", "layers.1", "layers"])
    with pytest.raises(ValueError, match=r"fit\.json: layers cannot be changed: ModuleList is never called"):
        stalloc.apply(choice, model)
    assert [type(layer) for layer in model.layers] == [Layer] * 3
    assert model.layers[1].__dict__["forward"] is own


def test_a_class_that_cannot_be_derived_from_is_an_error(model: Model, tmp_path: Path) -> None:
    class Registered(Layer):
        def __init_subclass__(cls, *, name: str) -> None:
            """Wants a name of each class."""

    model.layers[1] = Registered()
    with pytest.raises(ValueError, match=r"fit.json: layers.1 cannot be changed: .*name"):
        stalloc.apply(write(tmp_path / "fit.json", recompute=["layers.0", "layers.1"]), model)
    assert type(model.layers[0]) is Layer


def test_the_model_itself_is_no_path(model: Model, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="found an empty one"):
        stalloc.apply(write(tmp_path / "fit.json", recompute=[""]), model)


def test_another_file_is_an_error(model: Model, tmp_path: Path) -> None:
    (tmp_path / "other.json").write_text("{}")
    with pytest.raises(ValueError, match="expected a choice of stalloc fit"):
        stalloc.apply(tmp_path / "other.json", model)


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        ({"recompute": "layers.0"}, "expected a list of paths as recompute, found 'layers.0'"),
        ({"offload": [0]}, r"expected a list of paths as offload, found \[0\]"),
        ({"offload_state": "no"}, "expected true or false as offload_state, found 'no'"),
    ],
)
def test_a_choice_that_is_none_is_an_error(model: Model, tmp_path: Path, chosen: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        stalloc.apply(write(tmp_path / "fit.json", **chosen), model)


def test_a_choice_that_lacks_something_is_an_error(model: Model, tmp_path: Path) -> None:
    (tmp_path / "fit.json").write_text(json.dumps({"version": 1, "chosen": {"recompute": []}}))
    with pytest.raises(ValueError, match="expected a list of paths as offload, found None"):
        stalloc.apply(tmp_path / "fit.json", model)


def test_offloaded_state_needs_an_optimizer(model: Model, tmp_path: Path) -> None:
    choice = write(tmp_path / "fit.json", offload_state=True, recompute=["layers.0"])
    with pytest.raises(ValueError, match=r"offloads the optimizer's state: call stalloc\.apply"):
        stalloc.apply(choice, model)
    with pytest.raises(ValueError, match=r"fit.json: expected an optimizer of torch.optim, found Model"):
        stalloc.apply(choice, model, model)
    assert type(model.layers[0]) is Layer
