"""One transformer layer as autograd sees it: what each operation keeps, and what its backward needs besides. Bytes.

Sizes are of one token of one micro-batch (divided by tensor parallelism) but for weights. Operations are those of
megatron-core's local layers: attention by matrices of scores (core/transformer/dot_product_attention.py) or fused; a
tensor that several operations need stands at the first of them, which lets it go last. Kept sums are those of
Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models" (2205.05198).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from stalloc.tools.report.configuration import Configuration

_FLOAT, _MASK = 4, 1  # bytes an element: statistics; dropout and masks


@dataclasses.dataclass(frozen=True)
class Step:
    """An operation of the forward pass. `backward`: gradients and temporaries alive while its backward runs."""

    name: str
    kept: float
    backward: float
    weights: float = 0.0  # elements, whose gradient the backward makes


@dataclasses.dataclass(frozen=True)
class Moment:
    """The greatest moment of a layer's backward: which step, what it has besides, what was kept and is gone."""

    step: str
    temporaries: float
    freed: float

    @property
    def above(self) -> float:
        """Over the layer as its forward pass left it; below 0, the backward is never above that."""
        return self.temporaries - self.freed


@dataclasses.dataclass(frozen=True)
class Operation:
    """A step of one layer and micro-batch. `backward`: all that its backward needs besides what is kept."""

    name: str
    kept: float
    backward: float


def operations(config: Configuration) -> list[Operation]:
    """In the order of the forward pass. The gradient of the residual stream is there all the time."""
    tokens = _tokens(config)
    residual = config.width * config.hidden_size / _spread(config)
    return [
        Operation(step.name, tokens * step.kept, tokens * (residual + step.backward) + config.width * step.weights)
        for step in _steps(config)
    ]


def kept(config: Configuration) -> float:
    """The tensors that a layer keeps of one micro-batch."""
    return sum(operation.kept for operation in operations(config))


def worst_moment(config: Configuration) -> Moment:
    """The peak of the backward pass of one layer."""
    moments, freed = [], 0.0
    for operation in reversed(operations(config)):
        moments.append(Moment(operation.name, operation.backward, freed))
        freed += operation.kept
    return max(moments, key=lambda moment: moment.above)


def _tokens(config: Configuration) -> int:
    return config.seq_length * config.micro_batch_size // config.context_parallel_size


def _spread(config: Configuration) -> int:
    """Over how many ranks the sequence is spread outside of attention and MLP."""
    return config.tensor_model_parallel_size if config.sequence_parallel else 1


def _steps(config: Configuration) -> list[Step]:
    return [*_attention_half(config), *(_expert_half(config) if config.num_experts else _mlp_half(config))]


def _dropped(config: Configuration) -> int:
    """Bytes of an element of a mask of dropout: torch's CPU kernels keep the factors themselves."""
    return _MASK if config.cuda else config.width


def _half(config: Configuration, name: str, inner: Sequence[Step]) -> list[Step]:
    """Norm, what is inside, dropout: each half of a layer."""
    stream = config.width * config.hidden_size / _spread(config)
    mask = _dropped(config) * config.hidden_size / _spread(config) if config.hidden_dropout > 0 else 0.0
    return [Step(f"norm of {name}", stream, 2 * stream), *inner, Step(f"dropout of {name}", mask, 2 * stream)]


def _attention_half(config: Configuration) -> list[Step]:
    tensor, hidden = config.tensor_model_parallel_size, config.hidden_size
    heads, groups, channels = config.num_attention_heads, config.num_query_groups, config.kv_channels
    stream = config.width * hidden / _spread(config)
    projected = config.width * (heads + 2 * groups) * channels / tensor
    context = config.width * heads * channels / tensor
    core = (_fused_attention if config.fused_attention else _attention_by_scores)(config, projected, context)
    inside = [
        Step("query, key, value", stream, projected + stream, hidden * (heads + 2 * groups) * channels / tensor),
        *core,
        Step("attention's projection", context, stream + context, hidden * heads * channels / tensor),
    ]
    return _half(config, "attention", inside)


def _rotated(config: Configuration) -> float:
    """Queries and keys after the rotation: copies, in addition to the projection that values are a view of."""
    if not config.rotary:
        return 0.0
    heads = config.num_attention_heads + config.num_query_groups
    return config.width * heads * config.kv_channels / config.tensor_model_parallel_size


def _fused_attention(config: Configuration, projected: float, context: float) -> list[Step]:
    statistics = _FLOAT * config.num_attention_heads / config.tensor_model_parallel_size  # a row's, in fp32
    return [Step("fused attention", projected + _rotated(config) + statistics, context + projected)]


def _attention_by_scores(config: Configuration, projected: float, context: float) -> list[Step]:
    elements = config.num_attention_heads * config.seq_length / config.tensor_model_parallel_size
    scores = config.width * elements
    width = _FLOAT if config.attention_softmax_in_fp32 else config.width
    rotated = _rotated(config)
    # Without rotation queries, keys and values are views of one tensor, which the first product lets go.
    queries, values = (rotated, projected) if rotated else (projected, 0.0)
    if config.num_query_groups != config.num_attention_heads:  # keys and values are repeated for each head
        queries, values = 2 * context, context
    causal, tables = _made_anew(config)
    dropped = config.attention_dropout > 0
    lowered = scores if config.attention_softmax_in_fp32 and not dropped else 0.0  # half-precision copy, multiplied
    steps = [
        Step("scores", queries + tables, scores + 2 * context),
        Step("causality", causal, 2 * scores),
        # torch multiplies gradient and output into a tensor of its own before it reduces rows; on a CPU into another.
        Step("softmax", width * elements, (3 if config.cuda else 4) * width * elements),
    ]
    if dropped:
        steps.append(Step("dropout of scores", _dropped(config) * elements, 2 * scores))
    steps.append(Step("values", values + (scores if dropped else lowered), context + scores + context))
    return steps


def _made_anew(config: Configuration) -> tuple[float, float]:
    """The tensors that megatron-core's local layers make in each layer, for all rows of a micro-batch, and keep: the
    causal mask, and cosines and sines of the rotation, of queries and of keys."""
    if not config.local_layers:
        return 0.0, 0.0
    table = config.width * config.kv_channels / config.micro_batch_size
    return _MASK * config.seq_length / config.micro_batch_size, 4 * table if config.rotary else 0.0


def _mlp_half(config: Configuration) -> list[Step]:
    tensor, hidden, ffn = config.tensor_model_parallel_size, config.hidden_size, config.ffn_hidden_size
    gate = 2 if config.swiglu else 1
    stream, inner = config.width * hidden / _spread(config), config.width * ffn / tensor
    return _half(
        config,
        "MLP",
        [
            Step("first of MLP", stream, gate * inner + stream, gate * hidden * ffn / tensor),
            Step("activation function", gate * inner, inner + gate * inner),
            Step("second of MLP", inner, stream + inner, hidden * ffn / tensor),
        ],
    )


def _expert_half(config: Configuration) -> list[Step]:
    """Routed tokens are as many as the router sends out, evenly: what varies is around this."""
    tensor, hidden, chosen = config.tensor_model_parallel_size, config.hidden_size, config.moe_router_topk
    gate = 2 if config.swiglu else 1
    stream = config.width * hidden / _spread(config)
    copies = chosen * config.width * hidden / tensor  # of tokens, one for each expert that they go to
    inner = config.width * (chosen * config.moe_ffn_hidden_size + config.moe_shared_expert_intermediate_size) / tensor
    return _half(
        config,
        "experts",
        [
            Step("router", stream + _FLOAT * config.num_experts, 2 * stream),
            Step("first of experts", copies, gate * inner + copies),
            Step("activation function", gate * inner, inner + gate * inner),
            Step("second of experts", inner, copies + inner),
            Step("return of tokens", copies, 2 * copies),
        ],
    )
