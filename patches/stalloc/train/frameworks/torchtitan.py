"""torchtitan: a step of its trainer is an iteration; pipelines are marked by torch.distributed.pipelining's stages.

Without a pipeline, forward and backward pass of a batch are one function, and one mark. Up to 0.2 the trainer is in the
module that torchtitan's own launcher runs as the main one: then iterations end with the optimizer's steps.
"""

from __future__ import annotations

from stalloc.train import api
from stalloc.train.frameworks.around import around, fenced, passes
from stalloc.train.patching import Patcher, Target

_MOVED = (0, 3)
TARGETS = (
    Target("iteration", "torchtitan.train", "Trainer.train_step", before=_MOVED),
    Target("iteration", "torchtitan.trainer", "Trainer.train_step", since=_MOVED),
    Target("forward and backward", "torchtitan.train", "Trainer.forward_backward_step", before=_MOVED),
    Target("forward and backward", "torchtitan.trainer", "Trainer.forward_backward_step", since=_MOVED),
    Target("evaluation", "torchtitan.components.validate", "Validator.validate"),
    Target("save", "torchtitan.components.checkpoint", "CheckpointManager.save", before=_MOVED),
    Target("save", "torchtitan.components.checkpointer.base", "BaseCheckpointManager.save", since=_MOVED),
)

WRAPPERS = {
    "iteration": around(api.iteration),
    "forward and backward": passes("FB"),
    "evaluation": fenced("eval"),
    "save": fenced("save"),
}
PATCHERS = (Patcher("torchtitan", TARGETS, WRAPPERS),)
