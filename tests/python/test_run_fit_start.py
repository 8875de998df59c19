"""A start that gets what was chosen, and a trial: what they do to models, optimizers and frameworks' micro-batches."""

from __future__ import annotations

import importlib
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Callable

import pytest

from stalloc.core import fit_files
from stalloc.core.fit_files import Batch, Choice, Model, Trial

torch: Any = pytest.importorskip("torch")

from applied_models import Model as Layers  # noqa: E402
from stalloc.tools.commands import run_fit  # noqa: E402
from stalloc.train import lifetime  # noqa: E402
from stalloc.train.changes.applied import ApplyError  # noqa: E402
from stalloc.train.fitted import batches, lightning, models, start, trial  # noqa: E402

PARAMETERS = models.parameters(Layers())


@pytest.fixture(autouse=True)
def unwatched(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What is patched in torch goes again, and no framework is there."""
    monkeypatch.setattr(torch, "compile", torch.compile)
    monkeypatch.setattr(torch.nn.Module, "compile", torch.nn.Module.compile)
    monkeypatch.setattr(models, "_WRAPPERS", {})
    monkeypatch.setattr(batches, "PATCHERS", ())
    monkeypatch.setattr(batches, "_settle", None)
    monkeypatch.setattr(batches, "_saves", True)
    yield
    importlib.import_module("torch.optim.optimizer")._global_optimizer_pre_hooks.clear()


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Callable[..., start.Start]]:
    made: list[start.Start] = []

    def begin(*chosen: Model, state: bool = False, own: Any = None, batch: Any = None) -> start.Start:
        file = tmp_path / "choice.json"
        file.write_text("{}")
        made.append(start.Start(Choice(file, chosen, state, own, batch), torch))
        return made[-1]

    yield begin
    for each in made:
        if each._models is not None:
            each._models.stop()


def chosen(*recompute: str, parameters: int = PARAMETERS) -> Model:
    return Model("Model", parameters, "Model", recompute)


def runs_of_a_step(model: Any) -> list[int]:
    """Of each layer, forward and for the backward pass."""
    for layer in model.layers:
        layer.runs = 0
    model(torch.randn(2, 8)).backward()
    return [layer.runs for layer in model.layers]


def test_chosen_modules_are_recomputed_from_the_first_pass_on(started: Callable[..., start.Start]) -> None:
    begun = started(chosen("layers.1"), chosen("layers.0", "layers.2"))
    first, second = Layers(), Layers()
    assert runs_of_a_step(first) == [1, 2, 1]
    assert runs_of_a_step(second) == [2, 1, 2], "the second of a kind has the second part of the choice"
    for i in range(3):
        begun.iteration_finished(i)
    assert runs_of_a_step(Layers()) == [1, 1, 1], "what comes later is not looked at"


def test_a_model_itself_can_be_chosen(started: Callable[..., start.Start]) -> None:
    started(chosen(fit_files.ITSELF))
    assert runs_of_a_step(Layers()) == [2, 2, 2]


@pytest.mark.parametrize(
    ("of", "said"),
    [
        (chosen("layers.1", parameters=7), f"expected Model with 7 parameters, found Model with {PARAMETERS}"),
        (chosen("layers.9"), "expected a module layers.9 in the model, found none"),
    ],
)
def test_another_model_is_an_error_and_the_choice_goes(
    started: Callable[..., start.Start], tmp_path: Path, of: Model, said: str
) -> None:
    started(of)
    with pytest.raises(ApplyError, match=said) as error:
        Layers()(torch.randn(2, 8))
    assert str(tmp_path / "choice.json") in str(error.value)
    assert not (tmp_path / "choice.json").exists()


def test_a_model_that_never_trains_is_an_error(started: Callable[..., start.Start]) -> None:
    begun = started(chosen("layers.1"))
    begun.iteration_finished(0)
    with pytest.raises(ApplyError, match=f"expected Model with {PARAMETERS} parameters to train"):
        begun.iteration_finished(1)


def test_micro_batches_are_set_once_where_they_are_those_that_were_traced(started: Callable[..., start.Start]) -> None:
    own, new = Batch("trainer", 8, 1), Batch("trainer", 2, 4)
    begun = started(own=own, batch=new)
    assert batches._settled(own) == new
    assert batches._settled(Batch("trainer", 3, 1)) == Batch("trainer", 3, 1), "another Trainer keeps its own"
    for i in range(2):
        begun.iteration_finished(i)
    started(own=own, batch=new)
    with pytest.raises(ApplyError, match="expected trainer: micro-batches of 8, 1 a step, found trainer: micro-batch"):
        batches._settled(Batch("trainer", 4, 2))
    missing = started(own=own, batch=new)
    missing.iteration_finished(0)
    with pytest.raises(ApplyError, match="expected trainer to make its micro-batches, found none"):
        missing.iteration_finished(1)


def test_an_optimizer_s_state_is_offloaded_with_its_first_step(started: Callable[..., start.Start]) -> None:
    started(state=True)
    weight = torch.nn.Parameter(torch.ones(4))
    optimizer = torch.optim.Adam([weight])
    weight.grad = torch.ones(4)
    for _ in range(2):
        optimizer.step()
        assert len(optimizer._optimizer_step_post_hooks) == 1


@pytest.mark.parametrize(("unplanned", "said"), [(41 << 20, True), (40 << 20, False)])
def test_a_choice_says_what_is_held_before_its_plan(
    unplanned: int, said: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    run_fit._say_unplanned({"predicted": {"held_bytes": {"expandable": unplanned}}, "memory_bytes": 40 << 20})
    assert ("PyTorch's allocator is predicted to hold 41.00 MiB" in capfd.readouterr().err) is said


# -- Frameworks


def test_a_trainer_s_arguments_are_set_before_it_is_made() -> None:
    arguments = SimpleNamespace(per_device_train_batch_size=8, gradient_accumulation_steps=2, save_strategy="steps")

    def init(self: Any, model: Any = None, args: Any = None) -> None:
        self.rows = args and args.per_device_train_batch_size

    wrapped, trainer = batches._trainer(init), SimpleNamespace()
    batches.watch(lambda own: Batch(own.framework, 4, 4), saves=False)
    wrapped(trainer, None, arguments)
    assert (trainer.rows, arguments.gradient_accumulation_steps, arguments.save_strategy) == (4, 4, "no")
    wrapped(trainer, "model")
    sharded = SimpleNamespace(per_device_train_batch_size=8, gradient_accumulation_steps=2, deepspeed="zero3.json")
    batches.watch(lambda own: Batch(own.framework, 4, 4))
    wrapped(trainer, None, sharded)
    assert trainer.rows == 8


class LightningTrainer:
    """What Lightning's has of it."""

    def __init__(self, accumulated: int = 1, *callbacks: Any, automatic: bool = True) -> None:
        self.accumulate_grad_batches = accumulated
        self.limit_train_batches, self.val_check_interval = 5, 0.5
        self.callbacks, self.loggers = list(callbacks), ["logger"]
        self.lightning_module = SimpleNamespace(automatic_optimization=automatic)


def ready(trainer: Any, stage: str, loader: Any) -> Any:
    """The loader, as Lightning gets it."""

    def process(trainer: Any, trainer_fn: Any, stage: Any, dataloader: Any) -> Any:
        return dataloader

    return lightning.loaders(process, batches._settled)(trainer, None, SimpleNamespace(value=stage), loader)


def loader_of(rows: int) -> Any:
    data = torch.utils.data.TensorDataset(torch.arange(8))
    return torch.utils.data.DataLoader(data, batch_size=rows)


def test_lightning_s_loaders_take_fewer_rows() -> None:
    """Each of several, and those of later epochs. What counts batches follows."""
    trainer = LightningTrainer()
    batches.watch(lambda own: Batch(own.framework, own.micro_batch // 2, own.accumulation * 2))
    loader = loader_of(4)
    assert ready(trainer, "validate", loader) is loader
    first, again, beside = (ready(trainer, "train", loader_of(rows)) for rows in (4, 4, 8))
    assert trainer.accumulate_grad_batches == 2
    assert (trainer.limit_train_batches, trainer.val_check_interval) == (10, 0.5)
    assert [each.batch_size for each in (first, again, beside)] == [2, 2, 4]
    assert [len(batch[0]) for batch in first] == [2, 2, 2, 2]
    assert len(first) == 4
    assert ready(trainer, "train", loader).batch_size == 2
    assert [len(batch[0]) for batch in loader] == [4, 4], "the program's own may be used again"
    second = LightningTrainer()
    assert ready(second, "train", loader) is loader, "another trainer keeps its own"
    assert second.accumulate_grad_batches == 1


def test_steps_that_lightning_does_not_make_stay_as_they_are() -> None:
    class GradientAccumulationScheduler:
        pass

    class Own(GradientAccumulationScheduler):
        pass

    batches.watch(lambda own: Batch(own.framework, 2, 2))
    loader = loader_of(4)
    for trainer in (LightningTrainer(automatic=False), LightningTrainer(1, Own())):
        assert ready(trainer, "train", loader) is loader
        assert trainer.accumulate_grad_batches == 1
    sizes = torch.utils.data.DataLoader(loader.dataset, batch_sampler=[[0], [1, 2]])
    assert ready(LightningTrainer(), "train", sizes) is sizes


@pytest.mark.parametrize("saves", [True, False])
def test_a_trial_s_lightning_writes_and_reports_nothing(saves: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    class Checkpoint:
        pass

    class ModelCheckpoint(Checkpoint):
        pass

    def init(self: Any) -> None:
        LightningTrainer.__init__(self, 1, ModelCheckpoint(), "progress")
        self.save_checkpoint = None

    loggers = types.ModuleType("lightning.pytorch.loggers.logger")
    loggers.DummyLogger = lambda: "dummy"  # type: ignore[attr-defined]
    for module in ("lightning", "lightning.pytorch", "lightning.pytorch.loggers"):
        monkeypatch.setitem(sys.modules, module, types.ModuleType(module))
    monkeypatch.setitem(sys.modules, loggers.__name__, loggers)
    init.__module__ = "lightning.pytorch.trainer.trainer"
    trainer = LightningTrainer()
    lightning.silent(init, lambda: saves)(trainer)
    assert trainer.loggers == (["logger"] if saves else ["dummy"])
    assert len(trainer.callbacks) == (2 if saves else 1)
    assert callable(trainer.save_checkpoint) is not saves  # type: ignore[attr-defined]


@pytest.mark.parametrize(("step", "own"), [(None, 1), (64, 4)])
def test_megatron_s_global_batch_stays(step: Any, own: int) -> None:
    """8 ranks of 2 x 2 make 2 replicas."""
    sizes = {"tensor_model_parallel_size": 2, "pipeline_model_parallel_size": 2, "context_parallel_size": 1}
    arguments = SimpleNamespace(micro_batch_size=8, global_batch_size=step, world_size=8, **sizes)
    seen: list[Batch] = []

    def settle(batch: Batch) -> Batch:
        seen.append(batch)
        return Batch("megatron", 2, 4 * batch.accumulation)

    batches.watch(settle)
    validate = batches._megatron(lambda args, defaults: None)
    validate(arguments, {})
    assert seen == [Batch("megatron", 8, own)]
    assert (arguments.micro_batch_size, arguments.global_batch_size) == (2, step or 16)
    growing = SimpleNamespace(micro_batch_size=8, global_batch_size=None, step_batch_size_schedule="0:8", save="here")
    batches.watch(settle, saves=False)
    validate(growing, {})
    assert (growing.micro_batch_size, growing.save) == (8, None)


# -- A trial


@pytest.fixture
def tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Trial], trial.Trial]]:
    monkeypatch.setattr(trial, "_die_with_parent", lambda: None)
    monkeypatch.setattr(trial.atexit, "register", lambda call: call)
    monkeypatch.setattr(lifetime, "_before_the_end", [])
    made: list[trial.Trial] = []

    def begin(order: Trial) -> trial.Trial:
        made.append(trial.Trial(order, tmp_path / "notes.json", torch, None))
        return made[-1]

    yield begin
    for each in reversed(made):
        if each._models is not None:
            each._models.stop()


def noted(begun: trial.Trial) -> fit_files.Notes:
    notes = fit_files.read_notes(begun._path)
    assert notes is not None
    return notes


@pytest.mark.parametrize(
    ("order", "own", "new"),
    [
        (Trial(9, 4, 2), Batch("trainer", 16, 1), Batch("trainer", 4, 2)),
        (Trial(9, 4, 2), Batch("trainer", 16, 8), Batch("trainer", 4, 2)),
        (Trial(9, 4, 2), Batch("trainer", 6, 1), Batch("trainer", 2, 2)),
        (Trial(9, 16, 1), Batch("trainer", 6, 1), Batch("trainer", 1, 2)),
        (Trial(9, 4, 2), Batch("trainer", 1, 1), Batch("trainer", 1, 1)),
        (Trial(9, rows=8), Batch("trainer", 16, 1), Batch("trainer", 8, 2)),
    ],
)
def test_a_trial_has_fewer_rows(tried: Callable[[Trial], trial.Trial], order: Trial, own: Batch, new: Batch) -> None:
    begun = tried(order)
    assert batches._settled(own) == new
    notes = noted(begun)
    assert (notes.own, notes.traced, notes.ended) == (own, new, fit_files.RUNS)


@pytest.mark.parametrize(
    ("error", "iterations", "ended"),
    [
        (None, 0, fit_files.FINISHED),
        (None, 2, fit_files.FINISHED),
        (torch.OutOfMemoryError("CUDA out of memory"), 0, fit_files.OUT_OF_MEMORY),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory"), 1, fit_files.OUT_OF_MEMORY),
        (RuntimeError("no"), 1, fit_files.FAILED),
    ],
)
def test_a_trial_notes_how_it_ended(
    tried: Callable[[Trial], trial.Trial], monkeypatch: pytest.MonkeyPatch, error: Any, iterations: int, ended: str
) -> None:
    begun = tried(Trial(9, 4, 2))
    batches._settled(Batch("trainer", 16, 1))
    model = Layers()
    model(torch.randn(2, 8)).backward()
    for i in range(iterations):
        begun.iteration_finished(i)
    monkeypatch.setattr(sys, "last_value", error, raising=False)
    begun._end()
    notes = noted(begun)
    assert (notes.ended, notes.iterations, notes.rows) == (ended, iterations, 2)
    assert [(each.kind, each.parameters) for each in notes.models] == [("Model", PARAMETERS)]
    assert str(Path(__file__).resolve()) in notes.sources


def test_a_process_that_only_starts_others_says_nothing_of_them(tried: Callable[[Trial], trial.Trial]) -> None:
    worker, parent = tried(Trial(9)), tried(Trial(9))
    worker.iteration_finished(0)
    worker._end()
    parent._end()
    assert noted(parent).iterations == 1
