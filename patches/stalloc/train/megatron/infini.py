"""The schedulers of megatron_infini, which have forward_step and backward_step of their own.

Which modules they are in is not public, so they are looked for: functions of these names, with the parameters of
Megatron's, that a module of that package defines.
"""

from __future__ import annotations

import inspect
import sys

from stalloc.train import session
from stalloc.train.megatron import schedule
from stalloc.train.megatron.adapter import version
from stalloc.train.megatron.loop import LOOP
from stalloc.train.patching import Patcher, Target

_PACKAGE = "megatron_infini"
_ROLES = {"forward_step": ("forward", "num_microbatches"), "backward_step": ("backward", "output_tensor_grad")}
_WRAPPERS = {
    "forward": lambda original: schedule.forward(original, LOOP),
    "backward": lambda original: schedule.backward(original, LOOP),
}

_patchers: list[Patcher] = []


def apply() -> None:
    """Marks those that have been imported and are not marked yet."""
    if session.current is None:
        return
    patcher = Patcher(_PACKAGE, _find(), _WRAPPERS, version)
    patcher.apply()
    _patchers.append(patcher)


def undo() -> None:
    while _patchers:
        _patchers.pop().undo()


def _find() -> list[Target]:
    modules = [name for name in sys.modules if name.partition(".")[0] == _PACKAGE]
    return [
        Target(role, module, function)
        for module in modules
        for function, (role, parameter) in _ROLES.items()
        if _defines(module, function, parameter)
    ]


def _defines(module: str, name: str, parameter: str) -> bool:
    function = getattr(sys.modules[module], name, None)
    if not inspect.isfunction(function) or function.__module__ != module or hasattr(function, "__wrapped__"):
        return False
    return parameter in inspect.signature(function).parameters
