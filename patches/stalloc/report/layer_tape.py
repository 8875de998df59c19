"""One transformer layer as autograd sees it: what each operation keeps, and what its backward needs besides. Bytes.

Sizes are of one token of one micro-batch (divided by tensor parallelism) but for weights. Operations are those of
megatron-core's local layers: attention by matrices of scores (core/transformer/dot_product_attention.py) or fused; a
tensor that several operations need stands at the first of them, which lets it go last. Kept sums are those of
Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models" (2205.05198).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stalloc.report.estimate import Configuration

_HALF, _FLOAT, _MASK = 2, 4, 1  # bytes an element: bf16 or fp16; statistics; dropout


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


def kept(config: Configuration) -> float:
    """What a layer keeps of one micro-batch."""
    return _tokens(config) * sum(step.kept for step in _steps(config))


def worst_moment(config: Configuration) -> Moment:
    """Of the backward pass of one layer. The gradient of the residual stream is there all the time."""
    tokens, width = _tokens(config), _HALF
    moments, freed = [], 0.0
    residual = width * config.hidden_size / _spread(config)
    for step in reversed(_steps(config)):
        temporaries = tokens * (residual + step.backward) + width * step.weights
        moments.append(Moment(step.name, temporaries, tokens * freed))
        freed += step.kept
    return max(moments, key=lambda moment: moment.above)


def _tokens(config: Configuration) -> int:
    return config.seq_length * config.micro_batch_size // config.context_parallel_size


def _spread(config: Configuration) -> int:
    """Over how many ranks the sequence is spread outside of attention and MLP."""
    return config.tensor_model_parallel_size if config.sequence_parallel else 1


def _steps(config: Configuration) -> list[Step]:
    return [*_attention_half(config), *(_expert_half(config) if config.num_experts else _mlp_half(config))]


def _half(config: Configuration, name: str, inner: Sequence[Step]) -> list[Step]:
    """Norm, what is inside, dropout: each half of a layer."""
    stream = _HALF * config.hidden_size / _spread(config)
    mask = _MASK * config.hidden_size / _spread(config) if config.hidden_dropout > 0 else 0.0
    return [Step(f"norm of {name}", stream, 2 * stream), *inner, Step(f"dropout of {name}", mask, 2 * stream)]


def _attention_half(config: Configuration) -> list[Step]:
    tensor, hidden = config.tensor_model_parallel_size, config.hidden_size
    heads, groups, channels = config.num_attention_heads, config.num_query_groups, config.kv_channels
    stream = _HALF * hidden / _spread(config)
    projected = _HALF * (heads + 2 * groups) * channels / tensor
    context = _HALF * heads * channels / tensor
    core = (_fused_attention if config.fused_attention else _attention_by_scores)(config, projected, context)
    inside = [
        Step("query, key, value", stream, projected + stream, hidden * (heads + 2 * groups) * channels / tensor),
        *core,
        Step("attention's projection", context, stream + context, hidden * heads * channels / tensor),
    ]
    return _half(config, "attention", inside)


def _rotated(config: Configuration) -> float:
    """Queries and keys after the rotation: copies, beside the projection that values are a view of."""
    if not config.rotary:
        return 0.0
    heads = config.num_attention_heads + config.num_query_groups
    return _HALF * heads * config.kv_channels / config.tensor_model_parallel_size


def _fused_attention(config: Configuration, projected: float, context: float) -> list[Step]:
    statistics = _FLOAT * config.num_attention_heads / config.tensor_model_parallel_size  # a row's, in fp32
    return [Step("fused attention", projected + _rotated(config) + statistics, context + projected)]


def _attention_by_scores(config: Configuration, projected: float, context: float) -> list[Step]:
    elements = config.num_attention_heads * config.seq_length / config.tensor_model_parallel_size
    scores = _HALF * elements
    width = _FLOAT if config.attention_softmax_in_fp32 else _HALF
    rotated = _rotated(config)
    # Without rotation queries, keys and values are views of one tensor, which the first product lets go.
    queries, values = (rotated, projected) if rotated else (projected, 0.0)
    if config.num_query_groups != config.num_attention_heads:  # keys and values are repeated for each head
        queries, values = 2 * context, context
    dropped = config.attention_dropout > 0
    lowered = scores if config.attention_softmax_in_fp32 and not dropped else 0.0  # half-precision copy, multiplied
    steps = [
        Step("scores", queries, scores + 2 * context),
        # torch multiplies gradient and output into a tensor of its own before it reduces rows.
        Step("softmax", width * elements, 3 * width * elements),
    ]
    if dropped:
        steps.append(Step("dropout of scores", _MASK * elements, 2 * scores))
    steps.append(Step("values", values + (scores if dropped else lowered), context + scores + context))
    return steps


def _mlp_half(config: Configuration) -> list[Step]:
    tensor, hidden, ffn = config.tensor_model_parallel_size, config.hidden_size, config.ffn_hidden_size
    gate = 2 if config.swiglu else 1
    stream, inner = _HALF * hidden / _spread(config), _HALF * ffn / tensor
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
    stream = _HALF * hidden / _spread(config)
    copies = chosen * _HALF * hidden / tensor  # of tokens, one for each expert that they go to
    inner = _HALF * (chosen * config.moe_ffn_hidden_size + config.moe_shared_expert_intermediate_size) / tensor
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
