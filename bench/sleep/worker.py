"""The processes of measure.py: each answers each line of JSON with one.

    worker.py ROLE DEVICE NUMBER...

holder BYTES             parameters and an optimizer's state, half each, in tensors of up to 256 MiB and some small ones
trainer WIDTH LAYERS     a stack of linear layers under AdamW, whose losses depend on the seed alone
generator WIDTH LAYERS CACHE    weights that are kept and a cache that is dropped, as of an inference engine
occupant                 another process on the device, which takes memory, writes it, and gives it back
"""

from __future__ import annotations

import hashlib
import json
import sys
import time
from pathlib import Path
from typing import Any, Callable

import torch

import stalloc  # before anything is on the device

ROWS = 64  # of a trainer's batch


def synchronize(device: str) -> None:
    if device != "cpu":
        torch.cuda.synchronize()


def memory(device: str) -> dict[str, int]:
    """Bytes: of the process at the host, and held on the device by all."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    status = {line.split(":")[0]: int(line.split()[1]) * 1024 for line in lines if line.endswith(" kB")}
    if device == "cpu":
        return {"host": status["VmRSS"] - status["RssShmem"], "device": status["RssShmem"]}
    free, total = torch.cuda.mem_get_info()
    return {"host": status["VmRSS"], "device": total - free}


class Role:
    """What all of them can do; each order is a method."""

    def __init__(self, device: str) -> None:
        self.device = device

    def timed(self, work: Callable[[], Any]) -> dict[str, Any]:
        """Seconds until the device is done with it, and what it returns."""
        synchronize(self.device)
        begin = time.perf_counter()
        result = work()
        synchronize(self.device)
        return {"seconds": time.perf_counter() - begin, **(result or {})}

    def sleep(self) -> dict[str, Any]:
        return {**self.timed(lambda: stalloc.sleep().to_dict()), "memory": memory(self.device)}

    def wake(self) -> dict[str, Any]:
        return {**self.timed(lambda: stalloc.wake().to_dict()), "memory": memory(self.device)}


class Holder(Role):
    def __init__(self, device: str, total: int) -> None:
        super().__init__(device)
        sizes = [4 << 10] * 64
        total -= sum(sizes)
        while total > 0:
            sizes.append(min(total, 256 << 20))
            total -= sizes[-1]
        rows = [torch.full((size // 4,), float(i + 1), device=device) for i, size in enumerate(sizes)]
        half = len(rows) // 2
        self.rows: list[torch.Tensor] = [*map(torch.nn.Parameter, rows[:half]), *rows[half:]]

    def iterate(self, count: int) -> dict[str, Any]:
        for i in range(count):
            stalloc.iteration(i)
            for _ in range(4):
                torch.ones((1 << 20,), device=self.device).square_()
        synchronize(self.device)
        return {}

    def copies(self, size: int) -> dict[str, float]:
        """Bytes a second of copies between pinned memory and the device, by torch; the best of five."""
        with stalloc.outside():  # of the arena, which would be larger for it
            host = torch.empty(size, dtype=torch.uint8, pin_memory=self.device != "cpu")
            there = torch.empty(size, dtype=torch.uint8, device=self.device)
        host.fill_(1)

        def copy(target: torch.Tensor, source: torch.Tensor) -> None:
            target.copy_(source, non_blocking=True)

        def best(target: torch.Tensor, source: torch.Tensor) -> float:
            return min(float(self.timed(lambda: copy(target, source))["seconds"]) for _ in range(5))

        return {"to_host": size / best(host, there), "to_device": size / best(there, host)}

    def check(self) -> dict[str, bool]:
        return {"whole": all(bool((row == float(i + 1)).all()) for i, row in enumerate(self.rows))}


class Trainer(Role):
    def __init__(self, device: str, width: int, layers: int) -> None:
        super().__init__(device)
        torch.manual_seed(11)
        torch.use_deterministic_algorithms(True)
        with torch.device(device):  # one thread of the host would take minutes to draw a model of 15 GB
            blocks = [torch.nn.Sequential(torch.nn.Linear(width, width), torch.nn.GELU()) for _ in range(layers)]
        self.model = torch.nn.Sequential(*blocks)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)
        self.width = width
        self.losses: list[str] = []

    def step(self) -> None:
        number = len(self.losses)
        stalloc.iteration(number)
        generator = torch.Generator().manual_seed(number)
        batch = torch.randn((ROWS, self.width), generator=generator).to(self.device)
        loss = (self.model(batch) - batch.roll(1, 1)).square().mean()
        loss.backward()
        stalloc.optimizer()
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.losses.append(float(loss.item()).hex())

    def train(self, steps: int) -> dict[str, Any]:
        def all_steps() -> None:
            for _ in range(steps):
                self.step()

        return self.timed(all_steps)

    def end(self) -> dict[str, Any]:
        """Losses, and a digest of all weights and state."""
        digest = hashlib.sha256()
        for parameter in self.model.parameters():
            for tensor in (parameter, *self.optimizer.state[parameter].values()):
                digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
        return {"losses": self.losses, "digest": digest.hexdigest()}


class Generator(Role):
    def __init__(self, device: str, width: int, layers: int, cache_bytes: int) -> None:
        super().__init__(device)
        with stalloc.region("weights"):
            torch.manual_seed(5)
            self.weights = [torch.randn((width, width), device=device) / width**0.5 for _ in range(layers)]
        with stalloc.region("kv_cache", keep=False):
            self.cache = torch.zeros(cache_bytes // 4, device=device)

    def generate(self, tokens: int) -> dict[str, Any]:
        return self.timed(lambda: {"sum": self._generated(tokens).hex()})

    @torch.no_grad()
    def _generated(self, tokens: int) -> float:
        self.cache.zero_()  # what is dropped has no value
        state = torch.ones((16, self.weights[0].shape[0]), device=self.device)
        for i in range(tokens):
            for weight in self.weights:
                state = torch.tanh(state @ weight)
            self.cache[i % self.cache.numel()] = state[0, 0]
        return float(state.double().sum().item())


class Occupant(Role):
    def __init__(self, device: str) -> None:
        super().__init__(device)
        self.held = [torch.zeros(1, device=device)]

    def take(self, size: int) -> dict[str, Any]:
        """In pieces of up to 1 GB, so that holes of another process's do."""
        while size > 0:
            piece = min(size, 10**9)
            self.held.append(torch.full((piece,), 7, dtype=torch.uint8, device=self.device))
            size -= piece
        return {"sum": int(sum(int(tensor[-1]) for tensor in self.held))}

    def give(self) -> dict[str, Any]:
        self.held.clear()
        if self.device != "cpu":
            torch.cuda.empty_cache()
        return {}


ROLES: dict[str, type[Role]] = {"holder": Holder, "trainer": Trainer, "generator": Generator, "occupant": Occupant}


def main() -> None:
    role = ROLES[sys.argv[1]](sys.argv[2], *map(int, sys.argv[3:]))
    print("{}", flush=True)
    for line in sys.stdin:
        order = json.loads(line)
        try:
            answer = getattr(role, order.pop("do"))(**order)
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
