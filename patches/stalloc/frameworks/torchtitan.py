"""torchtitan: a step of its trainer is an iteration; pipelines are marked by torch.distributed.pipelining's stages.

Without a pipeline, forward and backward pass of a batch are one function, and one mark.
"""

from __future__ import annotations

import stalloc
from stalloc._patching import Patcher, Target
from stalloc.frameworks._around import around, fenced, passes

TARGETS = (
    Target("iteration", "torchtitan.trainer", "Trainer.train_step"),
    Target("forward and backward", "torchtitan.trainer", "Trainer.forward_backward_step"),
    Target("evaluation", "torchtitan.components.validate", "Validator.validate"),
    Target("save", "torchtitan.components.checkpointer.base", "BaseCheckpointManager.save"),
)

WRAPPERS = {
    "iteration": around(stalloc.iteration),
    "forward and backward": passes("FB"),
    "evaluation": fenced("eval"),
    "save": fenced("save"),
}
PATCHERS = (Patcher("torchtitan", TARGETS, WRAPPERS),)
