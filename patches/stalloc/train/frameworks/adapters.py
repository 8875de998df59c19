"""Which training frameworks mark themselves, and where their adapters are.

An adapter is a module with PATCHERS, which patch the framework's loop so that it marks what it does. It is imported
right before the framework is, so a run without one pays nothing.
"""

from __future__ import annotations

import importlib

from stalloc.core import log
from stalloc.train.imports import before_import

# The framework's package: our adapter.
ADAPTERS = {
    "megatron": "stalloc.train.megatron.adapter",
    "deepspeed": "stalloc.train.frameworks.deepspeed",
    "transformers": "stalloc.train.frameworks.huggingface",
    "accelerate": "stalloc.train.frameworks.huggingface",
    "lightning": "stalloc.train.frameworks.lightning",
    "pytorch_lightning": "stalloc.train.frameworks.lightning",
    "torchtitan": "stalloc.train.frameworks.torchtitan",
    "colossalai": "stalloc.train.frameworks.colossalai",
    "torch.optim": "stalloc.train.frameworks.optimizer_state",
    "torch.distributed.pipelining": "stalloc.train.frameworks.pipelining",
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
        log.warning(f"{package} is not marked, iterations are found by the optimizer's steps: {error}")
