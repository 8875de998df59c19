"""A Llama-like decoder in plain PyTorch: grouped queries, rotary embedding, gated MLP; LoRA and a growing cache.

Weights are random: what is measured is memory and speed.
"""

from __future__ import annotations

import dataclasses
from typing import Optional

import torch
from torch import Tensor, nn
from torch.nn import functional

Cache = list[Optional[tuple[Tensor, Tensor]]]  # keys and values of each layer


@dataclasses.dataclass(frozen=True)
class Shape:
    """Sizes of a decoder."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    ffn: int
    vocabulary: int
    lora_rank: int = 0  # 0: all weights train
    experts: int = 0  # of each layer, with a fixed capacity; 0: it is dense


class LoraLinear(nn.Module):
    """A frozen matrix, and two thin ones that train."""

    def __init__(self, inputs: int, outputs: int, rank: int) -> None:
        super().__init__()
        self.base = nn.Linear(inputs, outputs, bias=False)
        self.base.weight.requires_grad_(False)
        self.down = nn.Linear(inputs, rank, bias=False)
        self.up = nn.Linear(rank, outputs, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + self.up(self.down(x))


class RootMeanSquare(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        return functional.rms_norm(x, (x.shape[-1],), self.weight, 1e-5)


def _rotate(x: Tensor, angles: Tensor) -> Tensor:
    half = x.shape[-1] // 2
    cosine, sine = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    first, second = x[..., :half], x[..., half:]
    return torch.cat((first * cosine - second * sine, second * cosine + first * sine), -1)


class Attention(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.grouped = shape.heads != shape.kv_heads  # compiled with dynamic sizes it would be no bool where it is used
        head = shape.hidden // shape.heads
        self.queries = _linear(shape, shape.hidden, shape.hidden)
        self.keys = _linear(shape, shape.hidden, shape.kv_heads * head)
        self.values = _linear(shape, shape.hidden, shape.kv_heads * head)
        self.output = _linear(shape, shape.hidden, shape.hidden)

    def forward(
        self, x: Tensor, angles: Tensor, past: Optional[tuple[Tensor, Tensor]]
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        batch, length, width = x.shape
        head = width // self.shape.heads
        q, k, v = (
            layer(x).view(batch, length, -1, head).transpose(1, 2) for layer in (self.queries, self.keys, self.values)
        )
        q, k = _rotate(q, angles), _rotate(k, angles)
        if past is not None:
            k, v = torch.cat((past[0], k), 2), torch.cat((past[1], v), 2)
        found = functional.scaled_dot_product_attention(q, k, v, is_causal=past is None, enable_gqa=self.grouped)
        return self.output(found.transpose(1, 2).reshape(batch, length, width)), (k, v)


class MLP(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.gate = _linear(shape, shape.hidden, shape.ffn)
        self.up = _linear(shape, shape.hidden, shape.ffn)
        self.down = _linear(shape, shape.ffn, shape.hidden)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(functional.silu(self.gate(x)) * self.up(x))


class Experts(nn.Module):
    """Each expert takes the tokens that weigh it most, as many as its capacity: no size depends on the data."""

    def __init__(self, shape: Shape, count: int) -> None:
        super().__init__()
        self.router = nn.Linear(shape.hidden, count, bias=False)
        self.experts = nn.ModuleList(MLP(shape) for _ in range(count))

    def forward(self, x: Tensor) -> Tensor:
        tokens = x.reshape(-1, x.shape[-1])
        capacity = max(1, 2 * len(tokens) // len(self.experts))
        weights, taken = self.router(tokens).float().softmax(-1).t().topk(capacity)
        result = torch.zeros_like(tokens)
        for number, expert in enumerate(self.experts):
            weighed = expert(tokens[taken[number]]) * weights[number][:, None].to(x.dtype)
            result.index_add_(0, taken[number], weighed)
        return result.view_as(x)


class Block(nn.Module):
    """Gives its output, and keys and values only if a cache is requested."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.before_attention, self.attention = RootMeanSquare(shape.hidden), Attention(shape)
        self.before_mlp = RootMeanSquare(shape.hidden)
        self.mlp = Experts(shape, shape.experts) if shape.experts else MLP(shape)

    def forward(self, x: Tensor, angles: Tensor) -> Tensor:
        x = x + self.attention(self.before_attention(x), angles, None)[0]
        return x + self.mlp(self.before_mlp(x))

    def extend(
        self, x: Tensor, angles: Tensor, past: Optional[tuple[Tensor, Tensor]]
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        found, kept = self.attention(self.before_attention(x), angles, past)
        x = x + found
        return x + self.mlp(self.before_mlp(x)), kept


class Decoder(nn.Module):
    """`forward` gives the loss of the next tokens (label -100 does not count); without labels, `count` more tokens."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.embedding = nn.Embedding(shape.vocabulary, shape.hidden)
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.layers))
        self.norm = RootMeanSquare(shape.hidden)
        self.head = nn.Linear(shape.hidden, shape.vocabulary, bias=False)
        if shape.lora_rank:
            for part in (self.embedding, self.norm, self.head):
                part.requires_grad_(False)

    def forward(self, tokens: Tensor, labels: Optional[Tensor] = None, count: int = 0) -> Tensor:
        if labels is None:
            return self._generate(tokens, count)
        x = self.embedding(tokens)
        if self.shape.lora_rank:
            x.requires_grad_()  # so that recomputed blocks have gradients
        angles = self._angles(0, tokens.shape[1], tokens.device)
        for block in self.blocks:
            x = block(x, angles)
        logits = self.head(self.norm(x)).float()
        return functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-100)

    @torch.no_grad()
    def _generate(self, tokens: Tensor, count: int) -> Tensor:
        """With `count` more tokens, drawn one by one over a cache that grows."""
        cache: Cache = [None] * len(self.blocks)
        x, begin = tokens, 0
        for _ in range(count):
            hidden = self.embedding(x)
            angles = self._angles(begin, x.shape[1], tokens.device)
            for i, block in enumerate(self.blocks):
                hidden, cache[i] = block.extend(hidden, angles, cache[i])
            begin += x.shape[1]
            logits = self.head(self.norm(hidden[:, -1])).float()
            x = torch.multinomial(logits.softmax(-1), 1)
            tokens = torch.cat((tokens, x), 1)
        return tokens

    def _angles(self, begin: int, length: int, device: torch.device) -> Tensor:
        half = self.shape.hidden // self.shape.heads // 2
        speeds = 10000.0 ** (-torch.arange(half, device=device) / half)
        return torch.arange(begin, begin + length, device=device)[:, None] * speeds


def _linear(shape: Shape, inputs: int, outputs: int) -> nn.Module:
    if shape.lora_rank:
        return LoraLinear(inputs, outputs, shape.lora_rank)
    return nn.Linear(inputs, outputs, bias=False)
