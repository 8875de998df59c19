"""Further programs: models of which some layers see some tokens, of two tasks, and that train on what they generate."""

from __future__ import annotations

import torch
from models import Attention, Block
from programs import CLASSES, LanguageModel, Plan, random_ids, random_images
from routing import Images, Sequences, Shape
from torch import Tensor, nn
from torch.nn import functional


class PartialDepth(LanguageModel):
    """Each layer sees a share of the tokens: mixture of depths; none: stochastic depth, early exit."""

    def _layer(self, block: nn.Module, x: Tensor, share: float) -> Tensor:
        if share in (0.0, 1.0):
            return block(x) if share else x
        seen = torch.randperm(x.shape[1])[: max(1, int(share * x.shape[1]))].sort().values
        return x.index_add(1, seen, block(x[:, seen]) - x[:, seen])

    def forward(self, shape: Sequences) -> Tensor:
        ids = random_ids(self.vocab, shape.count, shape.length + 1)
        x = self.gpt.embedding(ids[:, :-1])
        for block, share in zip(self.gpt.trunk.blocks, shape.shares):
            x = self._layer(block, x, share)
        logits = functional.linear(self.gpt.trunk.norm(x), self.gpt.embedding.weight)
        return functional.cross_entropy(logits.flatten(0, 1).float(), ids[:, 1:].flatten())


class Masked(LanguageModel):
    """Packed documents in one attention, under a mask that separates them."""

    def forward(self, shape: Sequences) -> Tensor:
        ids = random_ids(self.vocab, shape.count, shape.length + 1)
        assert shape.documents is not None
        document = torch.repeat_interleave(torch.tensor(shape.documents))
        mask = (document[:, None] == document[None, :]).tril()
        hidden = self.gpt.trunk(self.gpt.embedding(ids[:, :-1]), documents=mask)
        logits = functional.linear(hidden, self.gpt.embedding.weight)
        return functional.cross_entropy(logits.flatten(0, 1).float(), ids[:, 1:].flatten())


class TwoTasks(nn.Module):
    """One trunk for the next token of texts and for classes of images."""

    def __init__(self, plan: Plan) -> None:
        super().__init__()
        self.text = LanguageModel(plan)
        self.patches = nn.Conv2d(3, plan.sizes.hidden, 8, 8)
        self.head = nn.Linear(plan.sizes.hidden, CLASSES)

    def forward(self, shape: Shape) -> Tensor:
        if not isinstance(shape, Images):
            return self.text(shape)
        images, classes = random_images(shape)
        patches = self.patches(images).flatten(2).transpose(1, 2)
        return functional.cross_entropy(self.head(self.text.gpt.trunk(patches).mean(1)), classes)


Cache = list[tuple[Tensor, Tensor]]  # keys and values, by layer


class Rollouts(LanguageModel):
    """A model generates answers token by token, a frozen copy judges them, and it learns from that."""

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        self.reference = plan.gpt().requires_grad_(False)

    def _cached_attention(self, attention: Attention, x: Tensor, cache: Cache, layer: int) -> Tensor:
        q, k, v = attention.heads_of(attention.qkv(x))
        if layer < len(cache):
            k, v = torch.cat([cache[layer][0], k], dim=2), torch.cat([cache[layer][1], v], dim=2)
            cache[layer] = (k, v)
        else:
            cache.append((k, v))
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=q.shape[2] > 1)
        return attention.out(y.transpose(1, 2).flatten(2))

    def _next(self, ids: Tensor, cache: Cache) -> Tensor:
        x = self.gpt.embedding(ids)
        for layer, block in enumerate(self.gpt.trunk.blocks):
            assert isinstance(block, Block)
            x = x + self._cached_attention(block.attention, block.norm1(x), cache, layer)
            x = x + block.feed_forward(block.norm2(x))
        return functional.linear(self.gpt.trunk.norm(x[:, -1:]), self.gpt.embedding.weight).argmax(-1)

    @torch.no_grad()
    def _generate(self, shape: Sequences) -> Tensor:
        new = random_ids(self.vocab, shape.count, shape.length)
        ids, cache = new, Cache()
        for _ in range(shape.second_length):
            new = self._next(new, cache)
            ids = torch.cat([ids, new], dim=1)
        return ids

    def forward(self, shape: Sequences) -> Tensor:
        ids = self._generate(shape)
        with torch.no_grad():
            judged = functional.log_softmax(self.reference(ids[:, :-1]), dim=-1)
            judged = judged.gather(-1, ids[:, 1:, None])
        found = functional.log_softmax(self.gpt(ids[:, :-1]), dim=-1).gather(-1, ids[:, 1:, None])
        return (found - judged).square().mean()
