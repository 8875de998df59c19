"""The process that ipc_cases.py shares tensors with: plain torch, without stalloc."""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import Any

import torch


def pattern(size: int, key: int) -> torch.Tensor:
    """Bytes on the host, of a period that divides no power of two, different for every key."""
    return ((torch.arange(size, dtype=torch.int32) * 31 + key * 7919) % 251).to(torch.uint8)


class Receiver:
    """What can be asked for; each method takes what came through the queue and returns a plain answer."""

    def __init__(self) -> None:
        self._kept: list[torch.Tensor] = []

    def alone(self) -> bool:
        """No library of ours is in this process."""
        return "libstalloc" not in Path("/proc/self/maps").read_text()

    def holds(self, tensor: torch.Tensor, key: int) -> bool:
        return tensor.is_cuda and torch.equal(tensor.cpu(), pattern(tensor.numel(), key))

    def write(self, tensor: torch.Tensor, key: int) -> bool:
        tensor.copy_(pattern(tensor.numel(), key))
        return True

    def holds_rebuilt(self, function: Any, arguments: tuple[Any, ...], key: int) -> bool:
        return self.holds(function(*arguments), key)

    def keep(self, tensor: torch.Tensor) -> bool:
        self._kept.append(tensor)
        return True

    def kept_holds(self, key: int) -> bool:
        return bool(self._kept) and all(self.holds(tensor, key) for tensor in self._kept)

    def drop(self) -> bool:
        self._kept.clear()
        return True


def answer(receiver: Receiver, requests: Any) -> Any:
    """The answer to the next request, in a list; None at the end. Nothing of the request outlives the call."""
    request = requests.get()
    if request is None:
        return None
    return [getattr(receiver, request[0])(*request[1:])]


def serve(requests: Any, answers: Any) -> None:
    receiver = Receiver()
    while True:
        try:
            given = answer(receiver, requests)
        except Exception:
            given = [traceback.format_exc()]
        torch.cuda.synchronize()
        if given is None:
            return
        answers.put(given[0])
