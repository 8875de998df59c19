"""The splits of a Megatron-LM model over GPUs, each estimated (estimate.py). Bytes.

Splits of tensor, pipeline, context and expert parallelism that the configuration allows; data parallelism takes the
rest. The global batch stays. Sequence parallelism goes with tensor parallelism, interleaving where the pipeline stays.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Optional

from stalloc.tools.report.configuration import Configuration
from stalloc.tools.report.estimate import estimate

_NODE = 8  # GPUs that tensor parallelism may span: more would leave the node


@dataclasses.dataclass(frozen=True)
class Split:
    """`total` is of the rank that needs most; `bubble` the share of the pipeline's time in which a stage waits."""

    config: Configuration
    total: int
    bubble: float

    @property
    def order(self) -> tuple[float, ...]:
        """The costs of a split: none is higher in a better split."""
        config = self.config
        parts = (config.tensor_model_parallel_size, config.context_parallel_size, config.expert_model_parallel_size)
        return (*parts, self.bubble)

    def __str__(self) -> str:
        config = self.config
        parts = {
            "TP": config.tensor_model_parallel_size,
            "PP": config.pipeline_model_parallel_size,
            "VPP": config.virtual_stages,
            "CP": config.context_parallel_size,
            "EP": config.expert_model_parallel_size,
            "DP": config.data_parallel // config.context_parallel_size,
        }
        return " ".join(f"{name}{count}" for name, count in parts.items() if count > 1) or "no split"


def evaluate(config: Configuration) -> Split:
    """All stages of the pipeline are estimated."""
    stages = config.pipeline_model_parallel_size
    ranks = range(0, config.world_size, max(1, config.world_size // stages))
    total = max(estimate(dataclasses.replace(config, rank=rank)).total for rank in ranks)
    waiting = (stages - 1) / config.virtual_stages
    return Split(config, total, waiting / (config.micro_batches + waiting))


def possible(config: Configuration, gpus: int) -> Iterator[Split]:
    """All that divide heads, layers, sequence, experts and batch evenly."""
    for tensor in _divisors(min(gpus, _NODE)):
        if gpus % tensor or config.num_attention_heads % tensor or config.num_query_groups % tensor:
            continue
        for stages in _divisors(config.num_layers):
            if gpus % (tensor * stages):
                continue
            replicas = gpus // (tensor * stages)
            for context in _divisors(replicas):
                if config.seq_length % (2 * context):
                    continue
                yield from _with_experts(_changed(config, gpus, tensor, stages, context))


def _changed(config: Configuration, gpus: int, tensor: int, stages: int, context: int) -> Configuration:
    return dataclasses.replace(
        config,
        world_size=gpus,
        rank=0,
        tensor_model_parallel_size=tensor,
        pipeline_model_parallel_size=stages,
        virtual_stages=config.virtual_stages if stages == config.pipeline_model_parallel_size else 1,
        context_parallel_size=context,
        sequence_parallel=tensor > 1,
    )


def _with_experts(config: Configuration) -> Iterator[Split]:
    replicas = config.data_parallel // config.context_parallel_size
    if config.global_batch_size % (config.micro_batch_size * replicas):
        return
    for expert in _divisors(config.num_experts) if config.num_experts else (1,):
        if config.data_parallel % expert == 0:
            yield evaluate(dataclasses.replace(config, expert_model_parallel_size=expert))


def _divisors(number: int) -> list[int]:
    return [part for part in range(1, number + 1) if number % part == 0]


def worthwhile(splits: list[Split]) -> list[Split]:
    """Without those that cost as much as another, or more, and need no less; by what they need."""
    ordered = sorted(splits, key=lambda split: (split.total, split.order))
    kept: list[Split] = []
    for split in ordered:
        if not any(all(a <= b for a, b in zip(other.order, split.order)) for other in kept):
            kept.append(split)
    return kept


def better(config: Configuration, gpus: Optional[int] = None) -> tuple[Split, list[Split]]:
    """The configuration as it is, and worthwhile splits that need less; over as many GPUs if no number is given."""
    now = evaluate(config)
    found = worthwhile(list(possible(config, gpus or config.world_size)))
    return now, [split for split in found if split.total < now.total]
