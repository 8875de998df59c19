"""torch's own optimizers: where their state is made.

In the first step, or before the loop when a checkpoint is loaded. Under the same mark the loading finds the places that
a plan of a run from scratch has for that state (allocator/engine/script_cursor.h).
"""

from __future__ import annotations

import stalloc
from stalloc._patching import Patcher, Target
from stalloc.frameworks._around import around

OPTIMIZER_STATE = "optimizer_state"  # the mark's name
TARGETS = (
    Target("optimizer state", "torch.optim.adam", "Adam._init_group"),  # AdamW's, too
    Target("optimizer state", "torch.optim.optimizer", "Optimizer.load_state_dict"),
)
WRAPPERS = {"optimizer state": around(lambda: stalloc.layer(OPTIMIZER_STATE, "O"))}
PATCHERS = (Patcher("torch", TARGETS, WRAPPERS),)
