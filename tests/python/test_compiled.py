"""Programs that torch.compile compiles: with stalloc, as many graphs as without, and memory as in an eager run."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from processes import SCRIPTS, Training
from stalloc.train.marking.first_forward import FirstForward
from stalloc.train.marking.inputs import ModelInputs
from stalloc.train.marking.modules import ModuleMarks
from stalloc.train.marking.paths import ModulePaths

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.every_torch

WAYS = ("in place", "wrapped", "blocks", "function", "evaluated first")
MORE_WAYS = ("wrapped, evaluated first", "step", "reset", "a teacher first", "marked", "compiled autograd")
# Under Trace the trace ends within the run, and with it what only it needs; under Auto no planner is waited for.
MODES: dict[str, dict[str, str]] = {
    "Auto": {"STALLOC_TRACE_STEPS": "100"},
    "Trace": {"STALLOC_TRACE_STEPS": "4", "STALLOC_TRACE_MODULES": "1"},
    "Torch": {"STALLOC_LOG_STEPS": "0"},
}


def trained(training: Training, mode: str, way: str, **extra: str) -> dict[str, Any]:
    training.info = training.directory / f"{mode} {way}"  # no start is served from another's plan
    start = ("-m", "stalloc", "run") if mode else ()
    program = (*start, str(SCRIPTS / "compiled_ways.py"), way)
    done = training.start_plain(mode or None, *program, **extra).good()
    result: dict[str, Any] = json.loads(done.out)
    return result


@pytest.mark.parametrize("way", [*WAYS, *(pytest.param(way, marks=pytest.mark.slow) for way in MORE_WAYS)])
def test_torch_compiles_what_it_does_without(training: Training, way: str) -> None:
    plain = trained(training, "", way)
    assert plain["graphs"]
    for mode, extra in MODES.items():
        found = trained(training, mode, way, **extra)
        assert found["graphs"] == plain["graphs"], mode
        assert found["breaks"] <= plain["breaks"], mode
        assert found["losses"] == plain["losses"], mode


@pytest.mark.parametrize("way", ["in place", "a teacher first"])
def test_set_up_ends_before_the_first_forward_pass_of_a_compiled_model(training: Training, way: str) -> None:
    """Else its activations and gradients are in the arena, among the weights and the optimizer's state."""
    eager = trained(training, "Auto", "eager", **MODES["Auto"])["arena_bytes"]
    assert eager > 8 << 20
    assert trained(training, "Auto", way, **MODES["Auto"])["arena_bytes"] <= eager


class Seen:
    """A backend that notes when it compiles, and when what it has compiled runs."""

    def __init__(self) -> None:
        self.events: list[str] = []

    def __call__(self, graph: Any, _: Any) -> Any:
        self.events.append("compiles")

        def run(*args: Any) -> Any:
            self.events.append("runs")
            return graph.forward(*args)

        return run


@pytest.fixture
def seen() -> Iterator[Seen]:
    torch._dynamo.reset()
    yield Seen()
    torch._dynamo.reset()


def test_the_first_forward_pass_begins_before_its_graph_runs_and_no_hook_is_left(seen: Seen) -> None:
    watch = FirstForward(torch, lambda: seen.events.append("begins"))
    model = torch.nn.Linear(4, 4)
    model.compile(backend=seen)
    model.eval()
    with torch.no_grad():
        model(torch.ones(2, 4))
    assert seen.events == ["compiles", "runs"]
    assert not torch.nn.modules.module._global_forward_pre_hooks
    model.train()
    model(torch.ones(2, 4))
    model(torch.ones(2, 4))
    watch.remove()
    assert seen.events == ["compiles", "runs", "compiles", "begins", "runs", "runs"]


def test_what_makes_no_gradients_is_no_forward_pass(seen: Seen) -> None:
    watch = FirstForward(torch, lambda: seen.events.append("begins"))
    torch.compile(lambda x: x.tril() * 2, backend=seen)(torch.ones(4, 4))  # a mask
    assert seen.events == ["compiles", "runs"]
    watch.remove()
    torch.compile(torch.nn.Linear(4, 4), backend=seen)(torch.ones(2, 4))
    assert "begins" not in seen.events


def test_an_eager_model_is_seen_where_it_is_called(seen: Seen) -> None:
    watch = FirstForward(torch, lambda: seen.events.append("begins"))
    with torch.no_grad():
        torch.nn.Linear(4, 4)(torch.ones(2, 4))
    torch.nn.Linear(4, 4).eval()(torch.ones(2, 4))
    assert seen.events == []
    torch.nn.Linear(4, 4)(torch.ones(2, 4))
    torch.nn.Linear(4, 4)(torch.ones(2, 4))
    assert seen.events == ["begins"]
    watch.remove()


@pytest.mark.parametrize("compiled", [True, False])
def test_hooks_that_dynamo_has_seen_stay_and_do_nothing(seen: Seen, compiled: bool) -> None:
    module = torch.nn.modules.module
    told: list[str] = []
    inputs = ModelInputs(torch, ModulePaths(), lambda: True, lambda _, name: told.append(name))
    marks = ModuleMarks(lambda path, *_: told.append(path), None, torch.compiler.is_compiling)
    inputs.install()
    marks.install(torch)
    try:
        model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())
        if compiled:
            model.compile(backend=seen)
        model(torch.ones(2, 4))
        assert told
    finally:
        inputs.remove()
        marks.remove()
    told.clear()
    model(torch.ones(2, 4))
    assert told == []
    assert seen.events == (["compiles", "runs", "runs"] if compiled else [])
    assert bool(module._global_forward_pre_hooks) is compiled
    assert bool(module._global_forward_hooks) is compiled
    module._global_forward_pre_hooks.clear()
    module._global_forward_hooks.clear()
