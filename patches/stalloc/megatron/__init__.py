"""Megatron-LM under stalloc: marks for its loop, without a change to it.

    import stalloc.megatron            # first line of the pretrain script; under `stalloc run` not even this

Iterations, micro-batches with their model chunk, the optimizer, evaluation, checkpoints, CUDA-graph captures and the
steps of MoE layers are marked, and `report_memory` tells of the plan, too. megatron-core 0.17 to 0.20 are known
(`_targets.py`); what another version does not have is a warning.

`add_arguments` is an `extra_args_provider`: each STALLOC_* variable as an argument of the script.
"""

from __future__ import annotations

import sys

from stalloc import _install, _session
from stalloc._core import _process
from stalloc.megatron import _arguments
from stalloc.megatron._adapter import PATCHER as _PATCHER
from stalloc.megatron._arguments import add_arguments

__all__ = ["add_arguments", "apply", "undo"]


def apply() -> None:
    """Marks Megatron from now on, whether it has been imported or not. Nothing where stalloc is not active."""
    if _session.current is not None:
        _PATCHER.apply()


def undo() -> None:
    """Leaves Megatron as it was."""
    _PATCHER.undo()


if _process.trains():
    _arguments.read_command_line(sys.argv[1:])
    _install.activate()
    apply()
