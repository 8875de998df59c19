"""torch's own optimizers: where their state is made, in the first step, or before the loop from a checkpoint."""

from __future__ import annotations

from typing import Any

from stalloc.train import api
from stalloc.train.frameworks.around import around
from stalloc.train.marking.optimizer_state import OPTIMIZER_STATE, parts
from stalloc.train.patching import Function, Patcher, Target

TARGETS = (
    Target("made", "torch.optim.adam", "Adam._init_group"),  # AdamW's, too
    Target("loaded", "torch.optim.optimizer", "Optimizer.load_state_dict"),
)


def _loads(original: Function) -> Function:
    """Optimizer.load_state_dict: as many marks as a first step has, since they are counted."""
    marked = _MADE(original)

    def load_state_dict(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = marked(self, *args, **kwargs)
        for _ in parts(self)[1:]:
            with api.layer(OPTIMIZER_STATE, "O"):
                pass
        return result

    return load_state_dict


_MADE = around(lambda: api.layer(OPTIMIZER_STATE, "O"))
PATCHERS = (Patcher("torch", TARGETS, {"made": _MADE, "loaded": _loads}),)
