"""What Megatron's own modules lack where TransformerEngine is not installed, and some configurations need.

Norms under sequence parallelism: torch's see only a part of the sequence, so their gradients have to be summed over
the tensor-parallel ranks, which Megatron does where a parameter says so. Multi-latent attention: Megatron's own core
attention takes no channel counts; where those of keys and values are `--kv-channels`, it needs none.
"""

from __future__ import annotations

import argparse
from typing import Any

import torch
from megatron.core.transformer import torch_norm
from megatron.core.transformer.dot_product_attention import DotProductAttention


def supply(args: argparse.Namespace) -> None:
    """Applies what `args` request. Call it before the model is built."""
    if args.sequence_parallel:
        torch_norm.WrappedTorchNorm.__new__ = _norm  # type: ignore[method-assign]
    if args.multi_latent_attention:
        _let_attention_take_channels()


def _norm(_: type, config: Any, hidden_size: int, eps: float = 1e-5, **__: Any) -> torch.nn.Module:
    kind = torch.nn.LayerNorm if config.normalization == "LayerNorm" else torch.nn.RMSNorm
    norm = kind(hidden_size, eps=eps)
    for parameter in norm.parameters():
        parameter.sequence_parallel = config.sequence_parallel  # type: ignore[attr-defined]
    return norm


def _let_attention_take_channels() -> None:
    original = DotProductAttention.__init__

    def init(self: Any, config: Any, *args: Any, k_channels: Any = None, v_channels: Any = None, **kwargs: Any) -> None:
        for channels in (k_channels, v_channels):
            if channels not in (None, config.kv_channels):
                raise ValueError(f"core attention of --kv-channels {config.kv_channels} cannot have {channels}")
        original(self, config, *args, **kwargs)

    DotProductAttention.__init__ = init
