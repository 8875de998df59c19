"""Loops that keep more than they need, each thing mended on demand; and tensors kept where torch allocates nothing."""

from __future__ import annotations

import re
import tempfile
from typing import Any, Callable

import promised_models
import torch

import stalloc

KIB = 1 << 10


class Stash(torch.autograd.Function):
    """Keeps a tensor for the backward pass: in an attribute, which stays until the graph goes, or as it should."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, mended: bool) -> torch.Tensor:
        kept = torch.cat([x] * 32)
        if mended:
            ctx.save_for_backward(kept)
        else:
            ctx.kept = kept
        return x * 2

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        return gradient * 2, None


class Stashing(torch.nn.Module):
    def __init__(self, mended: bool) -> None:
        super().__init__()
        self.mended = mended

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return Stash.apply(x, self.mended)


class Spike(torch.autograd.Function):
    """Makes the peak late in the backward pass, where what was freed late before is still there."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x * 1

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient * torch.ones(16 << 20, dtype=torch.uint8)[0]


class Logging(promised_models.Decoder):
    """Keeps its last logits."""

    logits: Any = None

    def loss(self, hidden: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        logits = self.head(hidden)
        self.logits = logits.detach()
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())


class Costly(torch.optim.SGD):
    """Needs more for its step than the passes do."""

    def step(self, closure: Any = None) -> None:
        room = torch.ones(24 << 20, dtype=torch.uint8)
        super().step(closure)
        del room


class Spiked(torch.nn.Embedding):
    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return Spike.apply(super().forward(inputs))


def untidy(mended: str, iterations: int, begins: Callable[[], object]) -> None:
    """Frees late in two ways, named as the planner names them."""
    torch.manual_seed(0)
    model = promised_models.Decoder()
    model.embedding = Spiked(1000, 64)
    model.norm = torch.nn.Sequential(Stashing(mended == "after the layer"), model.norm)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    tokens = torch.randint(1, 500, (2, 64))
    for _ in range(iterations):
        begins()
        with stalloc.microbatch("F"):
            loss = model(tokens, tokens)
        with stalloc.microbatch("B"):
            loss.backward()
            del loss
        measured = None  # that of the iteration before is written now
        measured = torch.ones(900 * KIB, dtype=torch.uint8)  # of this iteration, for a log
        optimizer.step()
        optimizer.zero_grad()
        if mended == "after the iteration":
            del measured


class Wide(promised_models.RootMeanSquare):
    """Makes the peak at the end of the forward pass."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) * torch.ones(16 << 20, dtype=torch.uint8)[0]


def clearing(mended: str, iterations: int, begins: Callable[[], object]) -> None:
    """Gradients stay through the next forward pass."""
    torch.manual_seed(0)
    model = promised_models.Decoder()
    model.norm = Wide(64)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    tokens = torch.randint(1, 500, (2, 64))
    for _ in range(iterations):
        begins()
        with stalloc.microbatch("F"):
            loss = model(tokens, tokens)
        if mended != "after the optimizer":
            optimizer.zero_grad()
        with stalloc.microbatch("B"):
            loss.backward()
        with stalloc.optimizer():
            optimizer.step()
        if mended == "after the optimizer":
            optimizer.zero_grad()


def logging(mended: str, iterations: int, begins: Callable[[], object]) -> None:
    """Logits stay through the optimizer's step."""
    torch.manual_seed(0)
    model = Logging()
    optimizer = Costly(model.parameters(), lr=0.1)
    tokens = torch.randint(1, 500, (8, 64))
    for _ in range(iterations):
        begins()
        with stalloc.microbatch("F"):
            loss = model(tokens, tokens)
        with stalloc.microbatch("B"):
            loss.backward()
        if mended == "after the backward":
            model.logits = None
        optimizer.step()
        optimizer.zero_grad()


def leaking(mended: str, iterations: int, begins: Callable[[], object]) -> None:
    model, batch = promised_models.make("convnet", 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    history = []
    for _ in range(iterations):
        begins()
        model(*batch).backward()
        optimizer.step()
        optimizer.zero_grad()
        if not mended:
            history.append(torch.ones(256 * KIB, dtype=torch.uint8))


LOOPS = {"untidy": untidy, "clearing": clearing, "logging": logging, "leaking": leaking}


def offload(model: torch.nn.Module, pattern: str) -> None:
    """As torch.autograd.graph.save_on_cpu does on a GPU: the host is numpy's memory here."""

    def wrapped(forward: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            with torch.autograd.graph.saved_tensors_hooks(
                lambda tensor: tensor.detach().numpy().copy(), lambda array: torch.from_numpy(array).clone()
            ):
                return forward(*args, **kwargs)

        return call

    for name, module in model.named_modules():
        if re.fullmatch(pattern, name):
            module.forward = wrapped(module.forward)


def offload_state(optimizer: torch.optim.AdamW) -> None:
    """Moments are in a file that is mapped, from the first step on."""

    def elsewhere(like: torch.Tensor) -> torch.Tensor:
        with tempfile.NamedTemporaryFile() as file:
            return torch.from_file(file.name, shared=True, size=like.numel()).view(like.shape)  # zeros

    for group in optimizer.param_groups:
        for weight in group["params"]:
            moments = {"exp_avg": elsewhere(weight), "exp_avg_sq": elsewhere(weight)}
            optimizer.state[weight] = {"step": torch.tensor(0.0), **moments}
