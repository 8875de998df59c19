"""DeepSpeed: ZeRO engines and the pipeline engine.

ZeRO steps its inner optimizer once for every sub-group, so optimizer hooks cannot separate iterations: they end where
the engine steps at the boundary of gradient accumulation. With several engines (a policy and a critic) the first that
steps sets the pace.
"""

from __future__ import annotations

import weakref
from typing import Any, Optional

from stalloc.train import api
from stalloc.train.frameworks.around import around, fenced, optimizer, passes
from stalloc.train.patching import Function, Patcher, Target

_ENGINE = "deepspeed.runtime.engine"
_PIPELINE = "deepspeed.runtime.pipe.engine"
TARGETS = (
    Target("forward", _ENGINE, "DeepSpeedEngine.forward"),
    Target("backward", _ENGINE, "DeepSpeedEngine.backward"),
    Target("step", _ENGINE, "DeepSpeedEngine.step"),
    Target("save", _ENGINE, "DeepSpeedEngine.save_checkpoint"),
    Target("iteration", _PIPELINE, "PipelineEngine.train_batch"),
    Target("evaluation", _PIPELINE, "PipelineEngine.eval_batch"),
    Target("pipeline forward", _PIPELINE, "PipelineEngine._exec_forward_pass"),
    Target("pipeline backward", _PIPELINE, "PipelineEngine._exec_backward_pass"),
    Target("pipeline optimizer", _PIPELINE, "PipelineEngine._exec_optimizer_step"),
)

_pace: Optional[weakref.ref[Any]] = None  # the engine whose steps are iterations


def _is_pipeline(engine: Any) -> bool:
    """Its passes are marked where its schedule runs them; it calls the plain engine's inside."""
    return hasattr(engine, "_exec_forward_pass")


def _sets_the_pace(engine: Any) -> bool:
    global _pace
    if _pace is None or _pace() is None:
        _pace = weakref.ref(engine)
        api.iteration()  # the first one
    return _pace() is engine


def _forward(original: Function) -> Function:
    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        if _is_pipeline(self):
            return original(self, *args, **kwargs)
        if not self.module.training:  # eval() leaves the engine's own flag
            with api.fence("eval"):
                return original(self, *args, **kwargs)
        _sets_the_pace(self)
        with api.microbatch("F"):
            return original(self, *args, **kwargs)

    return forward


def _backward(original: Function) -> Function:
    def backward(self: Any, *args: Any, **kwargs: Any) -> Any:
        if _is_pipeline(self):
            return original(self, *args, **kwargs)
        with api.microbatch("B"):
            return original(self, *args, **kwargs)

    return backward


def _step(original: Function) -> Function:
    def step(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not self.is_gradient_accumulation_boundary():
            return original(self, *args, **kwargs)
        with api.optimizer():
            result = original(self, *args, **kwargs)
        if _sets_the_pace(self):
            api.iteration()
        return result

    return step


WRAPPERS = {
    "forward": _forward,
    "backward": _backward,
    "step": _step,
    "save": fenced("save"),
    "iteration": around(api.iteration),
    "evaluation": fenced("eval"),
    "pipeline forward": passes("F"),
    "pipeline backward": passes("B"),
    "pipeline optimizer": optimizer(),
}
PATCHERS = (Patcher("deepspeed", TARGETS, WRAPPERS),)
