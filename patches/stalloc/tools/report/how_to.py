"""The option or the line to set for each change that `stalloc advise` names.

Lines are Python as they stand, for a `model` of one's own (imports: re, stalloc, torch, torch.utils.checkpoint).
Options are those of transformers' Trainer, DeepSpeed and, for a run of Megatron-LM, of Megatron-LM alone.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from stalloc.tools.report.configuration import Configuration

_STORED = "switch off what they store for later calls (transformers: model.config.use_cache = False)"
MEGATRON_MODULES = {  # of --recompute-modules, by the end of the path
    "core_attention": "core_attn",
    "input_layernorm": "layernorm",
    "pre_mlp_layernorm": "layernorm",
    "mlp": "mlp",
    "mlp.experts": "moe",
    "mlp.shared_experts": "shared_experts",
}

OFFLOAD_STATE = (
    'DeepSpeed: "offload_optimizer": {"device": "cpu"}; FSDP: fully_shard(..., offload_policy=CPUOffloadPolicy())'
)
MEGATRON_OFFLOAD_STATE = "--optimizer-cpu-offload"
SHARD_STATE = (
    "torch.distributed.optim.ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, ...) in place of the "
    'optimizer; DeepSpeed: "zero_optimization": {"stage": 1}'
)
MEGATRON_SHARD_STATE = "--use-distributed-optimizer"
SHARD_GRADIENTS = 'DeepSpeed: "zero_optimization": {"stage": 2}'
SHARD_ALL = (
    "torch.distributed.fsdp.fully_shard(layer) for each layer, then fully_shard(model); Trainer: fsdp='full_shard'"
)
MEGATRON_SHARD_ALL = "--use-megatron-fsdp --data-parallel-sharding-strategy optim_grads_params"
FUSED = "torch.optim.AdamW(..., fused=True); Trainer: optim='adamw_torch_fused'"
LOSS_IN_PARTS = (
    "part = lambda h, y: F.cross_entropy(head(h).float(), y, reduction='sum'); "
    "loss = sum(torch.utils.checkpoint.checkpoint(part, h, y, use_reentrant=False) "
    "for h, y in zip(hidden.flatten(0, -2).chunk({parts}), labels.flatten().chunk({parts}))) / labels.numel(); "
    "transformers on a GPU: use_liger_kernel=True"
)
LATE = {
    "after the backward": "after loss.backward(): del of the variables that hold outputs (del outputs, logits)",
    "after the layer": "tensors that backward needs: ctx.save_for_backward, not attributes of ctx or of modules; "
    "backward() without retain_graph=True",
    "after the iteration": "after optimizer.step(): del outputs, loss; optimizer.zero_grad()",
    "without a backward": "with torch.no_grad(): around the evaluation; else model(x) keeps a graph of all of it",
    "after the optimizer": "optimizer.zero_grad() right after optimizer.step(), not after the next forward pass",
}
LARGEST_FIRST = (
    "before the loop, once, with the longest rows: loss_of(model, longest).backward(); optimizer.zero_grad(); "
    "or sort the first batches of the loader by length, falling"
)
EXPANDABLE = "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True in the environment"


def path_in_model(layers: str, known: Collection[str]) -> str:
    """Without the class of the model, as named_modules() has it: "GPT.blocks.*.mlp" -> "blocks.*.mlp"; of the model "".

    Args:
        layers: a path, or a pattern.
        known: every layer that the trace has; the model is one of them.
    """
    root, _, inside = layers.partition(".")
    return inside if root in known else layers


def recompute(layers: str, known: Collection[str], megatron: bool, leaves: bool = False) -> str:
    """The option or the line.

    Args:
        layers: a path, or a pattern.
        known: every layer that the trace has.
        megatron: the run is one of Megatron-LM.
        leaves: their forward passes store tensors for later, which run again they would do twice.
    """
    path = path_in_model(layers, known)
    option = _megatron_option(path) if megatron else ""
    if option:
        return option
    line = _for_each(path, "stalloc.recompute(m)")
    if leaves:
        line = f"{_STORED}; then {line}"
    return f"transformers: gradient_checkpointing=True; else: {line}" if _repeats(path) and not megatron else line


def offload(layers: str, known: Collection[str], megatron: bool) -> str:
    if megatron:
        return "--fine-grained-activation-offloading --offload-modules ...; under TransformerEngine --cpu-offloading"
    path = path_in_model(layers, known)
    return _for_each(path, "run m under `with torch.autograd.graph.save_on_cpu(pin_memory=True):`")


def split(config: Configuration) -> str:
    """Megatron-LM's arguments for a Configuration."""
    words = {
        "tensor-model-parallel-size": "tensor_model_parallel_size",
        "pipeline-model-parallel-size": "pipeline_model_parallel_size",
        "context-parallel-size": "context_parallel_size",
        "expert-model-parallel-size": "expert_model_parallel_size",
    }
    words_of = [f"--{word} {getattr(config, name)}" for word, name in words.items() if getattr(config, name) > 1]
    if config.sequence_parallel:
        words_of.append("--sequence-parallel")
    return " ".join(words_of) or "no parallel sizes"


def _for_each(path: str, what: str) -> str:
    if not path:
        return f"m = model; {what}"
    if "*" not in path.split("."):
        return f"m = model.get_submodule({path!r}); {what}"
    pattern = re.escape(path).replace(r"\*", r"\d+")
    return f'for m in [m for n, m in model.named_modules() if re.fullmatch(r"{pattern}", n)]: {what}'


def _repeats(path: str) -> bool:
    """The layers that a model is a chain of: a number stands at the end, and nowhere else."""
    parts = path.split(".")
    return parts[-1] == "*" and parts.count("*") == 1


def _megatron_option(path: str) -> str:
    if _repeats(path):
        return "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1"
    head, _, inside = path.rpartition("*.")
    module = MEGATRON_MODULES.get(inside if head else "")
    if module is None and inside.startswith("self_attention."):
        module = MEGATRON_MODULES.get(inside.removeprefix("self_attention."))
    return "" if module is None else f"--recompute-granularity selective --recompute-modules {module}"
