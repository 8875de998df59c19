"""Megatron's targets with the wrappers of their roles."""

from __future__ import annotations

import importlib

from stalloc._core._patching import Patcher
from stalloc.megatron import _configuration, _graphs, _lengths, _loading, _moe, _ranks, _report, _schedule, _step
from stalloc.megatron._loop import LOOP
from stalloc.megatron._targets import TARGETS


def version() -> str:
    """megatron-core's. Read from its own file, which is there before any of the targets."""
    try:
        return str(importlib.import_module("megatron.core.package_info").__version__)
    except ImportError:
        return "of unknown version"


def before_first_step() -> None:
    PATCHER.warn_of_missing_modules()
    _ranks.note_coordinates()
    _configuration.note_arguments()


_LOADED = _loading.LoadedState()
PATCHER: Patcher = Patcher(
    "megatron-core",
    TARGETS,
    {
        "iteration": lambda original: _step.iteration(original, LOOP, before_first_step),
        "evaluation": lambda original: _step.fenced(original, LOOP, "eval"),
        "save": lambda original: _step.fenced(original, LOOP, "save"),
        "load": lambda original: _loading.loading(original, _LOADED),
        "optimizer": lambda original: _step.optimizer(original, LOOP),
        "optimizer state": lambda original: _loading.optimizer_state(original, _LOADED),
        "memory report": _report.memory_report,
        "forward only": lambda original: _schedule.whole(original, LOOP),
        "forward": lambda original: _schedule.forward(original, LOOP),
        "backward": lambda original: _schedule.backward(original, LOOP),
        "forward and backward": lambda original: _schedule.combined(original, LOOP),
        "weight gradients": lambda original: _schedule.weight_gradients(original, LOOP),
        "lengths": lambda original: _lengths.model(original, LOOP),
        "MoE layer": lambda original: _moe.layer(original, LOOP),
        "MoE route": lambda original: _moe.step(original, LOOP, "route"),
        "MoE dispatch": lambda original: _moe.step(original, LOOP, "dispatch"),
        "MoE experts": lambda original: _moe.experts(original, LOOP),
        "MoE combine": lambda original: _moe.step(original, LOOP, "combine"),
        "graph capture": lambda original: _step.fenced(original, LOOP, "capture"),
        "full graph": lambda original: _graphs.full_iteration(original, LOOP),
    },
    version,
)
PATCHERS = (PATCHER,)
