"""The published tool's names, so that its users change one import:

from memory_tools.utils.hook_model import hook_memory_model                    # before
from memory_tools.utils.memory_patcher import add_STAlloc_patch_for_infini

from stalloc.compat import add_STAlloc_patch_for_infini, hook_memory_model     # now
"""

from __future__ import annotations

from typing import Any

from stalloc.train import megatron
from stalloc.train.frameworks import layers
from stalloc.train.megatron import infini

__all__ = ["add_STAlloc_patch_for_infini", "hook_memory_model"]


def hook_memory_model(model: Any, args: Any = None) -> Any:
    """Marks the layers of `model` whose sizes depend on the data, and returns it.

    Megatron's own MoE layers are marked without this. `args` is not needed; STALLOC_DYNAMIC does not have to be set.
    """
    megatron.apply()
    layers.mark_moe_layers(model)
    return model


def add_STAlloc_patch_for_infini() -> None:  # noqa: N802  # the name is theirs
    """Marks Megatron and the schedulers that megatron_infini brings along."""
    megatron.apply()
    infini.apply()
