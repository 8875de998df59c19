"""Megatron's targets with the wrappers of their roles."""

from __future__ import annotations

import importlib

from stalloc.train.megatron import configuration, graphs, lengths, loading, moe, ranks, report, schedule, step
from stalloc.train.megatron.loop import LOOP
from stalloc.train.megatron.targets import TARGETS
from stalloc.train.patching import Patcher


def version() -> str:
    """megatron-core's. Read from its own file, which is there before any of the targets."""
    try:
        return str(importlib.import_module("megatron.core.package_info").__version__)
    except ImportError:
        return "of unknown version"


def before_first_step() -> None:
    PATCHER.warn_of_missing_modules()
    ranks.note_coordinates()
    configuration.note_arguments()


_LOADED = loading.LoadedState()
PATCHER: Patcher = Patcher(
    "megatron-core",
    TARGETS,
    {
        "iteration": lambda original: step.iteration(original, LOOP, before_first_step),
        "evaluation": lambda original: step.fenced(original, LOOP, "eval"),
        "save": lambda original: step.fenced(original, LOOP, "save"),
        "load": lambda original: loading.loading(original, _LOADED),
        "optimizer": lambda original: step.optimizer(original, LOOP),
        "optimizer state": lambda original: loading.optimizer_state(original, _LOADED),
        "memory report": report.memory_report,
        "forward only": lambda original: schedule.whole(original, LOOP),
        "forward": lambda original: schedule.forward(original, LOOP),
        "backward": lambda original: schedule.backward(original, LOOP),
        "forward and backward": lambda original: schedule.combined(original, LOOP),
        "weight gradients": lambda original: schedule.weight_gradients(original, LOOP),
        "lengths": lambda original: lengths.model(original, LOOP),
        "MoE layer": lambda original: moe.layer(original, LOOP),
        "MoE route": lambda original: moe.step(original, LOOP, "route"),
        "MoE dispatch": lambda original: moe.step(original, LOOP, "dispatch"),
        "MoE experts": lambda original: moe.experts(original, LOOP),
        "MoE combine": lambda original: moe.step(original, LOOP, "combine"),
        "graph capture": lambda original: step.fenced(original, LOOP, "capture"),
        "full graph": lambda original: graphs.full_iteration(original, LOOP),
    },
    version,
)
PATCHERS = (PATCHER,)
