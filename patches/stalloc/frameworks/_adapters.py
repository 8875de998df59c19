"""Which training frameworks mark themselves, and where their adapters are.

An adapter is a module with PATCHERS, which patch the framework's loop so that it marks what it does. It is imported
right before the framework is, so a run without one pays nothing.
"""

from __future__ import annotations

import importlib

from stalloc._core import _log
from stalloc._core._imports import before_import

# The framework's package: our adapter.
ADAPTERS = {
    "megatron": "stalloc.megatron._adapter",
    "deepspeed": "stalloc.frameworks.deepspeed",
    "transformers": "stalloc.frameworks.huggingface",
    "accelerate": "stalloc.frameworks.huggingface",
    "lightning": "stalloc.frameworks.lightning",
    "pytorch_lightning": "stalloc.frameworks.lightning",
    "torchtitan": "stalloc.frameworks.torchtitan",
    "colossalai": "stalloc.frameworks.colossalai",
    "torch.optim": "stalloc.frameworks.optimizer_state",
    "torch.distributed.pipelining": "stalloc.frameworks.pipelining",
}


def watch() -> None:
    """From now on each of the frameworks is patched when it is imported; at once if it is there."""
    for package, adapter in ADAPTERS.items():
        before_import(package, lambda package=package, adapter=adapter: _apply(package, adapter))  # type: ignore[misc]


def _apply(package: str, adapter: str) -> None:
    """Whatever fails here must not end the run: it has automatic marks."""
    try:
        for patcher in importlib.import_module(adapter).PATCHERS:
            patcher.apply()
    except Exception as error:
        _log.warning(f"{package} is not marked, iterations are found by the optimizer's steps: {error}")
