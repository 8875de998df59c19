"""Recomputes modules on a stand-in for an accelerator: its generator is a counter here, its tensors have no numbers.

Prints, as JSON, by case the masks that the forward pass and the recomputation drew. Modules draw from the stand-in's
generator, as dropout on a GPU does from the GPU's.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils import backend_registration
from torch.utils.checkpoint import checkpoint

import stalloc

NAME = "standin"


class Backend(backend_registration._DummyBackendModule):
    """The module that torch asks for states. A state is how many masks have been drawn."""

    _initialized = True
    drawn = 0

    def get_rng_state(self, device: Any = None) -> torch.Tensor:
        return torch.tensor(self.drawn)

    def set_rng_state(self, state: torch.Tensor, device: Any = None) -> None:
        self.drawn = int(state)

    @contextlib.contextmanager
    def device(self, _: Any) -> Iterator[None]:
        yield

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.float16]

    def mask(self) -> list[int]:
        self.drawn += 1
        return torch.rand(6, generator=torch.Generator().manual_seed(self.drawn)).gt(0.5).int().tolist()


class OnDevice(torch.Tensor):
    """A tensor of the device, in name."""

    @staticmethod
    def __new__(cls, size: Any) -> OnDevice:
        return torch.Tensor._make_wrapper_subclass(cls, size, device=torch.device(NAME, 0))

    @classmethod
    def __torch_dispatch__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return OnDevice(args[0].size())  # detach: all that is done to one


@dataclasses.dataclass
class Held:
    tensor: Any


class Masked(torch.nn.Module):
    def __init__(self, weight: Any = None) -> None:
        super().__init__()
        self.up = torch.nn.Linear(6, 6)
        self.masks: list[list[int]] = []
        if weight is not None:
            self.register_buffer("weight", weight)

    def forward(self, x: Any, **others: Any) -> Any:
        self.masks.append(getattr(torch, NAME).mask())
        return self.up(x).exp() * torch.tensor(self.masks[-1])


def masks(module: Masked, *args: Any, **kwargs: Any) -> list[list[int]]:
    stalloc.recompute(module)
    getattr(torch, NAME).drawn = 0
    loss = module(*args, **kwargs).sum()
    getattr(torch, NAME).mask()  # of what comes after it
    loss.backward()
    return module.masks


def plain() -> list[list[int]]:
    """By torch's checkpoint alone: what the others would be without an argument on the device."""
    module = Masked()
    getattr(torch, NAME).drawn = 0
    loss = checkpoint(module, x=torch.ones(6), use_reentrant=False).sum()
    getattr(torch, NAME).mask()
    loss.backward()
    return module.masks


backend_registration._setup_privateuseone_for_python_backend(NAME, backend_module=Backend())
library = torch.library.Library("aten", "IMPL")
library.impl("empty.memory_format", lambda size, **_: OnDevice(size), "PrivateUse1")
x, there = torch.ones(6), OnDevice((2,))
found = {
    "plain": plain(),
    "positional": masks(Masked(), x, there=there),
    "keywords": masks(Masked(), x=x, there=there),
    "nested": masks(Masked(), x=x, there={"a": [(there,)]}),
    "in an object": masks(Masked(), x=x, there=Held(there)),
    "a buffer": masks(Masked(there), x=x),
    "nowhere": masks(Masked(), x=x),
}
print(json.dumps(found))
