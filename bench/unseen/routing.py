"""How many tokens each expert gets, and how large micro-batches are: all from the host's random numbers.

No tensor is read, so that a run on the CPU and one on a GPU draw the same sizes for the same seed.
"""

from __future__ import annotations

import dataclasses
import math
import random
from typing import Optional, Union

# Tokens of each expert ----------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Experts:
    """A mixture of experts, and how its routing behaves."""

    count: int
    top_k: int
    dispatch: str = "loop"  # expert by expert; split: rows permuted, then split; grouped: all rows through each GEMM
    ffn_divisor: int = 1  # experts are so many times as narrow as a dense layer
    shared: bool = False  # one more expert, of all tokens
    every: int = 1  # one of so many layers has experts, the others are dense
    spread: float = 0.25  # standard deviation of the experts' log loads
    drift: float = 0.0  # log loads move by this, times a number of each expert's own, every iteration
    collapse_from: int = -1  # from this iteration on one expert of each layer takes most tokens
    empty: float = 0.0  # the chance of an expert to get nothing
    capacity: float = 0.0  # tokens beyond so many times the even share are dropped; 0: none are
    share_spread: float = 0.0  # of this rank's share of the tokens of a group of ranks; 0: as many as it has itself
    choose: bool = False  # experts choose tokens, each the even share


class Router:
    """Draws the tokens of each expert, anew for each micro-batch; a layer that is recomputed gets the same ones."""

    NOISE = 0.08  # of log loads, from micro-batch to micro-batch
    COLLAPSED = 1.5  # the load of an expert that takes most, over that of all others
    LEAST_SHARE = 0.2

    def __init__(self, experts: Experts, layers: int, seed: int) -> None:
        self.experts = experts
        self._numbers = random.Random(seed)
        self._loads = self._normals(layers, experts.spread)
        self._directions = self._normals(layers, 1.0)
        self._iteration = 0
        self._drawn: dict[int, list[int]] = {}  # of this micro-batch, by layer

    def _normals(self, layers: int, spread: float) -> list[list[float]]:
        return [[self._numbers.gauss(0, spread) for _ in range(self.experts.count)] for _ in range(layers)]

    def begin(self, iteration: int) -> None:
        """Begins a micro-batch."""
        self._iteration = iteration
        self._drawn.clear()

    def counts(self, layer: int, tokens: int) -> list[int]:
        """How `tokens` (each counted top_k times) are divided."""
        if layer not in self._drawn:
            self._drawn[layer] = self._divided(self._weights(layer), self._total(layer, tokens))
        return self._drawn[layer]

    def _drift(self, layer: int, expert: int) -> float:
        return self.experts.drift * self._iteration * self._directions[layer][expert]

    def _weights(self, layer: int) -> list[float]:
        if self.experts.choose:
            return [1.0] * self.experts.count
        weights = []
        for expert in range(self.experts.count):
            load = self._loads[layer][expert] + self._drift(layer, expert) + self._numbers.gauss(0, self.NOISE)
            weights.append(math.exp(min(load, 6.0)))
        if 0 <= self.experts.collapse_from <= self._iteration:
            weights[layer % self.experts.count] = self.COLLAPSED * sum(weights)
        if self.experts.empty:
            weights = [0.0 if self._numbers.random() < self.experts.empty else weight for weight in weights]
        return weights if any(weights) else [1.0] + [0.0] * (self.experts.count - 1)

    def _total(self, layer: int, tokens: int) -> int:
        if not self.experts.share_spread:
            return tokens
        share = 1 + self._numbers.gauss(0, self.experts.share_spread) + self._drift(layer, 0)
        return int(tokens * max(self.LEAST_SHARE, share))

    def _divided(self, weights: list[float], total: int) -> list[int]:
        counts = [int(total * weight / sum(weights)) for weight in weights]
        counts[weights.index(max(weights))] += total - sum(counts)
        if self.experts.capacity:
            most = int(self.experts.capacity * total / len(counts))
            counts = [min(count, most) for count in counts]
        return counts


# Micro-batches ------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Sequences:
    """A micro-batch of token sequences of one length."""

    count: int
    length: int
    documents: Optional[list[int]] = None  # lengths of those packed into the one sequence
    second_length: int = 0  # of a second model's sequences, where there is one
    shares: tuple[float, ...] = ()  # of the tokens, by layer: so many does it see; 0: none, it is left out

    @property
    def tokens(self) -> int:
        return self.count * max(self.length, self.second_length)


@dataclasses.dataclass(frozen=True)
class Images:
    """A micro-batch of images of one size, in pixels."""

    count: int
    height: int
    width: int

    @property
    def tokens(self) -> int:
        return 0


Shape = Union[Sequences, Images]


class Draw:
    """What shapes are drawn from: `tokens` is what a full micro-batch has."""

    def __init__(self, tokens: int, iterations: int, seed: int) -> None:
        self.numbers = random.Random(seed)
        self.tokens = tokens
        self.iterations = iterations
        self.kept = 0  # a length that stays for some iterations

    def between(self, low: int, high: int) -> int:
        """Both included."""
        return self.numbers.randint(low, high)


# Each draws the shape of one micro-batch of one iteration.


def fixed(draw: Draw, iteration: int, number: int) -> Shape:
    """Four full sequences."""
    return Sequences(4, draw.tokens // 4)


def padded(draw: Draw, iteration: int, number: int) -> Shape:
    """Four sequences, padded to the longest: from a quarter of the full length on."""
    return Sequences(4, draw.between(draw.tokens // 16, draw.tokens // 4))


def batches_and_lengths(draw: Draw, iteration: int, number: int) -> Shape:
    return Sequences(draw.between(1, 8), draw.between(draw.tokens // 16, draw.tokens // 8 * 2))


def batches_of_short(draw: Draw, iteration: int, number: int) -> Shape:
    """Number and length vary, lengths around an eighth of a full micro-batch."""
    return Sequences(draw.between(1, 8), draw.tokens // 8 + draw.between(-draw.tokens // 16, draw.tokens // 16))


def _document(draw: Draw) -> int:
    return max(8, int(draw.numbers.lognormvariate(math.log(draw.tokens / 8), 0.8)))


def packed(draw: Draw, iteration: int, number: int) -> Shape:
    """Documents that fill one sequence; the last is cut."""
    documents: list[int] = []
    while (left := draw.tokens - sum(documents)) > 0:
        documents.append(min(left, _document(draw)))
    return Sequences(1, draw.tokens, documents)


def packed_loosely(draw: Draw, iteration: int, number: int) -> Shape:
    """Documents until one does not fit; the sequence is as long as they are."""
    documents: list[int] = []
    while sum(documents) + (document := _document(draw)) <= draw.tokens:
        documents.append(document)
    documents = documents or [draw.tokens // 2]
    return Sequences(1, sum(documents), documents)


def bucketed(draw: Draw, iteration: int, number: int) -> Shape:
    """One of six lengths."""
    return Sequences(4, draw.tokens // 4 * draw.numbers.choice([2, 3, 4, 5, 6, 8]) // 8)


def curriculum(draw: Draw, iteration: int, number: int) -> Shape:
    """Longer every iteration, from a quarter on."""
    return Sequences(4, int(draw.tokens // 4 * (0.25 + 0.75 * iteration / max(1, draw.iterations - 1))))


def curriculum_steps(draw: Draw, iteration: int, number: int) -> Shape:
    """A quarter, a half, three quarters, all."""
    return Sequences(4, draw.tokens // 4 * (1 + min(3, iteration * 4 // draw.iterations)) // 4)


def stair(draw: Draw, iteration: int, number: int) -> Shape:
    """One length for four iterations and then for about three at a time."""
    if number == 0 and (iteration == 0 or (iteration >= 4 and draw.numbers.random() < 0.35)):
        draw.kept = draw.between(draw.tokens // 16, draw.tokens // 4)
    return Sequences(4, draw.kept)


def batch_warmup(draw: Draw, iteration: int, number: int) -> Shape:
    """One sequence more every five iterations, to four."""
    return Sequences(min(4, 1 + iteration // 5), draw.tokens // 4)


def sources_and_targets(draw: Draw, iteration: int, number: int) -> Shape:
    """What an encoder reads and a shorter one that a decoder writes."""
    source = draw.between(draw.tokens // 16, draw.tokens // 4)
    return Sequences(4, source, second_length=draw.between(draw.tokens // 32, draw.tokens // 6))


def made_and_real(draw: Draw, iteration: int, number: int) -> Shape:
    """What a generator makes, and real sequences of a length of their own."""
    made = draw.between(draw.tokens // 16, draw.tokens // 4)
    return Sequences(4, made, second_length=draw.between(draw.tokens // 16, draw.tokens // 4))


def any_aspect(draw: Draw, iteration: int, number: int) -> Shape:
    """Images of any height and width, in patches of eight."""
    return Images(4, 8 * draw.between(6, 16), 8 * draw.between(6, 16))


def multiscale(draw: Draw, iteration: int, number: int) -> Shape:
    """Square images, of another size every three iterations."""
    if iteration % 3 == 0 and number == 0:
        draw.kept = 16 * draw.between(3, 8)
    return Images(8, draw.kept, draw.kept)


LAYERS = 8  # of those that draw layer by layer


def half_of_layers_see_few(draw: Draw, iteration: int, number: int) -> Shape:
    """Every second layer sees some of the tokens."""
    few = [draw.numbers.uniform(0.05, 0.5) for _ in range(LAYERS // 2)]
    return Sequences(4, draw.tokens // 4, shares=tuple(share for one in few for share in (1.0, one)))


def layers_dropped(draw: Draw, iteration: int, number: int) -> Shape:
    """The deeper a layer the likelier it is left out: the last one every second time."""
    shares = [float(draw.numbers.random() >= 0.5 * (layer + 1) / LAYERS) for layer in range(LAYERS)]
    return Sequences(4, draw.tokens // 4, shares=tuple(shares))


def early_exit(draw: Draw, iteration: int, number: int) -> Shape:
    """As many of the first layers as are drawn."""
    depth = draw.between(2, LAYERS)
    return Sequences(4, draw.tokens // 4, shares=(1.0,) * depth + (0.0,) * (LAYERS - depth))


def text_or_images(draw: Draw, iteration: int, number: int) -> Shape:
    """One of two tasks; texts have any length."""
    return padded(draw, iteration, number) if draw.numbers.random() < 0.5 else Images(4, 128, 128)


def prompts_and_answers(draw: Draw, iteration: int, number: int) -> Shape:
    """A few prompts, and as many tokens as are generated for them."""
    return Sequences(draw.between(2, 8), draw.between(16, 96), second_length=draw.between(4, 48))


# Each draws how many micro-batches an iteration has.


def more_every_fifth(draw: Draw, iteration: int) -> int:
    return 2 + iteration // 5


def one_to_six(draw: Draw, iteration: int) -> int:
    return draw.between(1, 6)
