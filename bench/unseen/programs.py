"""What is trained: each program makes a random micro-batch of a drawn shape and computes its loss."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import torch
from models import Gpt, LowRank, Sizes, Trunk, convolutional
from routing import Images, Router, Sequences
from torch import Tensor, nn
from torch.nn import functional

CLASSES = 100


@dataclasses.dataclass(frozen=True)
class Plan:
    """The interface of a workload's model."""

    sizes: Sizes
    layers: int
    recompute: str = "none"
    router: Router | None = None

    def trunk(self, causal: bool = True, cross: bool = False) -> Trunk:
        return Trunk(self.sizes, self.layers, self.router, self.recompute, causal=causal, cross=cross)

    def gpt(self, causal: bool = True, cross: bool = False) -> Gpt:
        return Gpt(self.sizes, self.trunk(causal, cross))


def random_ids(vocab: int, count: int, length: int) -> Tensor:
    """On the default device, from the host's random numbers."""
    return torch.randint(0, vocab, (count, length), device="cpu").to(torch.get_default_device())


def random_images(shape: Images) -> tuple[Tensor, Tensor]:
    """Images and their classes."""
    return torch.randn(shape.count, 3, shape.height, shape.width), torch.randint(0, CLASSES, (shape.count,))


class LanguageModel(nn.Module):
    """Next-token loss of a GPT."""

    def __init__(self, plan: Plan) -> None:
        super().__init__()
        self.vocab = plan.sizes.vocab
        self.gpt = plan.gpt()

    def forward(self, shape: Sequences) -> Tensor:
        ids = random_ids(self.vocab, shape.count, shape.length + 1)
        logits = self.gpt(ids[:, :-1], documents=shape.documents)
        return functional.cross_entropy(logits.flatten(0, 1).float(), ids[:, 1:].flatten())


class Adapted(LanguageModel):
    """The same, with frozen weights and low-rank adapters at three of each layer's projections."""

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        self.requires_grad_(False)
        rank = plan.sizes.hidden // 16
        for block in self.gpt.trunk.blocks:
            block.attention.qkv = LowRank(block.attention.qkv, rank)
            block.feed_forward.up = LowRank(block.feed_forward.up, rank)
            block.feed_forward.down = LowRank(block.feed_forward.down, rank)


class EncoderDecoder(nn.Module):
    """Next-token loss of a decoder that attends to an encoder, each with a length of its own."""

    def __init__(self, plan: Plan) -> None:
        super().__init__()
        self.vocab = plan.sizes.vocab
        self.encoder = plan.gpt(causal=False)
        self.decoder = plan.gpt(cross=True)

    def forward(self, shape: Sequences) -> Tensor:
        source = random_ids(self.vocab, shape.count, shape.length + 1)
        target = random_ids(self.vocab, shape.count, shape.second_length + 1)
        logits = self.decoder(target[:, :-1], memory=self.encoder.hidden(source))
        return functional.cross_entropy(logits.flatten(0, 1).float(), target[:, 1:].flatten())


class Distillation(nn.Module):
    """A model learns the distribution of a frozen one, wider by a half and four layers deeper."""

    def __init__(self, plan: Plan) -> None:
        super().__init__()
        wider = {"hidden": plan.sizes.hidden * 3 // 2, "ffn": plan.sizes.ffn * 3 // 2}
        self.vocab = plan.sizes.vocab
        self.teacher = Plan(dataclasses.replace(plan.sizes, **wider), plan.layers + 4).gpt().requires_grad_(False)
        self.student = plan.gpt()

    def forward(self, shape: Sequences) -> Tensor:
        ids = random_ids(self.vocab, shape.count, shape.length)
        with torch.no_grad():
            wanted = functional.softmax(self.teacher(ids), dim=-1)
        found = functional.log_softmax(self.student(ids), dim=-1)
        return functional.kl_div(found.flatten(0, 1), wanted.flatten(0, 1), reduction="batchmean")


class VisionTransformer(nn.Module):
    """Classes of images, as sequences of patches."""

    def __init__(self, plan: Plan) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, plan.sizes.hidden, 8, 8)
        self.trunk = plan.trunk(causal=False)
        self.head = nn.Linear(plan.sizes.hidden, CLASSES)

    def forward(self, shape: Images) -> Tensor:
        images, classes = random_images(shape)
        patches = self.patches(images).flatten(2).transpose(1, 2)
        return functional.cross_entropy(self.head(self.trunk(patches).mean(1)), classes)


class Convolutional(nn.Module):
    """Classes of images; always of the same width and depth."""

    def __init__(self, plan: Plan) -> None:
        super().__init__()
        self.network = convolutional(CLASSES)

    def forward(self, shape: Images) -> Tensor:
        images, classes = random_images(shape)
        return functional.cross_entropy(self.network(images), classes)


class Adversarial(nn.Module):
    """A generator and a discriminator, which train.py trains alternately."""

    def __init__(self, plan: Plan) -> None:
        super().__init__()
        self.hidden = plan.sizes.hidden
        self.generator = plan.trunk()
        self.discriminator = plan.trunk()
        self.head = nn.Linear(self.hidden, 1)

    def discriminating(self) -> Iterator[nn.Parameter]:
        yield from self.discriminator.parameters()
        yield from self.head.parameters()

    def noise(self, count: int, length: int) -> Tensor:
        return torch.randn(count, length, self.hidden)

    def _score(self, sequences: Tensor) -> Tensor:
        return self.head(self.discriminator(sequences)).mean()

    def discriminator_loss(self, noise: Tensor, real: Tensor) -> Tensor:
        with torch.no_grad():
            made = self.generator(noise)
        return self._score(real) - self._score(made)

    def generator_loss(self, noise: Tensor) -> Tensor:
        return self._score(self.generator(noise))
