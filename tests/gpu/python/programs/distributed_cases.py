"""Cases of test_distributed_cuda.py: distributed_cases.py CASE [--install]; a process a rank, as torchrun starts them.

Every rank prints what it computed, bit for bit.
"""

from __future__ import annotations

import os
import sys
from typing import Any

import adapter
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.parallel import DistributedDataParallel
from train import Transformer

MIB = 1 << 20
STEPS = 8
RANK = int(os.environ["RANK"])
WORLD = int(os.environ["WORLD_SIZE"])


def collectives() -> list[Any]:
    """All-reduce, all-gather and send/recv over buffers of the loop, which the plan puts into the arena."""

    def step(index: int) -> list[int]:
        summed = torch.full((4 * MIB,), RANK + index + 1, dtype=torch.int64, device="cuda")
        dist.all_reduce(summed)
        mine = torch.full((MIB,), 10 * RANK + index, dtype=torch.int32, device="cuda")
        gathered = torch.empty(WORLD * MIB, dtype=torch.int32, device="cuda")
        dist.all_gather_into_tensor(gathered, mine)
        received = torch.empty(MIB, dtype=torch.int32, device="cuda")
        peers = [(RANK + 1) % WORLD, (RANK - 1) % WORLD]
        work = dist.batch_isend_irecv(
            [dist.P2POp(dist.isend, mine, peers[0]), dist.P2POp(dist.irecv, received, peers[1])]
        )
        for one in work:
            one.wait()
        late = dist.all_reduce(summed, async_op=True)
        assert late is not None
        late.wait()
        ends = [int(tensor.min()) for tensor in (summed, received)] + [
            int(tensor.max()) for tensor in (summed, received)
        ]
        return ends + [int(part.sum()) for part in gathered.chunk(WORLD)]

    return adapter.steps(STEPS, step)


def expected_collectives() -> list[Any]:
    results = []
    for index in range(STEPS):
        total = sum(rank + index + 1 for rank in range(WORLD)) * WORLD
        from_peer = 10 * ((RANK - 1) % WORLD) + index
        results.append([total, from_peer, total, from_peer] + [(10 * rank + index) * MIB for rank in range(WORLD)])
    return results


def side_stream() -> list[Any]:
    """Buffers are reduced on a stream of their own and freed before it gets there, as overlapped gradient sums are.

    What takes the bytes over at once is written to by the main stream, which must wait for the reduction.
    """
    side = torch.cuda.Stream()

    def step(index: int) -> list[int]:
        ends = []
        for bucket in range(4):
            buffer = torch.arange(2 * MIB, dtype=torch.int32, device="cuda")
            buffer.mul_(RANK + 1).add_(index + bucket)
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                torch.cuda._sleep(10_000_000)
                dist.all_reduce(buffer)
                result = torch.stack([buffer.min().long(), buffer.max().long(), buffer.sum()])
            buffer.record_stream(side)
            del buffer
            other = torch.full((2 * MIB,), -1, dtype=torch.int32, device="cuda")
            torch.cuda.current_stream().wait_stream(side)
            result.record_stream(torch.cuda.current_stream())
            ends += [int(value) for value in result] + [int(other.max())]
            del result, other
        return ends

    return adapter.steps(STEPS, step)


def expected_side_stream() -> list[Any]:
    scale = sum(rank + 1 for rank in range(WORLD))
    last = 2 * MIB - 1

    def ends(offset: int) -> list[int]:
        lowest = WORLD * offset
        return [lowest, scale * last + lowest, scale * last * (last + 1) // 2 + lowest * (last + 1), -1]

    return [[end for bucket in range(4) for end in ends(index + bucket)] for index in range(STEPS)]


def mem_pool() -> list[Any]:
    """A pool that is registered with NCCL, beside the arena."""
    backend = dist.group.WORLD._get_backend(torch.device("cuda"))  # type: ignore[union-attr]
    pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        registered = torch.empty(4 * MIB, dtype=torch.int64, device="cuda")
    backend.register_mem_pool(pool)

    def step(index: int) -> list[int]:
        planned = torch.full((4 * MIB,), RANK + index, dtype=torch.int64, device="cuda")
        registered.copy_(planned)
        dist.all_reduce(registered)
        dist.all_reduce(planned)
        return [int(tensor.min()) for tensor in (registered, planned)]

    results = adapter.steps(STEPS, step)
    torch.cuda.synchronize()
    backend.deregister_mem_pool(pool)
    return results


def expected_mem_pool() -> list[Any]:
    return [[sum(rank + index for rank in range(WORLD))] * 2 for index in range(STEPS)]


def train(model: nn.Module, optimizer: torch.optim.Optimizer) -> list[str]:
    def step(index: int) -> str:
        torch.manual_seed(1000 * index + RANK)
        tokens = torch.randint(0, 128, (4, 48), device="cuda")
        with sdpa_kernel(SDPBackend.MATH):
            loss = nn.functional.cross_entropy(model(tokens).flatten(0, 1), tokens.roll(-1, 1).flatten())
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.item().hex()

    return adapter.steps(STEPS, step)


def ddp() -> list[Any]:
    torch.manual_seed(0)
    model = DistributedDataParallel(Transformer(recompute=False).cuda(), device_ids=[torch.cuda.current_device()])
    return train(model, torch.optim.AdamW(model.parameters(), lr=1e-3))


def fsdp2() -> list[Any]:
    torch.manual_seed(0)
    model = Transformer(recompute=True).cuda()
    for block in model.blocks:
        fully_shard(block)
    fully_shard(model)
    return train(model, torch.optim.AdamW(model.parameters(), lr=1e-3))


def main() -> None:
    torch.use_deterministic_algorithms(True)
    if "--install" in sys.argv:
        adapter.install("cuda")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl", device_id=torch.device("cuda", int(os.environ["LOCAL_RANK"])))
    case = sys.argv[1]
    results = globals()[case]()
    torch.cuda.synchronize()
    expected = globals().get(f"expected_{case}")
    assert expected is None or results == expected(), results
    dist.destroy_process_group()
    adapter.show({"results": results, "stats": adapter.stats() if "--install" in sys.argv else None})


if __name__ == "__main__":
    main()
