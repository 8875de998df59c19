"""A small decoder with the names and the habits of transformers' Llama, for machines without it: paths as
model.layers.3.self_attn.q_proj, normalization in float32, and keys and values that every layer stores in a cache which
the caller gets with the loss, where the argument use_cache says so, else config.use_cache."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Optional

import torch
from torch import Tensor, nn
from torch.nn import functional

Cache = list[tuple[Tensor, Tensor]]


class LlamaRMSNorm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        wide = x.float()
        return self.weight * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype)


class LlamaAttention(nn.Module):
    def __init__(self, width: int, heads: int, shared: int) -> None:
        super().__init__()
        self.heads, self.shared = heads, shared
        head = width // heads
        self.q_proj = nn.Linear(width, width, bias=False)
        self.k_proj = nn.Linear(width, shared * head, bias=False)
        self.v_proj = nn.Linear(width, shared * head, bias=False)
        self.o_proj = nn.Linear(width, width, bias=False)

    def forward(self, x: Tensor, cache: Optional[Cache]) -> Tensor:
        batch, length, width = x.shape
        head = width // self.heads
        q, k, v = (
            projection(x).view(batch, length, -1, head).transpose(1, 2)
            for projection in (self.q_proj, self.k_proj, self.v_proj)
        )
        if cache is not None:
            cache.append((k, v))
        k, v = (each.repeat_interleave(self.heads // self.shared, 1) for each in (k, v))
        found = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o_proj(found.transpose(1, 2).reshape(batch, length, width))


class LlamaMLP(nn.Module):
    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(width, inner, bias=False)
        self.up_proj = nn.Linear(width, inner, bias=False)
        self.down_proj = nn.Linear(inner, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x))


class LlamaDecoderLayer(nn.Module):
    def __init__(self, width: int, inner: int, heads: int, shared: int) -> None:
        super().__init__()
        self.self_attn = LlamaAttention(width, heads, shared)
        self.mlp = LlamaMLP(width, inner)
        self.input_layernorm, self.post_attention_layernorm = LlamaRMSNorm(width), LlamaRMSNorm(width)

    def forward(self, x: Tensor, cache: Optional[Cache]) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), cache)
        return x + self.mlp(self.post_attention_layernorm(x))


class LlamaModel(nn.Module):
    def __init__(self, config: SimpleNamespace) -> None:
        super().__init__()
        self.config = config
        self.embed_tokens = nn.Embedding(500, 64)
        self.layers = nn.ModuleList(LlamaDecoderLayer(64, 160, 4, 2) for _ in range(4))
        self.norm = LlamaRMSNorm(64)

    def forward(self, ids: Tensor, use_cache: Optional[bool] = None) -> tuple[Tensor, Optional[Cache]]:
        use_cache = self.config.use_cache if use_cache is None else use_cache
        cache: Optional[Cache] = [] if use_cache else None
        x = self.embed_tokens(ids)
        for layer in self.layers:
            x = layer(x, cache)
        return self.norm(x), cache


class LlamaForCausalLM(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.config = SimpleNamespace(use_cache=True)
        self.model = LlamaModel(self.config)
        self.lm_head = nn.Linear(64, 500, bias=False)

    def forward(self, ids: Tensor, use_cache: Optional[bool] = None) -> tuple[Tensor, Optional[Cache]]:
        """The loss of the next tokens, and the cache."""
        hidden, cache = self.model(ids, use_cache=use_cache)
        logits = self.lm_head(hidden).float()
        return functional.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten()), cache
