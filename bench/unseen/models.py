"""Models of the workloads, in float32 and plain PyTorch; experts get as many tokens as routing.py draws."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Union

import torch
from routing import Router
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint


@dataclasses.dataclass(frozen=True)
class Sizes:
    """Widths; `tokens` of a full micro-batch."""

    hidden: int = 128
    heads: int = 4
    ffn: int = 352
    vocab: int = 2000
    tokens: int = 1024

    def times(self, factor: float) -> Sizes:
        return Sizes(*(int(size * factor) for size in dataclasses.astuple(self)))


class RmsNorm(nn.Module):
    """Root-mean-square norm."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(hidden))

    def forward(self, x: Tensor) -> Tensor:
        return functional.rms_norm(x, (x.shape[-1],), self.weight, 1e-5)


# Of packed documents: their lengths, for attention one by one, or a mask.
Documents = Union[Sequence[int], Tensor, None]


class Attention(nn.Module):
    """Self-attention; of packed documents, document by document or under a mask."""

    def __init__(self, sizes: Sizes, causal: bool) -> None:
        super().__init__()
        self.heads = sizes.heads
        self.causal = causal
        self.qkv = nn.Linear(sizes.hidden, 3 * sizes.hidden, bias=False)
        self.out = nn.Linear(sizes.hidden, sizes.hidden, bias=False)

    def heads_of(self, qkv: Tensor) -> Tensor:
        """Queries, keys and values, head by head."""
        return qkv.unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)

    def _attend(self, qkv: Tensor, mask: Tensor | None = None) -> Tensor:
        batch, length, width = qkv.shape
        q, k, v = self.heads_of(qkv)
        y = functional.scaled_dot_product_attention(q, k, v, mask, is_causal=self.causal and mask is None)
        return y.transpose(1, 2).reshape(batch, length, width // 3)

    def forward(self, x: Tensor, documents: Documents = None) -> Tensor:
        qkv = self.qkv(x)
        if documents is None or isinstance(documents, Tensor):
            return self.out(self._attend(qkv, documents))
        return self.out(torch.cat([self._attend(part) for part in qkv.split(list(documents), dim=1)], dim=1))


class CrossAttention(nn.Module):
    """Attention to another model's output."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.heads = sizes.heads
        self.query = nn.Linear(sizes.hidden, sizes.hidden, bias=False)
        self.key_value = nn.Linear(sizes.hidden, 2 * sizes.hidden, bias=False)
        self.out = nn.Linear(sizes.hidden, sizes.hidden, bias=False)

    def forward(self, x: Tensor, memory: Tensor) -> Tensor:
        q = self.query(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        k, v = self.key_value(memory).unflatten(-1, (2, self.heads, -1)).permute(2, 0, 3, 1, 4)
        return self.out(functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(x.shape))


class SwiGlu(nn.Module):
    """Gated feed-forward block; also one expert."""

    def __init__(self, hidden: int, ffn: int) -> None:
        super().__init__()
        self.gate = nn.Linear(hidden, ffn, bias=False)
        self.up = nn.Linear(hidden, ffn, bias=False)
        self.down = nn.Linear(ffn, hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(functional.silu(self.gate(x)) * self.up(x))


class MixtureOfExperts(nn.Module):
    """Experts whose tokens are any rows, as many as the router draws: memory is that of real routing."""

    def __init__(self, sizes: Sizes, router: Router, layer: int) -> None:
        super().__init__()
        experts = router.experts
        self.top_k = experts.top_k
        self.routed = router
        self.layer = layer
        self.dispatch = {"loop": self._one_by_one, "split": self._split, "grouped": self._grouped}[experts.dispatch]
        self.gate = nn.Linear(sizes.hidden, experts.count, bias=False)
        ffn = sizes.ffn // experts.ffn_divisor
        self.experts = nn.ModuleList(SwiGlu(sizes.hidden, ffn) for _ in range(experts.count))
        self.shared = SwiGlu(sizes.hidden, ffn) if experts.shared else None

    def forward(self, x: Tensor) -> Tensor:
        tokens = x.reshape(-1, x.shape[-1])
        weights, _ = torch.topk(functional.softmax(self.gate(tokens).float(), dim=-1), self.top_k, dim=-1)
        counts = self.routed.counts(self.layer, len(tokens) * self.top_k)
        result = self.dispatch(tokens, weights[:, :1], counts)
        if self.shared is not None:
            result = result + self.shared(tokens)
        return result.view_as(x)

    def _one_by_one(self, tokens: Tensor, weights: Tensor, counts: list[int]) -> Tensor:
        result = torch.zeros_like(tokens)
        for expert, count in zip(self.experts, counts):
            if count:
                rows = any_rows(tokens, count)
                result = result.index_add(0, rows, expert(tokens[rows]) * weights[rows])
        return result

    def _split(self, tokens: Tensor, weights: Tensor, counts: list[int]) -> Tensor:
        rows = any_rows(tokens, sum(counts))
        parts = tokens[rows].split(counts)
        computed = torch.cat([expert(part) for expert, part in zip(self.experts, parts)])
        return torch.zeros_like(tokens).index_add(0, rows, computed * weights[rows])

    def _grouped(self, tokens: Tensor, weights: Tensor, counts: list[int]) -> Tensor:
        rows = any_rows(tokens, sum(counts))
        permuted = tokens[rows]
        computed = self.experts[0](permuted)
        for expert in self.experts[1:]:
            computed = computed + expert(permuted)
        return torch.zeros_like(tokens).index_add(0, rows, computed * weights[rows])


def any_rows(tokens: Tensor, count: int) -> Tensor:
    return torch.randint(0, len(tokens), (count,), device=tokens.device)


class Block(nn.Module):
    """One transformer layer."""

    def __init__(self, sizes: Sizes, feed_forward: nn.Module, causal: bool, cross: bool) -> None:
        super().__init__()
        self.norm1 = RmsNorm(sizes.hidden)
        self.attention = Attention(sizes, causal)
        self.norm2 = RmsNorm(sizes.hidden)
        self.feed_forward = feed_forward
        self.cross = CrossAttention(sizes) if cross else None
        self.norm3 = RmsNorm(sizes.hidden) if cross else None

    def forward(self, x: Tensor, memory: Tensor | None = None, documents: Documents = None) -> Tensor:
        x = x + self.attention(self.norm1(x), documents)
        if self.cross is not None and self.norm3 is not None:
            x = x + self.cross(self.norm3(x), memory)
        return x + self.feed_forward(self.norm2(x))


class Trunk(nn.Module):
    """A transformer's layers and its last norm, on embeddings."""

    def __init__(
        self,
        sizes: Sizes,
        layers: int,
        router: Router | None = None,
        recompute: str = "none",  # none, half (every second layer), full
        *,
        causal: bool = True,
        cross: bool = False,
    ) -> None:
        super().__init__()
        self.recompute = recompute
        feed_forwards = [feed_forward(sizes, router, layer) for layer in range(layers)]
        self.blocks = nn.ModuleList(Block(sizes, module, causal, cross) for module in feed_forwards)
        self.norm = RmsNorm(sizes.hidden)

    def _recomputed(self, layer: int) -> bool:
        chosen = self.recompute == "full" or (self.recompute == "half" and layer % 2 == 0)
        return chosen and torch.is_grad_enabled()

    def forward(self, x: Tensor, memory: Tensor | None = None, documents: Documents = None) -> Tensor:
        for layer, block in enumerate(self.blocks):
            if self._recomputed(layer):
                x = checkpoint(block, x, memory, documents, use_reentrant=False)
            else:
                x = block(x, memory, documents)
        return self.norm(x)


def feed_forward(sizes: Sizes, router: Router | None, layer: int) -> nn.Module:
    if router is not None and layer % router.experts.every == 0:
        return MixtureOfExperts(sizes, router, layer)
    return SwiGlu(sizes.hidden, sizes.ffn)


class Gpt(nn.Module):
    """A trunk between embedding and logits, whose weights are one."""

    def __init__(self, sizes: Sizes, trunk: Trunk) -> None:
        super().__init__()
        self.embedding = nn.Embedding(sizes.vocab, sizes.hidden)
        nn.init.normal_(self.embedding.weight, std=0.02)
        self.trunk = trunk

    def hidden(self, ids: Tensor, memory: Tensor | None = None, documents: Documents = None) -> Tensor:
        return self.trunk(self.embedding(ids), memory, documents)

    def forward(self, ids: Tensor, memory: Tensor | None = None, documents: Documents = None) -> Tensor:
        """The logits."""
        return functional.linear(self.hidden(ids, memory, documents), self.embedding.weight)


class LowRank(nn.Module):
    """A frozen linear layer with a trained low-rank one added to it."""

    def __init__(self, frozen: nn.Linear, rank: int) -> None:
        super().__init__()
        self.frozen = frozen
        self.down = nn.Linear(frozen.in_features, rank, bias=False)
        self.up = nn.Linear(rank, frozen.out_features, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.frozen(x) + self.up(self.down(x))


def convolutional(classes: int) -> nn.Sequential:
    """A small network for images of any size."""
    stages = [(32, 2), (64, 1), (64, 1), (128, 2), (128, 1), (128, 1), (256, 2), (256, 1), (256, 1)]
    layers: list[nn.Module] = []
    width = 3
    for channels, stride in stages:
        layers += [nn.Conv2d(width, channels, 3, stride, 1, bias=False), nn.GroupNorm(8, channels), nn.ReLU()]
        width = channels
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, classes))


class MasterWeightAdamW:
    """AdamW on copies of the weights: gradients are copied, too, as mixed precision does."""

    def __init__(self, parameters: Iterable[nn.Parameter]) -> None:
        self.parameters = [parameter for parameter in parameters if parameter.requires_grad]
        self.masters = [nn.Parameter(parameter.detach().clone()) for parameter in self.parameters]
        self.optimizer = torch.optim.AdamW(self.masters, lr=1e-4, foreach=True)

    def step(self) -> None:
        """Leaves no gradients."""
        for parameter, master in zip(self.parameters, self.masters):
            master.grad = None if parameter.grad is None else parameter.grad.clone()
            parameter.grad = None
        self.optimizer.step()
        with torch.no_grad():
            for parameter, master in zip(self.parameters, self.masters):
                parameter.copy_(master)
                master.grad = None
