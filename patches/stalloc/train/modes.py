"""What each mode has in this process: a library, where marks go, and who observes the iterations."""

from __future__ import annotations

import dataclasses
import importlib
import os
import sys
from collections.abc import Iterator
from typing import Any, Callable, Optional

from stalloc.core import config as config_
from stalloc.core import coordinates
from stalloc.core.config import Config
from stalloc.core.library import Library
from stalloc.train import iteration_lines, placing, process, scalars, started, strict, trace_place
from stalloc.train.auto.auto import Auto
from stalloc.train.marking import device_times, nvtx
from stalloc.train.marking.marks import BEGIN, ITERATION, MarkSink
from stalloc.train.marking.tracing import Tracing

Observer = Callable[[int], object]  # called with the index of each iteration that is over


def _ignore(*_: object) -> None:
    """Where marks go in mode Torch."""


@dataclasses.dataclass(frozen=True)
class Parts:
    """The parts of a session. `observers` are called in order; `library` is None in mode Torch."""

    observers: list[Observer]
    mark: MarkSink = _ignore
    library: Optional[Library] = None
    tracing: Optional[Tracing] = None
    auto: Optional[Auto] = None
    fake: Optional[Any] = None


def build(config: Config, to_the_end: bool) -> Optional[Parts]:
    """The parts of the mode. None: no adapter for this torch; already reported. Raises what install.activate does."""
    if config.mode == config_.TRACE:
        return _trace(config, importlib.import_module("torch"), to_the_end)
    if config.mode == config_.ALLOC:
        return _alloc(config, importlib.import_module("torch"))
    if config.mode == config_.AUTO:
        return _auto(config, importlib.import_module("torch"))
    return _torch(config)


def _torch(config: Config) -> Parts:
    """torch may come later."""
    lines = _lines(config, iteration_lines.torch_report(), 1)
    return Parts([*lines, *_scalars(config, _torch_figures), _claimed_with(config.rank, None)])


def _trace(config: Config, torch: Any, to_the_end: bool) -> Optional[Parts]:
    trace_place.require(os.environ.get("STALLOC_MODEL_INFO_PATH", ""), config.rank or "0")
    fake = placing.fake_run(config, torch) if config.trace_fake else None
    library = placing.install_or_go_on(config, torch) if fake is None else fake.library
    if library is None:
        return None
    observers = _figures(config, library)
    tracing = Tracing(config, library, torch, None if fake is None else fake.address)
    observers += [tracing.iteration_finished, _claimed_with(config.rank, library)]
    mark: MarkSink = library.mark
    if fake is not None:
        mark = fake.in_order(mark)
        observers += [fake.leaver(tracing)] if to_the_end else []
    elif config.trace_times:
        mark = device_times.after_the_device(mark, torch, lambda: tracing.running)
    return Parts(observers, _with_ranges(config, mark, torch), library, tracing, fake=fake)


def _alloc(config: Config, torch: Any) -> Optional[Parts]:
    placing.find_plan(config.rank)
    library = placing.install_or_go_on(config, torch)
    if library is None:
        return None
    mark: MarkSink = library.mark
    if config.strict:
        mark = strict.checked(mark, (ITERATION, BEGIN), library.stats, _plan_of(config.rank))
    observers = [*_figures(config, library), _claimed_with(config.rank, library)]
    return Parts(observers, _with_ranges(config, mark, torch), library)


def _auto(config: Config, torch: Any) -> Optional[Parts]:
    library, auto = placing.install_auto(config, torch)
    if library is None or auto is None:
        return None
    observers = [*_figures(config, library), auto.iteration_finished, _claimed_with(config.rank, library)]
    return Parts(observers, _with_ranges(config, library.mark, torch), library, auto=auto)


def _figures(config: Config, library: Library) -> list[Observer]:
    lines = _lines(config, iteration_lines.stats_report(library.stats), 1 if config.log_level == "debug" else 0)
    return [*lines, *_scalars(config, lambda: scalars.of_stats(library.stats()))]


def _lines(config: Config, report: Callable[[int], None], steps: int) -> list[Observer]:
    """The line of figures, after as many iterations as STALLOC_LOG_STEPS says, else `steps`; 0: never."""
    steps = steps if config.log_steps is None else config.log_steps
    return [iteration_lines.every(steps, iteration_lines.harmless(report))] if steps else []


def _scalars(config: Config, figures: scalars.Figures) -> list[Observer]:
    if not config.tensorboard:
        return []
    scalars.require()
    return [iteration_lines.harmless(scalars.report(config.tensorboard, config.rank, figures))]


def _with_ranges(config: Config, mark: MarkSink, torch: Any) -> MarkSink:
    return nvtx.together_with(mark, torch) if config.nvtx else mark


def _torch_figures() -> Iterator[tuple[str, float]]:
    return scalars.of_torch(sys.modules["torch"])


def _claimed_with(rank: str, library: Optional[Library]) -> Observer:
    """The rank is this process's from its first iteration on; before, for whom it starts when it has allocated."""

    def has_allocated() -> bool:
        return library is not None and any(device.get("requests") for device in library.stats().get("devices", []))

    return started.claims(lambda: process.claim(rank), None if library is None else has_allocated)


def _plan_of(rank: str) -> str:
    rank = os.environ.get(coordinates.PLAN_RANK) or rank or "0"
    return f"{os.environ['STALLOC_MODEL_INFO_PATH']}/output/plan/rank{int(rank):05d}.plan"
