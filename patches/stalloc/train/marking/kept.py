"""How much of a module's output its own backward pass keeps, as ReLU's and softmax's do: found in the graph's nodes.

Only types of nodes are looked at; a saved tensor is unpacked for nodes that Python code defines, and there only where
no hooks are in the way (checkpoints run a forward pass again to unpack one). No tensor is kept.
"""

from __future__ import annotations

import importlib
import re
from typing import Any, Optional

_RESULTS = frozenset(f"_saved_{name}" for name in ("result", "result0", "output", "out"))
# Nodes whose outputs lie in the memory of what they were made from.
_VIEWS = re.compile(
    "(Alias|AsStrided|Detach|Expand|Permute|Reshape(Alias)?|Select|Slice|Split(WithSizes)?|Squeeze|T|Transpose|Unbind|"
    "Unflatten|Unsafe(Split|View)|Unsqueeze|View)Backward0"
)
_MOST_VIEWS = 8  # of one another

_keeps: dict[type, bool] = {}  # whether a type of node keeps what it makes


def kept_bytes(tensors: list[Any]) -> int:
    """The blocks of a module's output that the nodes which made them keep for the backward pass.

    With several outputs all count: one may be made from another. -1: no output has gradients.
    """
    if all(getattr(tensor, "grad_fn", None) is None for tensor in tensors):
        return -1
    held: dict[int, int] = {}
    for tensor in tensors:
        node = getattr(tensor, "grad_fn", None)
        if node is not None and (len(tensors) > 1 or _keeps_result(node, tensor)):
            storage = _storage_of(tensor)
            if storage is not None:
                held[storage.data_ptr()] = storage.nbytes()
    return sum(held.values())


def _keeps_result(node: Any, tensor: Any) -> bool:
    for _ in range(_MOST_VIEWS):
        kind = type(node)
        if _VIEWS.fullmatch(kind.__name__) is None:
            break
        above = node.next_functions
        if not above or above[0][0] is None:
            return False
        node = above[0][0]
    if hasattr(kind, "_forward_cls"):  # torch.autograd.Function
        return _saves(node, tensor)
    known = _keeps.get(kind)
    if known is None:
        known = _keeps[kind] = not _RESULTS.isdisjoint(dir(kind))
    return known


def _saves(node: Any, tensor: Any) -> bool:
    """Whether a Function's context has the tensor's memory."""
    if importlib.import_module("torch")._C._autograd._top_saved_tensors_default_hooks(True) is not None:
        return False
    storage = _storage_of(tensor)
    if storage is None:
        return False
    others = (_storage_of(saved) for saved in node.saved_tensors if saved is not None)
    return any(other is not None and other.data_ptr() == storage.data_ptr() for other in others)


def _storage_of(tensor: Any) -> Optional[Any]:
    try:
        return tensor.untyped_storage()
    except (RuntimeError, NotImplementedError):  # sparse, functional
        return None
