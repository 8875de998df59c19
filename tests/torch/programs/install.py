"""Cases of test_cpu_install.py: install.py CASE ARGUMENTS..."""

from __future__ import annotations

import sys

import adapter
import torch


def old_and_new() -> None:
    old = torch.ones(1000)
    adapter.install("cpu")
    new = [torch.zeros(size) for size in range(1, 2000, 37)]
    old_sum = old.sum().item()
    del old, new
    stats = adapter.stats()
    keys = ("requests", "unknown_frees", "degraded")
    adapter.show({key: stats.get(key, 0) for key in keys} | {"old_sum": old_sum})


def twice(device: str) -> None:
    adapter.install(device)
    error = adapter.try_install(device)
    adapter.show({"error": error, "sum": torch.ones(10).sum().item()})


def version(device: str, running: str) -> None:
    error = adapter.try_install(device, running)
    adapter.show({"error": error, "built_for": adapter.library.stalloc_torch_built_for().decode()})


def both() -> None:
    errors = [adapter.try_install("cuda"), adapter.try_install("cpu")]
    torch.ones(1000)
    adapter.show({"errors": errors, "requests": adapter.stats()["requests"]})


{"both": both, "old_and_new": old_and_new, "twice": twice, "version": version}[sys.argv[1]](*sys.argv[2:])
