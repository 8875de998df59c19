"""copy.deepcopy of fake tensors: torch's own copies what makes them fake, too."""

from __future__ import annotations

import copy
from typing import Any

import torch

_of_tensor: Any = torch.Tensor.__deepcopy__


def deepcopy_tensor(tensor: Any, memo: dict[Any, Any]) -> Any:
    """A leaf with a storage of its own, which copies of other views of the storage share, as torch has it."""
    if id(tensor) in memo:
        return memo[id(tensor)]
    if not tensor.is_leaf:
        return _of_tensor(tensor, memo)  # says why not
    with torch.no_grad():
        new = _of_storage(tensor, memo).detach()
    if getattr(tensor, "_is_param", False):
        new = torch.nn.Parameter(new, tensor.requires_grad)
    else:
        new.requires_grad_(tensor.requires_grad)
    memo[id(tensor)] = new
    if tensor.grad is not None:
        new.grad = deepcopy_tensor(tensor.grad, memo)
    for name, value in tensor.__dict__.items():  # what the program has put there
        if name not in new.__dict__ and not name.startswith("_stalloc"):
            new.__dict__[name] = copy.deepcopy(value, memo)
    return new


def _of_storage(tensor: Any, memo: dict[Any, Any]) -> Any:
    storage = tensor.untyped_storage()
    if tensor.numel() * tensor.element_size() == storage.nbytes():
        return tensor.clone()
    key = ("a storage of stalloc's", storage._cdata)
    if key not in memo:
        memo[key] = torch.empty(storage.nbytes(), dtype=torch.uint8, device=tensor.device)
    return memo[key].view(tensor.dtype).as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())
