"""`stalloc.apply`: what `stalloc fit` chose, done to a model in plain torch.

A module that is recomputed keeps its name, its parameters and its hooks: its class becomes one of the same name whose
`forward` runs under torch's checkpoint, without re-entrance and with the random state of the first time. So state
dictionaries and copies stay as they were. It must be done before modules are compiled or sharded.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Optional, Union

from stalloc._core._json import read_object
from stalloc._marking._arguments import caches

VERSION = 1
# The attributes through which wrappers hold what they wrap.
_WRAPPERS = frozenset({"module", "_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"})


class ApplyError(ValueError):
    """A choice does not fit the model. One line for the user."""


def apply(choice: Union[str, os.PathLike[str]], model: Any, optimizer: Optional[Any] = None) -> list[str]:
    """Does to `model` what fit.json chose, and returns the paths of the modules that it changed.

    Args:
        choice: the file that `stalloc fit --output` wrote.
        model: a torch.nn.Module with the modules of the traced one; not compiled or sharded yet.
        optimizer: needed where the optimizer's state is offloaded: it is on the host between two steps.
    Raises:
        ApplyError: the file is no choice, a module is not in the model, or there is no optimizer; nothing was changed.
        OSError: the file cannot be read.
    """
    chosen = _read(Path(choice))
    modules = dict(_by_path(model))
    recomputed = [(path, _find(path, modules, choice)) for path in chosen["recompute"]]
    offloaded = [(path, _find(path, modules, choice)) for path in chosen["offload"]]
    if chosen["offload_state"] and optimizer is None:
        raise ApplyError(
            f"{choice} offloads the optimizer's state: call stalloc.apply({str(choice)!r}, model, optimizer)"
        )
    for _, module in recomputed:
        _change(module, _recomputing)
    for _, module in offloaded:
        _change(module, _offloading)
    if recomputed:
        _switch_caches_off(model)
    if chosen["offload_state"]:
        _offload_state(optimizer)
    return [path for path, _ in [*recomputed, *offloaded]]


def _read(path: Path) -> dict[str, Any]:
    content = read_object(path)
    chosen = content.get("chosen")
    if content.get("version") != VERSION or not isinstance(chosen, dict):
        raise ApplyError(
            f"{path}: expected a choice of stalloc fit, version {VERSION}, found {content.get('version')!r}"
        )
    return chosen


# -- Which modules


def plain_path(path: str) -> str:
    """Without what wrappers have added: "module.layers.3._orig_mod.mlp" -> "layers.3.mlp"."""
    return ".".join(part for part in path.split(".") if part not in _WRAPPERS)


def _by_path(model: Any) -> Iterator[tuple[str, Any]]:
    """The wrapped module itself where a wrapper has the same path: the innermost comes last."""
    for path, module in model.named_modules():
        yield plain_path(path), module


def _find(path: str, modules: dict[str, Any], choice: Union[str, os.PathLike[str]]) -> Any:
    if not path:
        raise ApplyError(f"{choice}: expected paths of modules in the model, found an empty one")
    if path in modules:
        return modules[path]
    ends = [known for known in modules if known.endswith("." + path)]  # a model inside what is given here
    if len(ends) == 1:
        return modules[ends[0]]
    tail = path.rpartition(".")[2]
    alike = [known for known in modules if known.rpartition(".")[2] == tail][:3]
    told = f"; it has {', '.join(alike)}" if alike else ""
    raise ApplyError(f"{choice}: expected a module {path} in the model, found {len(ends) or 'none'}{told}")


# -- What becomes of them


def _change(module: Any, how: Any) -> None:
    """On the class where it has its forward, as copies of the module then have it; else on the module."""
    if "forward" in vars(module):  # accelerate's and others' own
        module.forward = how(module, module.forward)
        return
    kind = type(module)

    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        return how(self, kind.forward.__get__(self))(*args, **kwargs)

    names = {"forward": forward, "__module__": kind.__module__, "__qualname__": kind.__qualname__}
    module.__class__ = type(kind.__name__, (kind,), names)


def _recomputing(_: Any, forward: Any) -> Any:
    import torch
    from torch.utils.checkpoint import checkpoint

    def recomputed(*args: Any, **kwargs: Any) -> Any:
        if not torch.is_grad_enabled():
            return forward(*args, **kwargs)
        return checkpoint(forward, *args, use_reentrant=False, preserve_rng_state=True, **kwargs)

    return recomputed


def _offloading(module: Any, forward: Any) -> Any:
    """What the forward pass saves is on the host until the backward pass; weights, which are saved too, stay."""
    import torch

    def offloaded(*args: Any, **kwargs: Any) -> Any:
        weights = {parameter.untyped_storage().data_ptr() for parameter in module.parameters()}

        def pack(tensor: Any) -> Any:
            if tensor.untyped_storage().data_ptr() in weights:
                return tensor
            host = torch.empty_like(tensor, device="cpu", pin_memory=torch.cuda.is_available())
            return tensor.device, host.copy_(tensor, non_blocking=True)

        def unpack(packed: Any) -> Any:
            return packed[1].to(packed[0], non_blocking=True) if isinstance(packed, tuple) else packed

        with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
            return forward(*args, **kwargs)

    return offloaded


def _switch_caches_off(model: Any) -> None:
    """Transformers does so with its own checkpoints, too."""
    for config in caches(model):
        config.use_cache = False


def _offload_state(optimizer: Any) -> None:
    """Its tensors are on the host but for its steps. Parameters' own devices tell where they go."""
    import torch

    def move(to_host: bool) -> None:
        for parameter, state in optimizer.state.items():
            for name, value in state.items():
                if not isinstance(value, torch.Tensor) or value.dim() == 0:
                    continue
                if to_host and value.device.type != "cpu":
                    host = torch.empty_like(value, device="cpu", pin_memory=True)
                    state[name] = host.copy_(value, non_blocking=True)
                elif not to_host:
                    state[name] = value.to(parameter.device, non_blocking=True)
        if to_host and torch.cuda.is_available():
            torch.cuda.synchronize()  # copies end before their sources go

    optimizer.register_step_pre_hook(lambda *_: move(False))
    optimizer.register_step_post_hook(lambda *_: move(True))
