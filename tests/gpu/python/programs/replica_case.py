"""One rank of two on a node: replica_case.py ORDINAL [OTHER]; a loop on one GPU, at its end a tensor on another."""

from __future__ import annotations

import sys

import adapter
import torch

MIB = 1 << 20
SIZES = (2 * MIB, 6 * MIB + 512, 24 * MIB)
STEPS = 6


def main() -> None:
    ordinal = int(sys.argv[1])
    adapter.install("cuda")
    torch.cuda.set_device(ordinal)
    for index in range(STEPS):
        adapter.begin_iteration(index)
        tensors = [
            torch.full((size,), number + 1, dtype=torch.uint8, device="cuda") for number, size in enumerate(SIZES)
        ]
        for number, tensor in enumerate(tensors):
            assert int(tensor.min()) == int(tensor.max()) == number + 1
        del tensors, tensor
        adapter.end_iteration(index)
    for other in sys.argv[2:]:
        there = torch.full((MIB,), 7, dtype=torch.uint8, device=f"cuda:{other}")
        assert int(there.min()) == 7
    adapter.show(adapter.stats())


if __name__ == "__main__":
    main()
