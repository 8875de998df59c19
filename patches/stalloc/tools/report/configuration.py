"""A configuration of Megatron-LM, as far as its memory depends on it."""

from __future__ import annotations

import dataclasses

WEIGHT, MASTER, MOMENTS = 2, 4, 8  # bytes a parameter: bf16 or fp16; fp32 copy; two fp32 moments


@dataclasses.dataclass(frozen=True)
class Configuration:
    """Named as Megatron-LM's arguments; sizes of the whole model."""

    num_layers: int
    hidden_size: int
    num_attention_heads: int
    seq_length: int
    micro_batch_size: int
    vocab_size: int
    global_batch_size: int = 0
    ffn_hidden_size: int = 0
    kv_channels: int = 0
    num_query_groups: int = 0
    swiglu: bool = False
    untie_embeddings_and_output_weights: bool = False
    disable_bias_linear: bool = False
    normalization: str = "LayerNorm"
    hidden_dropout: float = 0.1
    attention_dropout: float = 0.1
    fused_attention: bool = True
    local_layers: bool = False  # megatron-core's own, without TransformerEngine
    attention_softmax_in_fp32: bool = False
    learned_positions: int = 0  # rows of the table of position embeddings
    rotary: bool = False
    tensor_model_parallel_size: int = 1
    pipeline_model_parallel_size: int = 1
    virtual_stages: int = 1
    context_parallel_size: int = 1
    expert_model_parallel_size: int = 1
    sequence_parallel: bool = False
    use_distributed_optimizer: bool = False
    num_experts: int = 0
    moe_ffn_hidden_size: int = 0
    moe_router_topk: int = 1
    moe_shared_expert_intermediate_size: int = 0
    recompute_granularity: str = ""
    recompute_method: str = ""
    recompute_num_layers: int = 1
    mixed_precision: bool = True
    fp32_gradients: bool = True
    cuda: bool = True  # a CPU has no workspaces of cuBLAS, and masks of dropout as wide as what they drop out of
    world_size: int = 1
    rank: int = 0

    @property
    def width(self) -> int:
        """Bytes of a weight, and of an element of activations."""
        return WEIGHT if self.mixed_precision else MASTER

    @property
    def stage(self) -> int:
        """Megatron's order: ranks of one pipeline are world / stages apart."""
        return self.rank // max(1, self.world_size // self.pipeline_model_parallel_size)

    @property
    def data_parallel(self) -> int:
        """The size including context parallelism, which also shares weights."""
        return max(1, self.world_size // (self.tensor_model_parallel_size * self.pipeline_model_parallel_size))

    @property
    def micro_batches(self) -> int:
        replicas = max(1, self.data_parallel // self.context_parallel_size)
        return max(1, self.global_batch_size // (self.micro_batch_size * replicas))
