"""The memory that a Megatron-LM configuration should need on one rank, from formulas. Bytes.

Weights, gradients and optimizer state are counted parameter by parameter, activations operation by operation
(layer_tape.py), so that other shapes than the papers' (grouped queries, gated units, experts, fused attention) can be
counted; micro-batches in flight are those of the 1F1B schedule and of its interleaved form (Narayanan et al.,
2104.04473). The peak is where a layer's backward, or that of the loss, has most besides. Left out: messages between
pipeline stages, buckets of communication, temporaries of forward passes.
"""

from __future__ import annotations

import dataclasses

from stalloc.tools.report import layer_tape
from stalloc.tools.report.configuration import MASTER, MOMENTS, WEIGHT, Configuration

# torch's cuBLAS workspaces (at::cuda::getChosenWorkspaceSize): one for the thread of the forward pass, one for that of
# the backward pass. What it takes from Hopper on; on older devices each has 8 MiB.
_WORKSPACES = 2 * (32 << 20)


@dataclasses.dataclass(frozen=True)
class Moment:
    """Where the peak may be, on top of the layers in flight."""

    where: str
    activations: int  # kept besides; less than 0: of those in flight some are gone
    temporaries: int


@dataclasses.dataclass(frozen=True)
class Estimate:
    """The estimate of one rank. `parameters`: how many it holds."""

    parameters: int
    weights: int
    gradients: int
    optimizer_state: int
    activations: int  # of the layers in flight, as their forward passes leave them
    layers_in_flight: float
    logits: int  # of the last stage, while the loss is computed
    buffers: int  # that stay: scores of attention that is not fused, cuBLAS workspaces
    peak: Moment

    @property
    def state(self) -> int:
        return self.weights + self.gradients + self.optimizer_state

    @property
    def total(self) -> int:
        return self.state + self.activations + self.peak.activations + self.peak.temporaries + self.buffers


def estimate(config: Configuration) -> Estimate:
    dense, experts = _parameters(config)
    shards = config.data_parallel if config.use_distributed_optimizer else 1
    expert_replicas = max(1, config.data_parallel // config.expert_model_parallel_size)
    expert_shards = expert_replicas if config.use_distributed_optimizer else 1
    # With mixed precision the optimizer keeps a master copy; else the weights are it.
    state = MOMENTS + (MASTER if config.mixed_precision else 0)
    gradient = MASTER if config.fp32_gradients or not config.mixed_precision else WEIGHT
    layers = _layers_in_flight(config)
    return Estimate(
        parameters=dense + experts,
        weights=config.width * (dense + experts),
        gradients=gradient * (dense + experts),
        optimizer_state=state * dense // shards + state * experts // expert_shards,
        activations=round(layers * _layer_activations(config)) + round(_recompute_scratch(config)),
        layers_in_flight=layers,
        logits=_logits(config),
        buffers=(_WORKSPACES if config.cuda else 0) + _score_buffer(config),
        peak=_peak(config),
    )


def _parameters(config: Configuration) -> tuple[int, int]:
    """Parameters of one rank: those in every replica, and experts."""
    hidden, tensor = config.hidden_size, config.tensor_model_parallel_size
    ffn = config.ffn_hidden_size
    bias = not config.disable_bias_linear
    heads, groups, channels = config.num_attention_heads, config.num_query_groups, config.kv_channels
    qkv = (heads + 2 * groups) * channels
    norm = hidden * (1 if config.normalization == "RMSNorm" else 2)
    attention = (hidden * qkv + heads * channels * hidden) // tensor + (qkv // tensor + hidden if bias else 0)
    gate = 2 if config.swiglu else 1
    mlp = (gate + 1) * hidden * ffn // tensor + (gate * ffn // tensor + hidden if bias else 0)
    layers = config.num_layers // config.pipeline_model_parallel_size
    experts = 0
    if config.num_experts:
        local = config.num_experts // config.expert_model_parallel_size
        experts = layers * local * (gate + 1) * hidden * config.moe_ffn_hidden_size // tensor
        shared = (gate + 1) * hidden * config.moe_shared_expert_intermediate_size // tensor
        mlp = hidden * config.num_experts + shared
    dense = layers * (attention + mlp + 2 * norm)
    vocabulary = _padded_vocabulary(config) * hidden // tensor
    first, last = config.stage == 0, config.stage == config.pipeline_model_parallel_size - 1
    tied_here = first and last and not config.untie_embeddings_and_output_weights
    dense += vocabulary * (int(first) + int(last) - int(tied_here))
    dense += config.learned_positions * hidden * int(first)
    return dense + (norm if last else 0), experts


def _padded_vocabulary(config: Configuration) -> int:
    unit = 128 * config.tensor_model_parallel_size
    return -(-config.vocab_size // unit) * unit


def _tokens(config: Configuration) -> int:
    return config.seq_length * config.micro_batch_size // config.context_parallel_size


def _recomputed_layers(config: Configuration) -> float:
    """For each chunk, the share of layers of which only the input is kept."""
    if config.recompute_granularity != "full":
        return 0.0
    if config.recompute_method == "block":
        chunk = config.num_layers // (config.pipeline_model_parallel_size * config.virtual_stages)
        return min(1.0, config.recompute_num_layers / chunk)
    return 1.0


def _layer_activations(config: Configuration) -> float:
    """Bytes of one layer and micro-batch, with recomputed layers taken in proportion."""
    recomputed = _recomputed_layers(config)
    spread = config.tensor_model_parallel_size if config.sequence_parallel else 1
    kept = config.width * config.hidden_size * _tokens(config) / spread
    if config.recompute_method == "uniform":
        kept /= config.recompute_num_layers
    return recomputed * kept + (1 - recomputed) * layer_tape.kept(config)


def _recompute_scratch(config: Configuration) -> float:
    """While a layer is made again, all of it is live once; but not together with layers of its chunk that were kept."""
    return layer_tape.kept(config) if _recomputed_layers(config) == 1 else 0.0


def _score_buffer(config: Configuration) -> int:
    """Into which all layers multiply queries and keys, one after the other."""
    if config.fused_attention:
        return 0
    elements = config.num_attention_heads * config.seq_length // config.tensor_model_parallel_size
    return config.width * _tokens(config) * elements


def _layers_in_flight(config: Configuration) -> float:
    stages, chunks = config.pipeline_model_parallel_size, config.virtual_stages
    of_chunk = config.num_layers / (stages * chunks)
    if stages == 1:
        return of_chunk * chunks
    if chunks == 1:
        return of_chunk * min(config.micro_batches, stages - config.stage)
    warm_up = 2 * (stages - config.stage - 1) + (chunks - 1) * stages
    return of_chunk * min(config.micro_batches * chunks, warm_up + 1)


def _peak(config: Configuration) -> Moment:
    layer = layer_tape.worst_moment(config)
    moments = [
        Moment("the end of a forward pass", 0, 0),
        Moment(f"the backward pass of a layer's {layer.step}", -round(layer.freed), round(layer.temporaries)),
    ]
    if (logits := _logits(config)) > 0:
        gradient = logits - _losses(config)
        moments.append(Moment("the loss", _losses(config) + _head(config), gradient))
    return max(moments, key=lambda moment: moment.activations + moment.temporaries)


def _logits(config: Configuration) -> int:
    """In fp32 for the loss, and in half precision, if the model is: as computed, later their gradient."""
    return _losses(config) * (WEIGHT + MASTER) // MASTER if config.mixed_precision else _losses(config)


def _losses(config: Configuration) -> int:
    """The part of the logits that the loss keeps, in fp32."""
    if config.stage != config.pipeline_model_parallel_size - 1:
        return 0
    columns = _padded_vocabulary(config) // config.tensor_model_parallel_size
    return _tokens(config) * columns * MASTER


def _head(config: Configuration) -> int:
    """Input and output of the last norm, of which the loss is computed."""
    spread = config.tensor_model_parallel_size if config.sequence_parallel else 1
    return 2 * config.width * config.hidden_size * _tokens(config) // spread
