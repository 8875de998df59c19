"""Cases of test_two_devices_cuda.py: two_device_cases.py CASE [--install]; both devices in one process.

Each case is a loop that requests the same in every iteration, on both devices, so that each has a plan of its own.
"""

from __future__ import annotations

import sys
from typing import Any

import adapter
import torch
from ipc_receiver import pattern
from torch import nn
from torch.nn import functional

MIB = 1 << 20
SIZES = (2 * MIB, 6 * MIB + 512, 700, 24 * MIB)
STEPS = 8
DEVICES = ("cuda:0", "cuda:1")


def copies() -> list[Any]:
    """Bytes go to the other device and back: as one range, and by kernels that read the peer's memory themselves."""
    host = {(size, key): pattern(size, key).pin_memory() for size in SIZES for key in range(4)}

    def holds(tensor: torch.Tensor, key: int) -> bool:
        return torch.equal(tensor.cpu(), host[tensor.numel(), key])

    def step(index: int) -> list[bool]:
        here, there = DEVICES if index % 2 == 0 else DEVICES[::-1]
        right = []
        for size in SIZES:
            ours, theirs = (torch.empty(size, dtype=torch.uint8, device=device) for device in DEVICES)
            ours.copy_(host[size, index % 4], non_blocking=True)
            theirs.copy_(host[size, (index + 1) % 4], non_blocking=True)
            sent, received = (ours, theirs) if here == DEVICES[0] else (theirs, ours)
            room = torch.empty_like(received)
            room.copy_(sent)
            back = room.to(here)
            halves = torch.empty(size // 2, dtype=torch.uint8, device=there)
            halves.copy_(sent[::2])
            wide = torch.empty(size, dtype=torch.int32, device=there)
            wide.copy_(sent)
            sent_key = index % 4 if here == DEVICES[0] else (index + 1) % 4
            right += [holds(room, sent_key), holds(back, sent_key), holds(ours, index % 4)]
            right += [holds(theirs, (index + 1) % 4)]
            right += [torch.equal(halves.cpu(), host[size, sent_key][::2])]
            right += [torch.equal(wide.cpu(), host[size, sent_key].int())]
        return right

    results = adapter.steps(STEPS, step)
    assert all(all(right) for right in results), results
    return results


def pipeline() -> list[Any]:
    """A model whose halves are on two devices; activations and their gradients go between them."""
    torch.manual_seed(5)
    halves = [
        nn.Sequential(nn.Linear(256, 1024), nn.GELU(), nn.Linear(1024, 256), nn.LayerNorm(256)).to(device)
        for device in DEVICES
    ]
    optimizers = [torch.optim.AdamW(half.parameters(), lr=1e-3) for half in halves]
    host = torch.randn(64, 256).pin_memory()

    def step(index: int) -> str:
        x = host.to(DEVICES[0], non_blocking=True) * (index + 1)
        y = halves[1](halves[0](x).to(DEVICES[1], non_blocking=True))
        loss = functional.mse_loss(y, x.detach().to(DEVICES[1]))
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        return loss.item().hex()

    return adapter.steps(STEPS, step)


def main() -> None:
    torch.use_deterministic_algorithms(True)
    if "--install" in sys.argv:
        adapter.install("cuda")
    results = globals()[sys.argv[1]]()
    for device in DEVICES:
        torch.cuda.synchronize(device)
    peer = [torch.cuda.can_device_access_peer(0, 1), torch.cuda.can_device_access_peer(1, 0)]
    adapter.show({"results": results, "peer": peer, "stats": adapter.stats() if "--install" in sys.argv else None})


if __name__ == "__main__":
    main()
