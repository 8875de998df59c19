"""The end of init, for loops that mark nothing: the first forward pass of a module that trains.

Until then weights and buffers are made, which stay; from then on mostly what does not. Seen is the first call of a
module in training mode with gradients on, by a hook of all modules, which is gone after its first call. torch.compile
must not see the hook (compilations.py): it goes before anything is compiled. From then on the first compilation in
which autograd makes nodes is the forward pass. Where neither is seen, the library ends init with the first backward
pass.
"""

from __future__ import annotations

import importlib
import threading
from typing import Any, Callable, Optional

from stalloc.train.marking.compilations import Compilations, ignore_warning_of_hooks


class FirstForward:
    """Calls `begins` once, on the thread that runs the forward pass, unless it is removed before."""

    def __init__(self, torch: Any, begins: Callable[[], object]) -> None:
        self._torch = torch
        self._begins = begins
        self._nodes = threading.local()  # count: of autograd's on this thread, when the compilation began
        ignore_warning_of_hooks()
        modules = importlib.import_module("torch.nn.modules.module")
        self._handle: Optional[Any] = modules.register_module_forward_pre_hook(self._before_forward)
        self._compilations: Optional[Compilations] = Compilations(self._compilation_begins, self._compilation_ends)

    def remove(self) -> None:
        self._remove_hook()
        if self._compilations is not None:
            self._compilations.stop()
            self._compilations = None

    def _remove_hook(self) -> None:
        if self._handle is not None:
            self._handle.remove()
            self._handle = None

    def _before_forward(self, module: Any, arguments: Any) -> None:
        if self._torch.compiler.is_compiling() or not module.training or not self._torch.is_grad_enabled():
            return
        self._reached()

    def _compilation_begins(self) -> None:
        self._remove_hook()
        self._nodes.count = self._nodes_so_far()

    def _compilation_ends(self) -> None:
        if self._nodes_so_far() > getattr(self._nodes, "count", self._nodes_so_far()):
            self._reached()

    def _nodes_so_far(self) -> int:
        return int(self._torch._C._autograd._get_sequence_nr())

    def _reached(self) -> None:
        waited = self._compilations is not None
        self.remove()
        if waited:
            self._begins()
