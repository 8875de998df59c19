"""What torch would choose on a GPU, where it looks at the device or at the type of a tensor to choose.

Attention: PyTorch's order of backends on recent GPUs, fused kernels first. Optimizers: the implementations over lists,
as for ordinary tensors of a GPU. torch.compile is left out, since kernels that it would fuse do not run; torch.save has
nothing to write.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Callable, Optional

import torch
from torch._subclasses.fake_tensor import FakeTensor

from stalloc.train.fake import copies
from stalloc.train.fake.patches import Patches
from stalloc.train.fake.values import KnownValues

_aten = torch.ops.aten
_FLASH_WIDEST = 256  # elements of a head


def install(patches: Patches, device: str, warn: Callable[[str], None]) -> None:
    """Puts all choices in place until `patches` are undone."""
    from torch.amp import grad_scaler
    from torch.optim import optimizer
    from torch.utils import _foreach_utils

    for listing in (optimizer, _foreach_utils):
        kinds: list[type] = listing._foreach_supported_types
        patches.set(listing, "_foreach_supported_types", [*kinds, FakeTensor])
    patches.set(torch, "compile", _uncompiled(warn))
    patches.set(torch, "save", _saving_nothing(warn))
    # A module that is moved keeps its parameters, so that tied ones stay one tensor.
    future = torch.__future__
    before = future.get_swap_module_params_on_conversion()
    change = future.set_swap_module_params_on_conversion
    patches.call(lambda: change(True), lambda: change(before))
    patches.set(torch.utils, "swap_tensors", _swap)
    patches.set(FakeTensor, "data", property(_data.__get__, _set_data))
    patches.set(FakeTensor, "__deepcopy__", copies.deepcopy_tensor)
    # Whether gradients are finite is not known; a step that is left out would be the exception.
    patches.set(grad_scaler.GradScaler, "_maybe_opt_step", _step)
    if device == "cuda":
        attention = torch.nn.functional.scaled_dot_product_attention
        patches.set(torch.nn.functional, "scaled_dot_product_attention", _attention_of_gpu(attention))


_data: Any = torch._C.TensorBase.data


# `tensor.data = moved`: the device of a fake tensor is an attribute, and does not move along.
def _set_data(tensor: Any, value: Any) -> None:
    _data.__set__(tensor, value)
    if isinstance(value, FakeTensor):
        tensor.fake_device = value.fake_device
    KnownValues.take(tensor, value)


# torch's own refuses tensors with weak references; those of fake ones are its converter's, and fit either.
def _swap(left: Any, right: Any) -> None:
    if left is right:
        return
    for name in ("__class__", "__dict__"):
        kept = getattr(left, name)
        setattr(left, name, getattr(right, name))
        setattr(right, name, kept)
    torch._C._swap_tensor_impl(left, right)


def _saving_nothing(warn: Callable[[str], None]) -> Callable[..., None]:
    def save(*_: Any, **__: Any) -> None:
        warn("torch.save writes nothing in a fake run")

    return save


def _step(_: Any, optimizer: Any, __: Any, *args: Any, **kwargs: Any) -> Any:
    return optimizer.step(*args, **kwargs)


def _uncompiled(warn: Callable[[str], None]) -> Callable[..., Any]:
    def compile_nothing(model: Optional[Any] = None, **_: Any) -> Any:
        warn("torch.compile is left out of a fake run: the trace is that of eager execution")
        return (lambda function: function) if model is None else model

    return compile_nothing


@dataclasses.dataclass
class _Attention:
    """One call of scaled_dot_product_attention, by the kernels that it may come to."""

    query: Any
    key: Any
    value: Any
    mask: Any
    dropout: float
    causal: bool
    scale: Optional[float]

    def by_flash(self) -> Any:
        width = self.query.shape[-1]
        missing = -width % 8
        tensors = [self.query, self.key, self.value]
        scale = self.scale
        if missing:
            tensors = [torch.nn.functional.pad(tensor, (0, missing)) for tensor in tensors]
            scale = 1 / math.sqrt(width) if scale is None else scale
        out = _aten._scaled_dot_product_flash_attention(*tensors, self.dropout, self.causal, False, scale=scale)[0]
        return out[..., :width] if missing else out

    def by_efficient(self) -> Any:
        tensors = [self.query, self.key, self.value]
        keeps = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)
        return _aten._scaled_dot_product_efficient_attention(
            *tensors, self._bias(), keeps, self.dropout, self.causal, scale=self.scale
        )[0]

    def by_mathematics(self, enable_gqa: bool) -> Any:
        return _aten._scaled_dot_product_attention_math(
            self.query,
            self.key,
            self.value,
            self.mask,
            self.dropout,
            self.causal,
            scale=self.scale,
            enable_gqa=enable_gqa,
        )[0]

    def _bias(self) -> Any:
        bias = self.mask
        if bias is None:
            return None
        if bias.dtype is torch.bool:
            bias = torch.zeros_like(bias, dtype=self.query.dtype).masked_fill_(bias.logical_not(), -math.inf)
        return bias.expand(*self.query.shape[:3], self.key.shape[2])


def _attention_of_gpu(original: Callable[..., Any]) -> Callable[..., Any]:
    def scaled_dot_product_attention(  # noqa: PLR0917 -- torch's
        query: Any,
        key: Any,
        value: Any,
        attn_mask: Optional[Any] = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: Optional[float] = None,
        enable_gqa: bool = False,
    ) -> Any:
        if not (isinstance(query, FakeTensor) and query.fake_device.type == "cuda"):
            return original(query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa)
        call = _Attention(query, key, value, attn_mask, dropout_p, is_causal, scale)
        width = query.shape[-1]
        half = query.dtype in (torch.float16, torch.bfloat16)
        plain = query.dim() == 4 and value.shape[-1] == width
        switches: Any = torch.backends.cuda
        if plain and half and attn_mask is None and width <= _FLASH_WIDEST and switches.flash_sdp_enabled():
            return call.by_flash()
        if plain and not enable_gqa and switches.mem_efficient_sdp_enabled() and width % (8 if half else 4) == 0:
            return call.by_efficient()
        return call.by_mathematics(enable_gqa)

    return scaled_dot_product_attention
