"""The end of init, for loops that mark nothing: the first forward pass of a module that trains.

Until then weights and buffers are made, which stay; from then on mostly what does not. A hook of all modules, gone
after its first call. A compiled forward pass does not see it.
"""

from __future__ import annotations

import importlib
import warnings
from typing import Any, Callable, Optional


class FirstForward:
    """Calls `begins` when the first module in training mode is called with gradients on."""

    def __init__(self, torch: Any, begins: Callable[[], object]) -> None:
        self._torch = torch
        self._begins = begins
        # The extra time of which torch warns is this hook's only one.
        warnings.filterwarnings("ignore", r"Using `torch\.compile\(module\)` when there are global hooks", UserWarning)
        modules = importlib.import_module("torch.nn.modules.module")
        self._handle: Optional[Any] = modules.register_module_forward_pre_hook(self._before_forward)

    def remove(self) -> None:
        if self._handle is not None:
            self._handle.remove()
            self._handle = None

    def _before_forward(self, module: Any, arguments: Any) -> None:
        if self._torch.compiler.is_compiling() or not module.training or not self._torch.is_grad_enabled():
            return
        self.remove()
        self._begins()
