"""Where Megatron does what we mark, per version of megatron-core: 0.17.1, 0.18.2, 0.19.2, and main of 2026-08 (0.20).

Roles are the keys of the wrappers in `adapter.py`. A row without versions is in all of them; what moves gets one row
per place. Not patched, since what they call is: `get_forward_backward_func` (functions are looked up as globals at each
call), PagedStashRunner and the rerun state machine (they run these again), `dummy_train_step` (it only skips data).
"""

from __future__ import annotations

from stalloc.train.patching import Target

_TRAINING = "megatron.training.training"
_CHECKPOINTING = "megatron.training.checkpointing"
_SCHEDULES = "megatron.core.pipeline_parallel.schedules"
_COMBINED = "megatron.core.pipeline_parallel.combined_1f1b"
_OPTIMIZER = "megatron.core.optimizer.optimizer"
_LAYER_WISE = "megatron.core.optimizer.layer_wise_optimizer"
_GPT = "megatron.core.models.gpt.gpt_model"
_MOE_LAYER = "megatron.core.transformer.moe.moe_layer"
_GRAPHS = "megatron.core.transformer.cuda_graphs"
_FULL_GRAPH = "megatron.core.full_cuda_graph"

TARGETS = (
    Target("iteration", _TRAINING, "train_step"),
    Target("evaluation", _TRAINING, "evaluate"),
    Target("evaluation", _TRAINING, "evaluate_and_print_results"),
    Target("save", _TRAINING, "save_checkpoint_and_time"),
    Target("save", _CHECKPOINTING, "save_checkpoint"),
    Target("load", _CHECKPOINTING, "load_checkpoint"),
    Target("memory report", "megatron.training.utils", "report_memory", before=(0, 18)),
    Target("memory report", "megatron.training.utils.common_utils", "report_memory", since=(0, 18)),
    Target("forward only", _SCHEDULES, "forward_backward_no_pipelining"),
    Target("forward only", _SCHEDULES, "forward_backward_pipelining_with_interleaving"),
    Target("forward only", _SCHEDULES, "forward_backward_pipelining_without_interleaving"),
    Target("forward", _SCHEDULES, "forward_step"),
    Target("backward", _SCHEDULES, "backward_step"),
    Target("backward", _SCHEDULES, "backward_step_multimodule", since=(0, 17)),
    Target("weight gradients", _SCHEDULES, "finish_embedding_wgrad_compute"),
    Target("forward and backward", _COMBINED, "combined_forward_backward_step"),
    Target("optimizer", _OPTIMIZER, "MixedPrecisionOptimizer.step"),
    Target("optimizer", _OPTIMIZER, "FP32Optimizer.step"),
    Target("optimizer", _OPTIMIZER, "ChainedOptimizer.step"),
    Target("optimizer", _LAYER_WISE, "LayerWiseDistributedOptimizer.step", before=(0, 18)),
    # The distributed optimizer makes its state by a step: see frameworks/optimizer_state.py.
    Target("optimizer state", _OPTIMIZER, "Float16OptimizerWithFloat16Params.sharded_state_dict"),
    Target("optimizer state", _OPTIMIZER, "FP32Optimizer.sharded_state_dict"),
    Target("lengths", _GPT, "GPTModel.forward"),
    Target("MoE layer", _MOE_LAYER, "MoELayer.forward"),
    Target("MoE route", _MOE_LAYER, "MoELayer.route"),
    Target("MoE dispatch", _MOE_LAYER, "MoELayer.dispatch"),
    Target("MoE experts", _MOE_LAYER, "MoELayer.routed_experts_compute"),
    Target("MoE combine", _MOE_LAYER, "MoELayer.combine"),
    Target("graph capture", _GRAPHS, "create_cudagraphs"),
    Target("graph capture", _GRAPHS, "TECudaGraphHelper.create_cudagraphs"),
    Target("full graph", _FULL_GRAPH, "FullCudaGraphWrapper.__call__"),
)
