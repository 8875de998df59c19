"""Megatron-LM marks itself from the first import of this on: `stalloc.megatron`."""

from __future__ import annotations

import sys

from stalloc.train import install, process, session
from stalloc.train.megatron import arguments
from stalloc.train.megatron.adapter import PATCHER as _PATCHER
from stalloc.train.megatron.arguments import add_arguments

__all__ = ["add_arguments", "apply", "undo"]


def apply() -> None:
    """Marks Megatron from now on, whether it has been imported or not. Nothing where stalloc is not active."""
    if session.current is not None:
        _PATCHER.apply()


def undo() -> None:
    """Leaves Megatron as it was."""
    _PATCHER.undo()


if process.trains():
    arguments.read_command_line(sys.argv[1:])
    install.activate()
    apply()
