"""What lies in the blocks of this process now, by address: parameters, gradients, buffers, optimizer state."""

from __future__ import annotations

import gc
from typing import Any, NamedTuple

from stalloc.train.marking.names import TensorNames
from stalloc.train.marking.paths import ModulePaths

ROLES = ("", "parameter", "gradient", "optimizer state", "buffer", "input")  # by TensorRole
_CLASSES = {"parameter": "weights", "buffer": "weights", "gradient": "gradients", "input": "inputs"}


class Named(NamedTuple):
    """The tensors of a block: the role of the first, and the names of all."""

    role: str
    names: list[str]

    @property
    def memory_class(self) -> str:
        return _CLASSES.get(self.role, self.role)


class _Collector:
    """Stands for the library that TensorNames reports to."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.blocks: dict[int, Named] = {}

    def text(self, text: bytes) -> int:
        self.texts.append(text.decode("utf-8", "replace"))
        return len(self.texts) - 1

    def name_tensor(self, block: int, offset: int, count: int, role: int, text: int) -> None:
        named = self.blocks.setdefault(block, Named(ROLES[role], []))
        if self.texts[text] not in named.names:
            named.names.append(self.texts[text])


def named_blocks(torch: Any) -> dict[int, Named]:
    """Names by the address of the block. Queries the garbage collector for modules and optimizers; takes no device
    memory."""
    collector = _Collector()
    names = TensorNames(collector, torch, ModulePaths(), lambda: True)
    names.resolve()
    kind = torch.optim.Optimizer
    for thing in gc.get_objects():
        if issubclass(type(thing), kind) and hasattr(thing, "param_groups"):
            names.before_step(thing)
            names.after_step(thing)
    return collector.blocks
