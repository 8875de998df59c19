"""What the CPU's kernels take of its memory inside and give back: convolutions work on copies in blocked layouts.

PyTorch's CPU convolutions of float32 are oneDNN's. In the usual layout an operand is copied into blocks of channels, as
many as a vector register has, and the result is copied back. Where ATen's own kernels are taken (1 x 1 by one thread)
there are no copies. Rules: use_mkldnn in torch's aten/src/ATen/native/Convolution.cpp.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

_aten = torch.ops.aten
_SMALL = 20480  # elements: one image of fewer is ATen's
_MANY = 16  # images


@dataclasses.dataclass(frozen=True)
class Stage:
    """Copies of so many bytes that are there while `blocked` is computed, from which `result` is copied then."""

    copies: tuple[int, ...]
    blocked: int
    result: Any


def stages(func: Any, args: Sequence[Any], result: Any) -> Iterator[Stage]:
    """In the order in which the operator's results come; none for operators whose kernels copy nothing."""
    if func is _aten.convolution.default:
        of_input, of_weight = args[0], args[1]
        if _is_blocked(of_input, of_weight, *args[3:9]):
            yield Stage((*_read(of_input, args[8]), _bytes(of_weight)), _padded(result), result)
    elif func is _aten.convolution_backward.default:
        gradient, of_input, of_weight = args[:3]
        if not _is_blocked(of_input, of_weight, args[4], args[5], args[6], args[7], args[8], args[9]):
            return
        if isinstance(result[0], FakeTensor):
            blocked = sum(_read(of_input, args[9])) or _bytes(of_input)
            yield Stage((_padded(gradient), _bytes(of_weight)), blocked, result[0])
        if isinstance(result[1], FakeTensor):
            by_columns = _by_columns(of_input, of_weight, gradient)
            copies = (by_columns,) if by_columns else (_padded(gradient), *_read(of_input, args[9]))
            yield Stage(copies, _bytes(of_weight), result[1])


def _is_blocked(
    of_input: Any, of_weight: Any, stride: Any, _padding: Any, dilation: Any, _transposed: Any, _more: Any, groups: int
) -> bool:
    """Whether oneDNN's kernel is taken, and has to copy."""
    if of_input.dtype is not torch.float32 or not torch.backends.mkldnn.enabled or of_input.dim() < 3:
        return False
    if of_input.stride(1) == 1 and of_input.shape[1] > 1:  # channels last
        return False
    window = of_weight.shape[2:]
    large = of_input.shape[0] > 1 or groups > 1 or min(window) > 3 or math.prod(of_input.shape[:4]) > _SMALL
    moved = max(window) > 1 or max(stride) > 1 or max(dilation) > 1
    return large and (moved or of_input.shape[0] >= _MANY or torch.get_num_threads() > 1)


def _by_columns(of_input: Any, of_weight: Any, gradient: Any) -> int:
    """What a gradient of weights takes that is a product of matrices: of videos shorter than the window. Else 0."""
    if of_input.dim() != 5 or of_input.shape[2] >= of_weight.shape[2]:
        return 0
    columns = math.prod(of_weight.shape[1:]) * math.prod(gradient.shape[3:]) * of_weight.element_size()
    return int(torch.get_num_threads() * (4 * _bytes(of_weight) + columns))


def _read(of_input: Any, groups: int) -> tuple[int, ...]:
    """An image of few channels is read as it is."""
    return () if groups == 1 and of_input.shape[1] < _channels() else (_padded(of_input),)


def _padded(tensor: Any) -> int:
    channels, block = tensor.shape[1], _channels()
    return _bytes(tensor) // channels * (-(-channels // block) * block) if channels else 0


def _bytes(tensor: Any) -> int:
    return int(tensor.numel() * tensor.element_size())


def _channels() -> int:
    """The number of float32 values in a vector register."""
    return 16 if "AVX512" in torch.backends.cpu.get_cpu_capability() else 8
