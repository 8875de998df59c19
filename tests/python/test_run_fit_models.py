"""Models that train, found before they are compiled, sharded or wrapped."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from stalloc.core import fit_files
from stalloc.core.fit_files import Batch, Choice, Model, Notes, Trial
from stalloc.tools.fitted.making import Tried, _halves, _models, _whole
from stalloc.tools.fitted.trials import TrialError, Trials

torch: Any = pytest.importorskip("torch")

import applied_models  # noqa: E402
from stalloc.train.fitted import models  # noqa: E402

Layer, Quiet, Layers = applied_models.Layer, applied_models.Quiet, applied_models.Model


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """Models, in the order in which they were found."""
    monkeypatch.setattr(torch, "compile", torch.compile)
    monkeypatch.setattr(torch.nn.Module, "compile", torch.nn.Module.compile)
    distributed = torch.nn.parallel.DistributedDataParallel
    monkeypatch.setattr(distributed, "__init__", distributed.__init__)
    seen: list[Any] = []
    watched = models.Models(torch, seen.append)
    yield seen
    watched.stop()


def test_a_model_is_found_once_at_its_first_forward_pass(found: list[Any]) -> None:
    model, other = Layers(), Layers()
    with torch.no_grad():
        model(torch.randn(2, 8))
    model.eval()(torch.randn(2, 8))
    assert found == [], "it does not train"
    for _ in range(2):
        model.train()(torch.randn(2, 8)).backward()
        other(torch.randn(2, 8))
    assert found == [model, other]


@pytest.mark.filterwarnings("ignore:The .grad attribute")
@pytest.mark.filterwarnings("ignore:Using .torch.compile.module..:UserWarning")  # where another test has left a hook
@pytest.mark.parametrize(
    "compiles",
    [
        lambda model: torch.compile(model, backend="eager"),
        lambda model: model.compile(backend="eager"),
        lambda model: model.layers[1].compile(backend="eager"),
        lambda model: torch.compile(model.layers[1], backend="eager"),
        lambda model: torch.compile(lambda x: model(x).sum(), backend="eager"),
    ],
    ids=["model", "in place", "part in place", "part", "function"],
)
def test_a_model_is_found_when_it_or_a_part_is_compiled(found: list[Any], compiles: Callable[[Any], Any]) -> None:
    model = Layers(Quiet)
    compiled = compiles(model)
    assert [each for each in found if each is model] == [model]
    (model if compiled is None else compiled)(torch.randn(2, 8))
    assert [each for each in found if each is model] == [model]


def test_a_wrapper_is_no_model_of_its_own(found: list[Any]) -> None:
    wrapped = torch.nn.Sequential()
    wrapped.module = model = Layers()
    model(torch.randn(2, 8))
    wrapped.forward = model.forward
    wrapped(torch.randn(2, 8))
    assert found == [model]


def test_what_is_made_in_a_forward_pass_is_part_of_it(found: list[Any]) -> None:
    class Made(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return torch.nn.Linear(8, 8)(x).sum()

    made = Made()
    made(torch.randn(2, 8))
    assert found == [made]


def test_rows_are_those_of_the_first_tensor() -> None:
    assert models.first_rows([None, torch.tensor(1), torch.zeros(7, 3)]) == 7
    assert models.first_rows([]) is None
    assert models.parameters(Layer()) == 72


# -- What is told


def test_a_module_is_of_the_innermost_model_that_has_it() -> None:
    traced = [Model("Block", 1, "Net.blocks.0"), Model("Net", 2, "Net"), Model("Net", 2), Model("Net", 2, "Net#2")]
    names = {"recompute": ["Net.blocks.0", "Net.blocks.1", "Net#2.head"], "offload": ["Net.blocks.0.up"]}
    given = [(model.recompute, model.offload) for model in _models(traced, names)]
    assert given == [((".",), ("up",)), (("blocks.1",), ()), ((), ()), (("head",), ())]


def test_stages_of_a_pipeline_are_refused(tmp_path: Path) -> None:
    """And whatever else has ranks of different models."""

    def stage(first_layer: int, further: int = 0) -> Notes:
        module = torch.nn.ModuleDict({str(first_layer): Layer()})
        model = Model("Stage", models.parameters(module) + further, "Stage")
        return Notes(models=[model], modules=[models.modules(module)], iterations=9, ended=fit_files.TRACED)

    trials = Trials(["train.py"], tmp_path, {"WORLD_SIZE": "2"}, "cpu")
    assert _whole(trials, Tried(tmp_path, [stage(0), stage(0)])).notes
    for other in (stage(1), stage(0, further=1)):
        with pytest.raises(TrialError, match="the ranks train different models, as stages of a pipeline: use stalloc"):
            _whole(trials, Tried(tmp_path, [stage(0), other]))


def test_halves_divide_the_rows() -> None:
    assert list(_halves(12)) == [6, 3, 1]
    assert list(_halves(7)) == [1]
    assert list(_halves(1)) == []


def test_files_are_read_as_they_were_written(tmp_path: Path) -> None:
    trial = Trial(9, 4, 2)
    fit_files.write_trial(tmp_path / "order.json", trial)
    assert fit_files.read(tmp_path / "order.json") == trial
    notes = Notes(
        Batch("trainer", 8, 1), Batch("trainer", 2, 2), [Model("Net", 3, "Net")], 2, {"a.py": "0"}, 9, "traced"
    )
    path = fit_files.notes_path(tmp_path, 3)
    assert fit_files.read_notes(path) is None
    fit_files.write_notes(path, notes)
    assert fit_files.read_notes(path) == notes
    content = {
        "version": 1,
        "chosen": {"offload_state": True},
        "automatic": {
            "models": [{"kind": "Net", "parameters": 3, "traced_as": None, "recompute": ["a"], "offload": []}],
            "own": {"framework": "trainer", "micro_batch": 8, "accumulation": 1},
            "batch": None,
        },
    }
    choice = tmp_path / "choice.json"
    choice.write_text(json.dumps(content))
    model = Model("Net", 3, recompute=("a",))
    assert fit_files.read(choice) == Choice(choice, (model,), True, Batch("trainer", 8, 1), None)
    choice.write_text(json.dumps({"version": 1, "chosen": {}}))
    with pytest.raises(ValueError, match=r"choice.json: expected a choice of .* version 1, found no auto"):
        fit_files.read(choice)
