"""Megatron-LM under stalloc: marks for its loop, without a change to it.

    import stalloc.megatron            # first line of the pretrain script; under `stalloc run` not even this

Iterations, micro-batches with their model chunk, the optimizer, evaluation, checkpoints, CUDA-graph captures and the
steps of MoE layers are marked, and `report_memory` shows the plan as well. megatron-core 0.17 to 0.20 are known
(`train/megatron/targets.py`); what another version does not have is a warning.

`add_arguments` is an `extra_args_provider`: each STALLOC_* variable as an argument of the script.
"""

from __future__ import annotations

from stalloc.train.megatron import add_arguments, apply, undo

__all__ = ["add_arguments", "apply", "undo"]
