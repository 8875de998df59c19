"""What the measurements of sleep and wake share: processes that obey lines, the copies' bandwidth, a model, memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Callable, Optional

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
GB = 10**9


class Worker:
    """A process that answers each line of JSON with one. Its torch is there once `ready` was asked for."""

    def __init__(self, script: str, *arguments: str, **environment: str) -> None:
        path = os.pathsep.join([str(ROOT / "patches"), str(HERE), os.environ.get("PYTHONPATH", "")])
        self.process = subprocess.Popen(
            [sys.executable, str(HERE / script), *arguments],
            env={**os.environ, "PYTHONPATH": path, **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._ready: Optional[dict[str, Any]] = None

    @property
    def ready(self) -> dict[str, Any]:
        """What it told when it began to obey."""
        if self._ready is None:
            self._ready = self._answer()
        return self._ready

    def ask(self, do: str, **details: Any) -> dict[str, Any]:
        """RuntimeError with the process's words where it could not."""
        assert self.process.stdin is not None
        _ = self.ready
        self.process.stdin.write(json.dumps({"do": do, **details}) + "\n")
        self.process.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("{"):
                answer: dict[str, Any] = json.loads(line)
                if "error" in answer:
                    raise RuntimeError(answer["error"])
                return answer
        raise RuntimeError(f"{self.process.args} ended with {self.process.wait()}")

    def close(self) -> None:
        if self.process.stdin is not None:
            self.process.stdin.close()
        try:
            self.process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            self.process.kill()
        if self.process.stdout is not None:
            self.process.stdout.close()


def obey(commands: dict[str, Callable[..., dict[str, Any]]], ready: Optional[dict[str, Any]] = None) -> None:
    """The other end: until standard input ends."""
    print(json.dumps(ready or {}), flush=True)
    for line in sys.stdin:
        order = json.loads(line)
        try:
            answer = commands[order.pop("do")](**order)
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)


def synchronize(device: str) -> None:
    if device != "cpu":
        import torch

        torch.cuda.synchronize()


def timed(device: str, work: Callable[[], Any]) -> float:
    """Seconds until the device is done with it."""
    synchronize(device)
    begin = time.perf_counter()
    work()
    synchronize(device)
    return time.perf_counter() - begin


def bandwidth(device: str, size: int) -> dict[str, float]:
    """Bytes a second of copies between pinned memory and the device, by torch; the best of five."""
    import torch

    import stalloc

    with stalloc.outside():  # of the arena, which would be larger for it
        host = torch.empty(size, dtype=torch.uint8, pin_memory=device != "cpu")
        there = torch.empty(size, dtype=torch.uint8, device=device)
    host.fill_(1)
    to_device = min(timed(device, lambda: there.copy_(host, non_blocking=True)) for _ in range(5))
    to_host = min(timed(device, lambda: host.copy_(there, non_blocking=True)) for _ in range(5))
    return {"to_host": size / to_host, "to_device": size / to_device}


def _status(key: str) -> int:
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith(key):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"/proc/self/status has no {key}")


def available_host_bytes() -> int:
    """What the system has to give, and the process's control group leaves."""
    lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    there = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    group = Path("/sys/fs/cgroup")
    try:
        most = int((group / "memory.max").read_text(encoding="ascii"))
        return min(there, most - int((group / "memory.current").read_text(encoding="ascii")))
    except (OSError, ValueError):  # no group, or "max"
        return there


def memory(device: str) -> dict[str, int]:
    """Bytes: of the process at the host, and held on the device by all."""
    if device == "cpu":
        return {"host": _status("VmRSS") - _status("RssShmem"), "device": _status("RssShmem")}
    import torch

    free, total = torch.cuda.mem_get_info()
    return {"host": _status("VmRSS"), "device": total - free}


class Training:
    """A stack of linear layers under AdamW, whose losses depend on the seed alone."""

    def __init__(self, device: str, width: int, layers: int, rows: int) -> None:
        import torch

        torch.manual_seed(11)
        torch.use_deterministic_algorithms(True)
        self.torch, self.device, self.rows, self.width = torch, device, rows, width
        with torch.device(device):  # one thread of the host would take minutes to draw a model of 15 GB
            blocks = [torch.nn.Sequential(torch.nn.Linear(width, width), torch.nn.GELU()) for _ in range(layers)]
        self.model = torch.nn.Sequential(*blocks)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)
        self.number = 0

    def step(self) -> float:
        import stalloc

        stalloc.iteration(self.number)
        generator = self.torch.Generator().manual_seed(self.number)
        batch = self.torch.randn((self.rows, self.width), generator=generator).to(self.device)
        loss = (self.model(batch) - batch.roll(1, 1)).square().mean()
        loss.backward()
        stalloc.optimizer()
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.number += 1
        return float(loss.item())

    def digest(self) -> str:
        """Of all weights and state."""
        import hashlib

        digest = hashlib.sha256()
        for parameter in self.model.parameters():
            for tensor in (parameter, *self.optimizer.state[parameter].values()):
                digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
        return digest.hexdigest()


def sleep(device: str) -> dict[str, Any]:
    """Puts this process to sleep. What it told, its own seconds, and what it holds then."""
    import stalloc

    begin = time.perf_counter()
    result = stalloc.sleep()
    return {"seconds": time.perf_counter() - begin, **result.to_dict(), "memory": memory(device)}


def wake(device: str) -> dict[str, Any]:
    """`seconds` until all is there."""
    import stalloc

    begin = time.perf_counter()
    result = stalloc.wake()
    synchronize(device)
    return {"seconds": time.perf_counter() - begin, **result.to_dict(), "memory": memory(device)}


def plan(directory: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "patches")}
    subprocess.run(
        [sys.executable, "-m", "stalloc", "plan", str(directory)],
        env=environment,
        check=True,
        stdout=subprocess.DEVNULL,
    )


def write(path: Optional[Path], result: dict[str, Any]) -> None:
    """JSON to standard output, and to a file under a temporary name that is renamed."""
    text = json.dumps(result, indent=1)
    print(text)
    if path is not None:
        part = path.with_suffix(".part")
        part.write_text(text + "\n", encoding="utf-8")
        part.rename(path)
