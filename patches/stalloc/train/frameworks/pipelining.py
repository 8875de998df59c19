"""torch.distributed.pipelining: what a stage does with one micro-batch is a pass.

Of a split backward pass, B is the half for the inputs. The optimizer's step remains the boundary between iterations: a
training step may run the schedule more than once.
"""

from __future__ import annotations

from typing import Any

from stalloc.train.frameworks.around import passes
from stalloc.train.patching import Patcher, Target

_STAGE = "torch.distributed.pipelining.stage"
TARGETS = (
    Target("forward", _STAGE, "_PipelineStageBase.forward_one_chunk"),
    Target("backward", _STAGE, "_PipelineStageBase.backward_one_chunk"),
    Target("weight gradients", _STAGE, "_PipelineStageBase.backward_weight_one_chunk"),
)


def _chunk(stage: Any) -> int:
    """The number of the stage among this rank's: stages are dealt out round-robin."""
    return int(stage.stage_index) // max(int(stage.group_size), 1)


WRAPPERS = {
    "forward": passes("F", "fwd_chunk_id", _chunk),
    "backward": passes("B", "bwd_chunk_id", _chunk),
    "weight gradients": passes("W", "bwd_chunk_id", _chunk),
}
PATCHERS = (Patcher("torch", TARGETS, WRAPPERS),)
