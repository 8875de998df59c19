"""Colossal-AI: the backward pass of a Booster, and the passes of its pipeline schedules.

Iterations end with the optimizer's step.
"""

from __future__ import annotations

from stalloc.train.frameworks.around import fenced, passes
from stalloc.train.patching import Patcher, Target

_SCHEDULES = "colossalai.pipeline.schedule"
TARGETS = (
    Target("backward", "colossalai.booster.booster", "Booster.backward"),
    Target("save", "colossalai.booster.booster", "Booster.save_model"),
    Target("save", "colossalai.booster.booster", "Booster.save_optimizer"),
    Target("forward", f"{_SCHEDULES}.one_f_one_b", "OneForwardOneBackwardSchedule.forward_step"),
    Target("backward", f"{_SCHEDULES}.one_f_one_b", "OneForwardOneBackwardSchedule.backward_step"),
    Target("forward", f"{_SCHEDULES}.interleaved_pp", "InterleavedSchedule.forward_step"),
    Target("backward", f"{_SCHEDULES}.interleaved_pp", "InterleavedSchedule.backward_step"),
    Target("forward", f"{_SCHEDULES}.zero_bubble_pp", "ZeroBubbleVPipeScheduler.forward_step"),
    Target("backward", f"{_SCHEDULES}.zero_bubble_pp", "ZeroBubbleVPipeScheduler.backward_b_step"),
    Target("weight gradients", f"{_SCHEDULES}.zero_bubble_pp", "ZeroBubbleVPipeScheduler.backward_w_step"),
)

WRAPPERS = {
    "forward": passes("F", chunk="model_chunk_id"),
    "backward": passes("B", chunk="model_chunk_id"),
    "weight gradients": passes("W", chunk="model_chunk_id"),
    "save": fenced("save"),
}
PATCHERS = (Patcher("colossalai", TARGETS, WRAPPERS),)
