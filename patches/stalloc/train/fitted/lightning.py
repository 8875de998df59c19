"""Lightning's micro-batches: the rows that its loaders of training batches take, and how many batches make a step.

What counts batches follows, so that an epoch has as many steps as before, and is validated after as many.
"""

from __future__ import annotations

import copy
import importlib
import weakref
from typing import Any, Callable

from stalloc.core import log
from stalloc.core.fit_files import Batch
from stalloc.train.patching import Function, argument

LIGHTNING = "lightning"
_COUNTS = ("limit_train_batches", "val_check_interval")  # of batches where they are whole numbers, else shares
_batches: weakref.WeakKeyDictionary[Any, tuple[Batch, Batch]] = weakref.WeakKeyDictionary()  # trainer: own, set


def loaders(original: Function, settled: Callable[[Batch], Batch]) -> Function:
    """Makes the trainer's loaders ready: each of several, and again in later epochs."""
    trainer_of, stage_of = argument(original, "trainer"), argument(original, "stage")

    def process(*args: Any, **kwargs: Any) -> Any:
        loader = original(*args, **kwargs)
        trainer = trainer_of(args, kwargs)
        rows = getattr(getattr(loader, "batch_sampler", None), "batch_size", None)
        if getattr(stage_of(args, kwargs), "value", None) != "train":
            return loader
        if not isinstance(rows, int) or not _accumulates(trainer):
            log.debug("the program sets the rows of a step: its loader, its scheduler or its own steps do")
            return loader
        if trainer not in _batches:
            own = Batch(LIGHTNING, rows, trainer.accumulate_grad_batches)
            _batches[trainer] = own, settled(own)
            _set(trainer, *_batches[trainer])
        own, new = _batches[trainer]
        return loader if new == own else _with_rows(loader, max(1, rows * new.micro_batch // own.micro_batch))

    return process


def _accumulates(trainer: Any) -> bool:
    """As many batches in every step as the trainer says."""
    scheduled = any("GradientAccumulationScheduler" in map(_name, type(each).__mro__) for each in trainer.callbacks)
    return trainer.lightning_module.automatic_optimization and not scheduled


def _set(trainer: Any, own: Batch, new: Batch) -> None:
    trainer.accumulate_grad_batches = new.accumulation
    for name in _COUNTS:
        count = getattr(trainer, name)
        if isinstance(count, int):
            setattr(trainer, name, -(-count * new.accumulation // own.accumulation))


def _with_rows(loader: Any, rows: int) -> Any:
    """A loader of the same data. The program's own stays: it may be used again."""
    new, sampler = copy.copy(loader), copy.copy(loader.batch_sampler)
    sampler.batch_size = rows
    for name, value in (("batch_sampler", sampler), ("batch_size", rows)):
        object.__setattr__(new, name, value)  # it refuses to be changed
    return new


def silent(original: Function, saves: Callable[[], bool]) -> Function:
    """Makes a trainer that writes no checkpoints and reports to nobody, unless it `saves`."""

    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        if saves():
            return
        root = original.__module__.partition(".trainer.")[0]
        loggers = importlib.import_module(f"{root}.loggers.logger")
        self.loggers = [loggers.DummyLogger() for _ in self.loggers]
        self.callbacks[:] = [each for each in self.callbacks if "Checkpoint" not in map(_name, type(each).__mro__)]
        self.save_checkpoint = lambda *_, **__: None

    return init


def _name(kind: type) -> str:
    return kind.__name__
