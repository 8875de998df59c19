"""Three families of models, small: a decoder as Llama, an encoder as BERT, a residual convnet.

Written out in plain torch, so that what each operation keeps for the backward pass is what it is in models that people
train.
"""

from __future__ import annotations

from typing import Any, Optional

import torch
from torch import nn


class RootMeanSquare(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))


class RotaryAttention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.o = (nn.Linear(width, width, bias=False) for _ in range(4))

    def forward(self, x: torch.Tensor, *, cosines: torch.Tensor, sines: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        q, k, v = (layer(x).view(batch, length, self.heads, -1).transpose(1, 2) for layer in (self.q, self.k, self.v))
        q, k = (y * cosines + torch.cat((-y.chunk(2, -1)[1], y.chunk(2, -1)[0]), -1) * sines for y in (q, k))
        context = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o(context.transpose(1, 2).reshape(batch, length, width))


class GatedMLP(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.gate, self.up = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, 3 * width, bias=False)
        self.down, self.act = nn.Linear(3 * width, width, bias=False), nn.SiLU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(self.act(self.gate(x)) * self.up(x))


class DecoderLayer(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.before_attention, self.attention = RootMeanSquare(width), RotaryAttention(width, 4)
        self.before_mlp, self.mlp = RootMeanSquare(width), GatedMLP(width)

    def forward(self, x: torch.Tensor, cosines: torch.Tensor, sines: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.before_attention(x), cosines=cosines, sines=sines)
        return x + self.mlp(self.before_mlp(x))


class LanguageModel(nn.Module):
    """What both kinds have around their layers. The loss is a part of the model."""

    def __init__(self, width: int, vocabulary: int, layers: list[nn.Module]) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.layers = nn.ModuleList(layers)
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, inputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return self.loss(self.body(inputs), labels)

    def body(self, inputs: torch.Tensor) -> torch.Tensor:
        raise NotImplementedError

    def loss(self, hidden: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        logits = self.head(hidden).float()
        return nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())


class Decoder(LanguageModel):
    def __init__(self, width: int = 64, vocabulary: int = 1000) -> None:
        super().__init__(width, vocabulary, [DecoderLayer(width) for _ in range(4)])
        self.norm, self.each = RootMeanSquare(width), width // 4

    def body(self, inputs: torch.Tensor) -> torch.Tensor:
        places = torch.arange(inputs.shape[1])[:, None] * torch.arange(1, self.each // 2 + 1).reciprocal()
        cosines, sines = (f(torch.cat((places, places), -1)) for f in (torch.cos, torch.sin))
        x = self.embedding(inputs)
        for layer in self.layers:
            x = layer(x, cosines, sines)
        return self.norm(x)


class ScoredAttention(nn.Module):
    """By scores that are there as a whole, with dropout."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.qkv, self.o = heads, nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.softmax, self.drop = nn.Softmax(-1), nn.Dropout(0.1)

    def forward(self, x: torch.Tensor, mask: Optional[torch.Tensor] = None) -> torch.Tensor:
        batch, length, width = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-2, -1) / (width // self.heads) ** 0.5
        shares = self.drop(self.softmax(scores if mask is None else scores + mask))
        return self.o((shares @ v).transpose(1, 2).reshape(batch, length, width))


class EncoderLayer(nn.Module):
    """Normalises behind each half."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.attention, self.after_attention = ScoredAttention(width, 4), nn.LayerNorm(width)
        self.up, self.act, self.down = nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        self.drop, self.after_mlp = nn.Dropout(0.1), nn.LayerNorm(width)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        x = self.after_attention(x + self.drop(self.attention(x, mask)))
        return self.after_mlp(x + self.drop(self.down(self.act(self.up(x)))))


class Encoder(LanguageModel):
    def __init__(self, width: int = 64, vocabulary: int = 500) -> None:
        super().__init__(width, vocabulary, [EncoderLayer(width) for _ in range(4)])
        self.positions, self.norm = nn.Embedding(64, width), nn.LayerNorm(width)

    def body(self, inputs: torch.Tensor) -> torch.Tensor:
        x = self.norm(self.embedding(inputs) + self.positions(torch.arange(inputs.shape[1])))
        mask = torch.zeros(inputs.shape[0], 1, 1, inputs.shape[1]).masked_fill(inputs[:, None, None] == 0, -1e9)
        for layer in self.layers:
            x = layer(x, mask)
        return x


class ResidualBlock(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv1, self.conv2 = (nn.Conv2d(channels, channels, 3, padding=1, bias=False) for _ in range(2))
        self.norm1, self.norm2, self.relu = nn.BatchNorm2d(channels), nn.BatchNorm2d(channels), nn.ReLU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        inner = self.relu(self.norm1(self.conv1(x)))
        return self.relu(self.norm2(self.conv2(inner)) + x)


class ConvNet(nn.Module):
    def __init__(self, channels: int = 16) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, channels, 3, padding=1), nn.BatchNorm2d(channels), nn.ReLU())
        self.blocks = nn.ModuleList([ResidualBlock(channels) for _ in range(4)])
        self.pool, self.head = nn.MaxPool2d(2), nn.Linear(channels, 10)

    def forward(self, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        x = self.stem(images)
        for block in self.blocks:
            x = block(x)
        return nn.functional.cross_entropy(self.head(self.pool(x).mean((2, 3))), labels)


def make(family: str, batch: int) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """A model and its batch, always the same."""
    torch.manual_seed(0)
    if family == "convnet":
        return ConvNet(), (torch.randn(batch, 3, 32, 32), torch.randint(10, (batch,)))
    model: Any = {"decoder": Decoder, "encoder": Encoder, "wide": lambda: Decoder(256, 500)}[family]()
    tokens = torch.randint(1, 500, (batch, 64))
    return model, (tokens, tokens)
