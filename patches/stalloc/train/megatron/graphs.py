"""CUDA graphs of a whole iteration: the call that captures is fenced, replays have nothing to mark."""

from __future__ import annotations

from typing import Any

from stalloc.train.megatron.loop import Loop
from stalloc.train.patching import Function


def full_iteration(original: Function, loop: Loop) -> Function:
    """FullCudaGraphWrapper.__call__."""

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        stage = "validation" if kwargs.get("forward_only") else "training"
        if self.curr_iter(stage) != self.cuda_graph_warmup_steps:
            return original(self, *args, **kwargs)
        with loop.fence("capture"):
            return original(self, *args, **kwargs)

    return call
