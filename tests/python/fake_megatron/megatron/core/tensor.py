"""What stands for a tensor."""

from __future__ import annotations

from typing import Callable


class Tensor:
    def __init__(self, parents: tuple[Tensor, ...] = ()) -> None:
        self.requires_grad = True
        self._parents = parents
        self._hooks: list[Callable[[object], None]] = []

    def register_hook(self, hook: Callable[[object], None]) -> None:
        self._hooks.append(hook)

    def backward(self) -> None:
        for hook in self._hooks:
            hook(None)
        for parent in self._parents:
            parent.backward()
