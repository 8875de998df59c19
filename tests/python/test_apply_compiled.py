"""Models that are compiled after `stalloc.apply`: alike blocks have one graph, and nothing is left out of graphs that
torch can compile."""

from __future__ import annotations

import copy
import functools
from pathlib import Path
from typing import Any

import pytest

import stalloc

torch = pytest.importorskip("torch")

from applied_models import Counting, Layer, Model, Quiet, gradients, same, write  # noqa: E402
from stalloc.train.changes import recompute  # noqa: E402

# Where a graph has ended torch looks at the gradients of what it hands on.
pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning")
BLOCKS = 14  # more than the recompilations that torch allows
NAMES = [f"layers.{i}" for i in range(BLOCKS)]


@pytest.fixture(autouse=True)
def _nothing_compiled() -> None:
    torch._dynamo.reset()


def own_forward(module: Any, *args: Any, **kwargs: Any) -> Any:
    return Quiet.forward(module, *args, **kwargs)


def with_own_forward() -> Quiet:
    """As accelerate leaves a module."""
    layer = Quiet()
    layer.forward = functools.partial(own_forward, layer)  # type: ignore[method-assign]
    return layer


def x() -> Any:
    return torch.ones(4, 8, requires_grad=True)


@pytest.mark.parametrize("chosen", [{"recompute": NAMES}, {"offload": NAMES}, {"recompute": NAMES, "offload": NAMES}])
@pytest.mark.parametrize("kind", [Quiet, with_own_forward])
@pytest.mark.parametrize("whole", [False, True])
def test_alike_blocks_are_one_graph(tmp_path: Path, chosen: Any, kind: Any, whole: bool) -> None:
    model = Model(kind, BLOCKS)
    expected = gradients(copy.deepcopy(model), x())
    stalloc.apply(write(tmp_path / "fit.json", **chosen), model)
    backend = Counting()
    for module in [model] if whole else model.layers:
        module.compile(backend=backend)
    assert same(gradients(model, x()), expected)
    one = whole and "offload" not in chosen  # what is offloaded cannot be inside a graph
    assert (backend.graphs, backend.calls) == ((1, 1) if one else (1, BLOCKS))


@pytest.mark.parametrize("devices", [(), ("cpu", "cpu")])
def test_recomputed_blocks_can_be_one_graph_without_breaks(
    tmp_path: Path, devices: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the random state of devices is kept: torch's checkpoint knows the host's by itself."""
    known = torch.compiler.assume_constant_result(lambda: tuple(map(torch.device, devices)))
    monkeypatch.setattr(recompute, "devices_in_use", known)
    model = Model(Quiet, BLOCKS)
    stalloc.apply(write(tmp_path / "fit.json", recompute=NAMES), model)
    backend = Counting()
    gradients(torch.compile(model, backend=backend, fullgraph=True), x())
    assert (backend.graphs, backend.calls) == (1, 1)


@pytest.mark.parametrize("chosen", [{"recompute": NAMES}, {"offload": NAMES}])
def test_where_a_graph_breaks_the_rest_is_as_without(tmp_path: Path, chosen: Any) -> None:
    """A Layer calls what torch.compile leaves out."""
    model = Model(Layer, BLOCKS)
    expected = gradients(copy.deepcopy(model), x())
    stalloc.apply(write(tmp_path / "fit.json", **chosen), model)
    backend = Counting()
    model.compile(backend=backend)
    assert same(gradients(model, x()), expected)
    assert {layer.runs for layer in model.layers} == {2 if "recompute" in chosen else 1}


def test_compiled_forwards_stay_one_graph_where_some_are_recomputed(tmp_path: Path) -> None:
    """As bench/worth's FSDP2 has them: each is recomputed as a whole."""
    model = Model(Quiet, BLOCKS)
    expected = gradients(copy.deepcopy(model), x())
    backend = Counting()
    for block in model.layers:
        block.forward = torch.compile(block.forward, backend=backend)
    stalloc.apply(write(tmp_path / "fit.json", recompute=NAMES[:5]), model)
    assert same(gradients(model, x()), expected)
    assert (backend.graphs, backend.calls) == (1, BLOCKS + 5)
