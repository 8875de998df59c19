"""Paths of torch modules: "Model.blocks.0.up" is the module `blocks.0.up` of a Model that no other module holds."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from typing import Any, Optional


class ModulePaths:
    """A path for each module that was requested, and for those inside it. A module keeps its first path."""

    def __init__(self) -> None:
        self._paths: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()
        self._roots: dict[str, int] = {}

    def __getitem__(self, module: Any) -> Optional[str]:
        return self._paths.get(module)

    def items(self) -> Iterator[tuple[Any, str]]:
        yield from list(self._paths.items())

    def name(self, module: Any, holder: Optional[str] = None) -> str:
        """The path of `module`: known, or that of a root, or, inside a holder that has no such child, of its class."""
        known = self._paths.get(module)
        if known is not None:
            return known
        if holder is not None:  # a module that was made later, or is called without being registered
            path = f"{holder}.{type(module).__name__}"
            self._paths[module] = path
            return path
        kind = type(module).__name__
        self._roots[kind] = self._roots.get(kind, 0) + 1
        root = kind if self._roots[kind] == 1 else f"{kind}#{self._roots[kind]}"
        for name, inner in module.named_modules():
            if inner not in self._paths:
                self._paths[inner] = f"{root}.{name}" if name else root
        return self._paths[module]

    def discover(self, torch: Any) -> None:
        """Names all modules of this process; those that no other holds are roots. Queries the garbage collector, so
        that no hook is needed that torch.compile would see: a tenth of a second for a million objects."""
        kind = torch.nn.Module
        modules = [thing for thing in gc.get_objects() if issubclass(type(thing), kind)]
        held = {id(inner) for module in modules for inner in _children(module)}
        for module in modules:
            if id(module) not in held and module not in self._paths and _children(module) is not None:
                self.name(module)


def _children(module: Any) -> list[Any]:
    return [inner for inner in (module.__dict__.get("_modules") or {}).values() if inner is not None]
