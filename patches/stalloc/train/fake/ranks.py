"""One rank of several, alone: a process group whose collectives return at once, with results of the right shapes.

It is torch's own "fake" backend. Other ranks are not there; what this one would hold of a sharded model, and what its
collectives would take as tensors, is traced. Buffers of NCCL are not.
"""

from __future__ import annotations

import importlib
import os
from typing import Any

from stalloc.train.fake.patches import Patches
from stalloc.train.fake.unknown import FakeTraceError, place


def install(patches: Patches) -> None:
    """Puts the group in place until `patches` are undone; nothing in a torch without torch.distributed."""
    distributed = importlib.import_module("torch.distributed")
    if not distributed.is_available():
        return
    begin = distributed.init_process_group

    def init_process_group(*_: Any, rank: int = -1, world_size: int = -1, **__: Any) -> None:
        fake_pg = importlib.import_module("torch.testing._internal.distributed.fake_pg")
        begin(
            "fake",
            store=fake_pg.FakeStore(),
            rank=rank if rank >= 0 else int(os.environ.get("RANK", "0")),
            world_size=world_size if world_size > 0 else int(os.environ.get("WORLD_SIZE", "1")),
        )

    patches.set(distributed, "init_process_group", init_process_group)
    parallel = importlib.import_module("torch.nn.parallel")
    patches.set(parallel.DistributedDataParallel, "__init__", _refuse)


def _refuse(*_: Any, **__: Any) -> None:
    raise FakeTraceError(
        f"{place()}: DistributedDataParallel times itself on the device, which a fake run does not have; without it the"
        " trace lacks its buckets alone, of as many bytes as gradients"
    )
