"""planted_faults.py FAULT: does what a checker has to find, in memory of ours. Prints nothing if it was found out."""

from __future__ import annotations

import sys

import adapter
import torch

STRAY = 'extern "C" __global__ void stray(char* base) { base[1ll << 36] = 1; }'
RACE = """
extern "C" __global__ void race(int* out) {
  __shared__ int cells[64];
  cells[threadIdx.x] = threadIdx.x;
  out[threadIdx.x] = cells[(threadIdx.x + 32) % 64];
}
"""


def memcheck(block: torch.Tensor) -> None:
    """Writes far behind the block, where nothing is mapped."""
    torch.cuda._compile_kernel(STRAY, "stray")(grid=(1, 1, 1), block=(1, 1, 1), args=[block])


def racecheck(block: torch.Tensor) -> None:
    """Threads of two warps read what others write, without a barrier."""
    torch.cuda._compile_kernel(RACE, "race")(grid=(1, 1, 1), block=(64, 1, 1), args=[block])


def csan(block: torch.Tensor) -> None:
    """Two streams write, without an order."""
    block.fill_(1)
    with torch.cuda.stream(torch.cuda.Stream()):
        block.fill_(2)


def main() -> None:
    adapter.install("cuda")
    block = torch.zeros(1 << 20, dtype=torch.int32, device="cuda")
    torch.cuda.synchronize()
    globals()[sys.argv[1]](block)
    torch.cuda.synchronize()
    adapter.show({"heap_hits": adapter.stats()["heap_hits"]})


if __name__ == "__main__":
    main()
