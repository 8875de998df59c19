"""`stalloc.apply`: exactly the chosen modules are recomputed, and nothing else about the model changes."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

import stalloc
from stalloc.fitting import settings

torch = pytest.importorskip("torch")


class Layer(torch.nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(8, 8)
        self.drop = torch.nn.Dropout(0.5)
        self.runs = 0

    def forward(self, x: Any, *, scale: float = 1.0) -> Any:
        self.runs += 1
        return x + scale * self.drop(self.linear(x).relu())


class Model(torch.nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(Layer() for _ in range(3))

    def forward(self, x: Any) -> Any:
        for layer in self.layers:
            x = layer(x, scale=0.5)
        return x.sum()


def write(path: Path, **chosen: Any) -> Path:
    every = {"recompute": [], "offload": [], "offload_state": False, "stores": False, **chosen}
    path.write_text(json.dumps({"version": 1, "chosen": every}))
    return path


def gradients(model: Any) -> list[Any]:
    torch.manual_seed(3)
    model(torch.ones(4, 8)).backward()
    return [parameter.grad.clone() for parameter in model.parameters()]


@pytest.fixture
def model() -> Model:
    torch.manual_seed(1)
    return Model()


def test_the_chosen_run_twice_and_the_same_numbers_come(model: Model, tmp_path: Path) -> None:
    expected = gradients(copy.deepcopy(model))
    changed = stalloc.apply(write(tmp_path / "fit.json", recompute=["layers.0", "layers.2"]), model)
    assert changed == ["layers.0", "layers.2"]
    for mine, theirs in zip(gradients(model), expected):
        assert torch.equal(mine, theirs), "dropout has another mask"
    assert [layer.runs for layer in model.layers] == [2, 1, 2]


def test_names_types_and_copies_stay(model: Model, tmp_path: Path) -> None:
    names = list(model.state_dict())
    stalloc.apply(write(tmp_path / "fit.json", recompute=["layers.1"]), model)
    assert list(model.state_dict()) == names
    assert isinstance(model.layers[1], Layer)
    assert type(model.layers[1]).__name__ == "Layer"
    copied = copy.deepcopy(model)
    gradients(copied)
    assert [layer.runs for layer in copied.layers] == [1, 2, 1]
    assert [layer.runs for layer in model.layers] == [0, 0, 0], "the copy runs its own"


def test_without_gradients_nothing_runs_twice(model: Model, tmp_path: Path) -> None:
    stalloc.apply(write(tmp_path / "fit.json", recompute=["layers.0"]), model)
    with torch.no_grad():
        model(torch.ones(4, 8))
    assert model.layers[0].runs == 1


def test_a_forward_of_the_module_s_own_is_wrapped_too(model: Model, tmp_path: Path) -> None:
    layer = model.layers[0]
    layer.forward = layer.forward
    stalloc.apply(write(tmp_path / "fit.json", recompute=["layers.0"]), model)
    gradients(model)
    assert layer.runs == 2


def test_wrapped_models_have_their_modules_under_the_plain_names(model: Model, tmp_path: Path) -> None:
    class Wrapper(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.module = model

    stalloc.apply(write(tmp_path / "fit.json", recompute=["layers.0"]), Wrapper())
    gradients(model)
    assert model.layers[0].runs == 2
    assert settings.module_path("DistributedDataParallel#2.module.layers.0._orig_mod.drop") == "layers.0.drop"


def test_a_module_that_is_not_there_is_an_error_and_nothing_changes(model: Model, tmp_path: Path) -> None:
    choice = write(tmp_path / "fit.json", recompute=["layers.0", "layers.7"])
    with pytest.raises(ValueError, match=r"fit.json: expected a module layers.7 in the model, found none"):
        stalloc.apply(choice, model)
    gradients(model)
    assert model.layers[0].runs == 1


def test_the_model_itself_is_no_path(model: Model, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="found an empty one"):
        stalloc.apply(write(tmp_path / "fit.json", recompute=[""]), model)


def test_another_file_is_an_error(model: Model, tmp_path: Path) -> None:
    (tmp_path / "other.json").write_text("{}")
    with pytest.raises(ValueError, match="expected a choice of stalloc fit"):
        stalloc.apply(tmp_path / "other.json", model)


def test_offloaded_activations_give_the_same_numbers(model: Model, tmp_path: Path) -> None:
    expected = gradients(copy.deepcopy(model))
    stalloc.apply(write(tmp_path / "fit.json", offload=["layers.1"]), model)
    assert all(torch.equal(mine, theirs) for mine, theirs in zip(gradients(model), expected))


def test_offloaded_state_needs_the_optimizer(model: Model, tmp_path: Path) -> None:
    choice = write(tmp_path / "fit.json", offload_state=True)
    with pytest.raises(ValueError, match="optimizer"):
        stalloc.apply(choice, model)
    optimizer = torch.optim.AdamW(model.parameters())
    stalloc.apply(choice, model, optimizer)
    gradients(model)
    optimizer.step()
    assert optimizer.state


def test_a_cache_of_keys_and_values_is_switched_off(model: Model, tmp_path: Path) -> None:
    class Config:
        use_cache = True

    model.config = Config()
    stalloc.apply(write(tmp_path / "fit.json", recompute=["layers.0"]), model)
    assert not model.config.use_cache


def test_megatron_s_arguments() -> None:
    layers = [f"decoder.layers.{i}" for i in range(8)] + [f"decoder.layers.{i}.mlp" for i in range(8)]
    chosen: dict[str, Any] = {"micro_batch": 2, "accumulation": 4, "offload": [], "offload_state": False}
    some = {**chosen, "recompute": [f"decoder.layers.{i}" for i in range(3)]}
    words = " ".join(settings.settings("megatron", some, layers)["arguments"])
    assert (
        words == "--micro-batch-size 2 --recompute-granularity full --recompute-method block --recompute-num-layers 3"
    )
    parts = {**chosen, "recompute": [f"decoder.layers.{i}.mlp" for i in range(8)], "offload_state": True}
    words = " ".join(settings.settings("megatron", parts, layers)["arguments"])
    assert "--recompute-granularity selective --recompute-modules mlp" in words
    assert words.endswith("--optimizer-cpu-offload")


def test_a_trainer_recomputes_all_layers_or_has_them_wrapped() -> None:
    layers = [f"model.layers.{i}" for i in range(4)]
    chosen: dict[str, Any] = {"micro_batch": 2, "accumulation": 4, "offload": [], "tokens_of_a_step": 1.0}
    every = settings.settings("trainer", {**chosen, "recompute": layers}, layers)
    assert every["arguments"]["gradient_checkpointing"] is True
    assert every["python"] == ""
    some = settings.settings("trainer", {**chosen, "recompute": layers[:2]}, layers)
    assert some["arguments"]["gradient_checkpointing"] is False
    assert "stalloc.apply" in some["python"]
