"""torchtitan: a step of its trainer is an iteration; pipelines are marked by torch.distributed.pipelining's stages.

Without a pipeline, forward and backward pass of a batch are one function, and one mark.
"""

from __future__ import annotations

import sys

import stalloc
from stalloc import _session
from stalloc._patching import Patcher, Target
from stalloc.frameworks._around import around, fenced, passes

TARGETS = (
    Target("iteration", "torchtitan.trainer", "Trainer.train_step"),
    Target("forward and backward", "torchtitan.trainer", "Trainer.forward_backward_step"),
    Target("evaluation", "torchtitan.components.validate", "Validator.validate"),
    Target("save", "torchtitan.components.checkpointer.base", "BaseCheckpointManager.save"),
)

PATCHER: Patcher = Patcher(
    "torchtitan",
    lambda: str(getattr(sys.modules.get("torchtitan"), "__version__", "of unknown version")),
    TARGETS,
    {
        "iteration": around(stalloc.iteration),
        "forward and backward": passes("FB"),
        "evaluation": fenced("eval"),
        "save": fenced("save"),
    },
)


def apply() -> None:
    if _session.current is not None:
        PATCHER.apply()


def undo() -> None:
    PATCHER.undo()
