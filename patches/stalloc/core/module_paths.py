"""Paths of modules: as a trace of a wrapped model has them, and which module of a model one means."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

CHOICE_VERSION = 1  # of fit.json, which names modules by these paths

# The attributes through which wrappers hold what they wrap. No model has one of the first by itself; "module" may be
# DistributedDataParallel's, or an attribute of the user's own module.
_ALWAYS = frozenset({"_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"})
_MAY_BE = "module"
_WRAPPERS = frozenset(
    {"DistributedDataParallel", "DataParallel", "FullyShardedDataParallel", "DeepSpeedEngine", "Float16Module"}
)


def in_model(layer: str) -> str:
    """The path as named_modules() of the model has it, from the trace's name: "GPT.blocks.3" -> "blocks.3". A wrapper
    around the whole model is left out: "DistributedDataParallel#2.module.layers.0" -> "layers.0"."""
    root, _, path = layer.partition(".")
    path = _unwrapped(path)
    return _inner(path) if root.partition("#")[0] in _WRAPPERS else path


def modules_at(path: str, modules: Mapping[str, Any]) -> list[Any]:
    """The modules that `path` can mean: one, none, or several where it is ambiguous.

    A module that has the path itself counts first, then one whose path differs by what wraps the whole model, then by
    wrappers of its parts, then one inside a larger model. Of a wrapper and what it wraps, the inner one is meant.

    Args:
        path: of a traced run, whose model may have been wrapped otherwise.
        modules: by path, as named_modules() has them.
    """
    known = {_unwrapped(name): module for name, module in modules.items()}  # what is wrapped comes after its wrapper
    for form in (_unwrapped, _inner, _plain):
        wanted = form(_unwrapped(path))
        found = [name for name in known if form(name) == wanted] if wanted else []
        if found:
            return _meant(found, known)
    inside = [name for name in known if name.endswith("." + _plain(_unwrapped(path)))]
    return _different(known[name] for name in inside)


def _meant(names: list[str], known: Mapping[str, Any]) -> list[Any]:
    innermost = max(names, key=len)
    chain = all(f"{innermost}.".startswith(f"{name}.") for name in names)
    return [known[innermost]] if chain else _different(known[name] for name in names)


def pattern_of(path: str) -> str:
    """Paths that differ in numbers alone have one: "blocks.3.mlp" -> "blocks.*.mlp"."""
    return ".".join("*" if part.isdigit() else part for part in path.split("."))


def alike(path: str, modules: Mapping[str, Any], most: int = 3) -> list[str]:
    """Paths that end as this one does."""
    tail = path.rpartition(".")[2]
    return [name for name in modules if name.rpartition(".")[2] == tail][:most]


def _unwrapped(path: str) -> str:
    """Without what can only be a wrapper's: "layers.3._orig_mod.mlp" -> "layers.3.mlp"."""
    return ".".join(part for part in path.split(".") if part not in _ALWAYS)


def _inner(path: str) -> str:
    """Without wrappers around the whole model: "module.module.layers.3" -> "layers.3"."""
    while path.partition(".")[0] == _MAY_BE:
        path = path.partition(".")[2]
    return path


def _plain(path: str) -> str:
    return ".".join(part for part in path.split(".") if part != _MAY_BE)


def _different(modules: Iterator[Any]) -> list[Any]:
    return list({id(module): module for module in modules}.values())
