"""Keys and values for later calls are left out of what trains, by an argument: nobody's configuration changes.

The stand-ins decide as transformers' models do: by the argument `use_cache`, else by the configuration."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Optional

import pytest

import stalloc

torch = pytest.importorskip("torch")

from applied_models import Counting, write  # noqa: E402


class Layer(torch.nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, x: Any, cache: Optional[list[Any]] = None) -> Any:
        x = self.linear(x)
        if cache is not None:
            cache.append(x)
        return x.sin()


class Body(torch.nn.Module):  # type: ignore[misc]
    def __init__(self, config: Any) -> None:
        super().__init__()
        self.config = config
        self.layer = Layer()

    def forward(self, x: Any, use_cache: Optional[bool] = None) -> Any:
        use_cache = self.config.use_cache if use_cache is None else use_cache
        cache: Optional[list[Any]] = [] if use_cache else None
        return self.layer(x, cache), cache


class Headed(torch.nn.Module):  # type: ignore[misc]
    """Hands the argument on; asked for by position, or by keyword alone."""

    def __init__(self) -> None:
        super().__init__()
        self.config = SimpleNamespace(use_cache=True)
        self.body = Body(self.config)

    def forward(self, x: Any, *, use_cache: Optional[bool] = None) -> Any:
        return self.body(x, use_cache)


@pytest.fixture
def model(tmp_path: Path) -> Headed:
    made = Headed()
    stalloc.apply(write(tmp_path / "fit.json", recompute=["body.layer"]), made)
    return made


X = torch.ones(2, 4)


def test_what_trains_has_no_cache_and_the_configuration_stays(model: Headed) -> None:
    for given in ({}, {"use_cache": None}, {"use_cache": False}, {"use_cache": True}):
        out, cache = model(X, **given)
        assert cache is None, given
        out.sum().backward()
        assert model.config.use_cache is True


@pytest.mark.parametrize("given", [(), (None,), (True,)])
def test_an_argument_by_its_place_is_replaced(model: Headed, given: Any) -> None:
    assert model.body(X, *given)[1] is None


def test_what_makes_no_gradients_has_its_cache(model: Headed) -> None:
    with torch.no_grad():
        assert len(model(X)[1]) == 1
        assert len(model.eval()(X)[1]) == 1
        model.config.use_cache = False
        assert model(X)[1] is None


def test_one_that_does_not_train_has_what_it_asks_for(model: Headed) -> None:
    model.eval()
    assert model(X)[1] is None
    assert len(model(X, use_cache=True)[1]) == 1


def test_a_model_that_is_only_offloaded_keeps_its_cache(tmp_path: Path) -> None:
    model = Headed()
    stalloc.apply(write(tmp_path / "fit.json", offload=["body.layer"]), model)
    assert len(model(X)[1]) == 1


def test_copies_and_a_second_time(model: Headed, tmp_path: Path) -> None:
    stalloc.apply(tmp_path / "fit.json", model)
    assert len(model._forward_pre_hooks) == len(model.body._forward_pre_hooks) == 1
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert twin(X)[1] is None
        assert twin.config.use_cache is True


def test_a_model_without_the_argument_keeps_its_cache(tmp_path: Path) -> None:
    """Nothing could tell it otherwise for a while: the configuration is everybody's."""

    class Own(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.config = SimpleNamespace(use_cache=True)
            self.layer = Layer()

        def forward(self, x: Any) -> Any:
            return self.layer(x), self.config.use_cache

    model = Own()
    stalloc.apply(write(tmp_path / "fit.json", recompute=["layer"]), model)
    assert model(X)[1] is True


def test_it_compiles_whole(model: Headed) -> None:
    torch._dynamo.reset()
    backend = Counting()
    out, cache = torch.compile(model, backend=backend, fullgraph=True)(X)
    out.sum().backward()
    assert cache is None
    assert backend.graphs == 1
