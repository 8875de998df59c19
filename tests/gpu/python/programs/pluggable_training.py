"""pluggable_training.py LIBRARY STEPS: trains through libstalloc.so as torch.cuda's pluggable allocator; prints losses.

LIBRARY `-` trains with the native allocator. Iterations are marked through the C ABI.
"""

from __future__ import annotations

import ctypes
import json
import sys

import torch

MARK_ITERATION, EDGE_BEGIN = 2, 1


def main() -> None:
    library, steps = sys.argv[1], int(sys.argv[2])
    abi = None
    if library != "-":
        pluggable = torch.cuda.memory.CUDAPluggableAllocator(library, "stalloc_malloc", "stalloc_free")
        torch.cuda.memory.change_current_allocator(pluggable)
        abi = ctypes.CDLL(library)
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(512, 2048), torch.nn.GELU(), torch.nn.Linear(2048, 512)).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    losses = []
    for step in range(steps):
        if abi is not None:
            abi.stalloc_mark(MARK_ITERATION, EDGE_BEGIN, 0, 0, step, None, 0)
        generator = torch.Generator().manual_seed(step)
        batch = torch.randn(256, 512, generator=generator).cuda()
        optimizer.zero_grad()
        loss = (model(batch) - batch).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item().hex())
    stats = None
    if abi is not None:
        buffer = ctypes.create_string_buffer(1 << 16)
        abi.stalloc_stats_json.restype = ctypes.c_size_t
        abi.stalloc_stats_json(buffer, ctypes.c_size_t(len(buffer)))
        stats = json.loads(buffer.value)
        abi.stalloc_flush()
    print(json.dumps({"losses": losses, "stats": stats}))


if __name__ == "__main__":
    main()
