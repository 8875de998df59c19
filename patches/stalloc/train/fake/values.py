"""Values of fake tensors that are known all the same, since nothing that is unknown went into them.

Small tensors of integers and truths (batches, masks, counts) and tiny ones of floats are computed along with their
fakes, on the CPU, by the same operators: views stay views, and what is changed in place is changed in its views, too. A
loss is not known, but is taken to be a number: it is neither NaN nor infinite.

Threads: under the lock of the dispatch mode.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Optional

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils import _python_dispatch
from torch.utils._pytree import tree_leaves, tree_map

_aten = torch.ops.aten
_KNOWN = "_stalloc_known"
_TRUE = "_stalloc_true"
_COMPARED = "_stalloc_compared"
_MOST = 1 << 20  # elements of integers and truths
_MOST_FLOATS = 1 << 10
_NOT_NUMBERS = frozenset({_aten.isnan.default, _aten.isinf.default, _aten.isneginf.default, _aten.isposinf.default})
_ORS = frozenset({_aten.bitwise_or.Tensor, _aten.bitwise_or_.Tensor, _aten.__or__.Tensor, _aten.logical_or.default})
_LIKE = frozenset(
    {_aten.zeros_like.default, _aten.ones_like.default, _aten.full_like.default, _aten.new_zeros.default}
    | {_aten.new_ones.default, _aten.new_full.default}
)  # of the first one's shape, whatever its values
_OF_ALL = frozenset({_aten.any.default, _aten.all.default})


class _Known:
    """The value of a fake tensor. Views of one storage share `valid`, a list of one truth."""

    def __init__(self, value: Any, valid: list[bool]) -> None:
        self.value = value
        self.valid = valid


class KnownValues:
    """Computes along. `device`: whose tensors are fake."""

    def __init__(self, device: str) -> None:
        self._device = device
        self._random: Optional[Any] = None  # state of the device's generator

    def of(self, tensor: Any) -> Optional[Any]:
        """The value, a tensor of the CPU not to be changed; None where it is not known."""
        if not isinstance(tensor, FakeTensor):
            return tensor if tensor.device.type == "cpu" and tensor.layout is torch.strided else None
        known: Optional[_Known] = tensor.__dict__.get(_KNOWN)
        return known.value if known is not None and known.valid[0] else None

    def compute(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Optional[Any]:
        """What the operator returns for the values of its arguments; None where they are not known."""
        if func in _LIKE and isinstance(args[0], FakeTensor) and self.of(args[0]) is None:
            with _python_dispatch._disable_current_modes():
                args = (torch.empty(args[0].shape, dtype=args[0].dtype), *args[1:])
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        if any(self.of(tensor) is None for tensor in tensors):
            return None
        if func in _OF_ALL and self._is_expanded(args[0]):
            return self._plain(args[0])[(0,) * args[0].dim()].clone()
        if any(_too_large(tensor) and not self._is_expanded(tensor) for tensor in tensors):
            return None
        try:
            with _python_dispatch._disable_current_modes(), torch.no_grad():
                return self._at_random(func, *tree_map(self._plain, (tuple(args), dict(kwargs))))
        except Exception:  # whatever the CPU has no kernel for is not known
            return None

    @staticmethod
    def number(value: Any) -> Any:
        """The value of a tensor with one element."""
        with _python_dispatch._disable_current_modes():
            return value.item()

    def true(self, mask: Any) -> Optional[int]:
        """How many elements are true, of places that are all different; None where that is not known."""
        value = self.of(mask)
        if value is None:
            known: Optional[int] = mask.__dict__.get(_TRUE) if isinstance(mask, FakeTensor) else None
            return known
        with _python_dispatch._disable_current_modes():
            return int(value.count_nonzero())

    @staticmethod
    def is_compared(mask: Any) -> bool:
        """It says where a tensor has one value."""
        return _COMPARED in mask.__dict__

    def _true_then(self, func: Any, args: Sequence[Any]) -> Optional[int]:
        """The same of the result: a mask that was set where an index says (samplers do), or one of two."""
        if func is _aten.index_fill_.int_Scalar and args[0].dim() == 1:
            before = self.true(args[0])
            return int(min(before + args[2].numel(), args[0].numel())) if before is not None and args[3] else None
        if func in _ORS:
            one, other = (self.true(operand) for operand in args[:2])
            if one is not None and other is not None:
                return int(min(one + other, args[0].numel()))
        return None

    def follow(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any) -> bool:
        """Called after each operator, with its fake result; returns whether values are known."""
        truth = _truth(func, args)
        leaves = [leaf for leaf in tree_leaves(result) if isinstance(leaf, FakeTensor)]
        if truth is not None:
            with _python_dispatch._disable_current_modes():
                value = torch.tensor(truth).expand(leaves[0].shape)
            leaves[0].__dict__[_KNOWN] = _Known(value, [True])
            return True
        small = not any(_too_large(leaf) for leaf in leaves)
        values = self.compute(func, args, kwargs) if small else None
        if values is None:
            true = self._true_then(func, args)
            for tensor in _written(func, args, kwargs):
                if isinstance(tensor, FakeTensor):
                    tensor.__dict__.pop(_TRUE, None)
                    if _KNOWN in tensor.__dict__:
                        tensor.__dict__.pop(_KNOWN).valid[0] = False
            if func in (_aten.eq.Scalar, _aten.eq.Tensor):
                leaves[0].__dict__[_COMPARED] = True
            if true is not None:
                leaves[0].__dict__[_TRUE] = true
            return False
        found = [leaf for leaf in tree_leaves(values) if isinstance(leaf, torch.Tensor)]
        before = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, FakeTensor)]
        for fake, value in zip(leaves, found):
            self.attach(fake, value, before)
        return True

    def attach(self, fake: Any, value: Any, before: Sequence[Any] = ()) -> None:
        """`before`: tensors that this one may be a view of."""
        if fake.shape != value.shape or fake.dtype != value.dtype:
            return
        storage = value.untyped_storage()._cdata
        for other in before:
            known: Optional[_Known] = other.__dict__.get(_KNOWN)
            if known is not None and known.value.untyped_storage()._cdata == storage:
                fake.__dict__[_KNOWN] = _Known(value, known.valid)
                return
        fake.__dict__[_KNOWN] = _Known(value, [True])

    @staticmethod
    def take(tensor: Any, value: Any) -> None:
        """`tensor.data = value`."""
        tensor.__dict__.pop(_KNOWN, None)
        if isinstance(value, FakeTensor) and _KNOWN in value.__dict__:
            tensor.__dict__[_KNOWN] = value.__dict__[_KNOWN]

    def _is_expanded(self, tensor: Any) -> bool:
        value = self.of(tensor)
        return value is not None and value.numel() > 1 and not any(value.stride())

    def _plain(self, leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor):
            return self.of(leaf)
        return torch.device("cpu") if isinstance(leaf, torch.device) else leaf

    # A GPU's random numbers are none of the CPU's, whose generator shuffles data.
    def _at_random(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        if self._device == "cpu" or torch.Tag.nondeterministic_seeded not in func.tags:
            return func(*args, **kwargs)
        outside = torch.get_rng_state()
        if self._random is not None:
            torch.set_rng_state(self._random)
        try:
            return func(*args, **kwargs)
        finally:
            self._random = torch.get_rng_state()
            torch.set_rng_state(outside)


def _too_large(tensor: Any) -> bool:
    exact = not (tensor.dtype.is_floating_point or tensor.dtype.is_complex)
    return bool(tensor.layout is not torch.strided or tensor.numel() > (_MOST if exact else _MOST_FLOATS))


def _truth(func: Any, args: Sequence[Any]) -> Optional[bool]:
    """The value of each element of the result, if its operands are numbers."""
    if func in _NOT_NUMBERS:
        return False
    if func in (_aten.eq.Tensor, _aten.ne.Tensor) and args[0] is args[1]:
        return func is _aten.eq.Tensor
    if func in (_aten.eq.Scalar, _aten.ne.Scalar) and isinstance(args[1], float) and not math.isfinite(args[1]):
        return func is _aten.ne.Scalar
    return None


def _written(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Iterator[Any]:
    if not func._schema.is_mutable:
        return
    for place, argument in enumerate(func._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            given = args[place] if place < len(args) else kwargs.get(argument.name)
            yield from tree_leaves(given)
