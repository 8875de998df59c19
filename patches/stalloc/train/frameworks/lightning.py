"""Lightning, under both of its names.

A training step runs inside the optimizer's step, as its closure; the optimizer's own part begins when the closure is
over. Iterations end with the optimizer's step, so accumulated batches are micro-batches of one.

A module that optimizes by itself runs all passes and all optimizers in its training step: there, passes are not marked.
"""

from __future__ import annotations

from typing import Any

from stalloc.train import api
from stalloc.train.frameworks.around import Wrapper, fenced, inputs, passes
from stalloc.train.patching import Function, Patcher, Target


def _targets(root: str) -> tuple[Target, ...]:
    strategy = f"{root}.strategies.strategy"
    return (
        Target("forward", strategy, "Strategy.training_step"),
        Target("backward", strategy, "Strategy.backward"),
        Target("optimizer", f"{root}.plugins.precision.precision", "Precision._after_closure"),
        Target("evaluation", f"{root}.loops.evaluation_loop", "_EvaluationLoop.run"),
        Target("evaluation", f"{root}.loops.prediction_loop", "_PredictionLoop.run"),
        Target("save", f"{root}.trainer.trainer", "Trainer.save_checkpoint"),
    )


def _optimizer(original: Function) -> Function:
    """Its end is the iteration's."""

    def after_closure(*args: Any, **kwargs: Any) -> Any:
        api.optimizer()
        return original(*args, **kwargs)

    return after_closure


def _forward(original: Function) -> Function:
    marked = _pass("F")(original)

    def training_step(*args: Any, **kwargs: Any) -> Any:
        inputs((args[1:], kwargs))
        return marked(*args, **kwargs)

    return training_step


def _pass(kind: str) -> Wrapper:
    """The strategy's call is a pass, unless the module optimizes by itself."""

    def wrap(original: Function) -> Function:
        marked = passes(kind)(original)

        def call(strategy: Any, *args: Any, **kwargs: Any) -> Any:
            marks = getattr(strategy.lightning_module, "automatic_optimization", True)
            return (marked if marks else original)(strategy, *args, **kwargs)

        return call

    return wrap


WRAPPERS = {
    "forward": _forward,
    "backward": _pass("B"),
    "optimizer": _optimizer,
    "evaluation": fenced("eval"),
    "save": fenced("save"),
}
TARGETS = _targets("lightning.pytorch")
PATCHERS = (
    Patcher("lightning", TARGETS, WRAPPERS),
    Patcher("pytorch_lightning", _targets("pytorch_lightning"), WRAPPERS),
)
