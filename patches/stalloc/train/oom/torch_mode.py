"""Reports where PyTorch's own allocators serve: in mode Torch, and where only STALLOC_OOM_REPORT is set.

On a GPU PyTorch reports an error before it is raised, and its snapshot has every block. On the CPU nothing does, so
an error that ends the program is seen, and of blocks only the tensors that Python can reach.
"""

from __future__ import annotations

import gc
import importlib
import os
import re
import sys
from pathlib import Path
from types import TracebackType
from typing import Any, Callable, Optional

from stalloc.core import log
from stalloc.train.imports import when_imported
from stalloc.train.oom import reports

_MOST = 16  # reports of a process
_CPU_ERROR = re.compile(
    r"DefaultCPUAllocator: (?:can't allocate memory|not enough memory): you tried to allocate (\d+)"
)
_ON_CPU = (
    "blocks: PyTorch keeps no list of them on the CPU; these are the tensors that Python can reach; what autograd "
    "alone holds is not among them"
)


class TorchReports:
    """The reports of one process."""

    def __init__(self, directory: Path, rank: int, mode: str = "Torch") -> None:
        self._directory, self._rank, self._mode = directory, rank, mode
        self._written = 0
        self._torch: Any = None
        self._hook: Callable[..., Any] = sys.excepthook

    def install(self, torch: Any) -> None:
        """Waits for CUDA to be initialised by the program, and for an error of the CPU's allocator that ends it."""
        self._torch = torch
        self._hook, sys.excepthook = sys.excepthook, self._ended
        torch.cuda._lazy_call(lambda: torch._C._cuda_attachOutOfMemoryObserver(self.on_cuda))

    def on_cuda(self, device: int, requested: int, total: int, free: int) -> None:
        """PyTorch's observer. Whatever fails here must not hide the error that is about to be raised."""
        try:
            self._write(self._of_cuda(device, requested, total, free))
        except Exception as error:
            log.warning(f"no out-of-memory report: {type(error).__name__}: {error}")

    def _of_cuda(self, device: int, requested: int, total: int, free: int) -> dict[str, Any]:
        memory = importlib.import_module("torch.cuda.memory")
        stats = memory.memory_stats(device)
        snapshot = memory._snapshot(device)
        report = self._head(device, requested)
        report["device_memory"] = {"free": free, "total": total}
        report["figures"] = {
            "live_bytes": stats["active_bytes.all.current"],
            "peak_live_bytes": stats["active_bytes.all.peak"],
            "upstream_reserved_bytes": stats["reserved_bytes.all.current"],
        }
        for segment in snapshot["segments"]:
            if segment["device"] == device:
                report["live_blocks"] += _blocks_of(segment)
        return report

    def _ended(self, kind: type[BaseException], error: BaseException, traceback: Optional[TracebackType]) -> None:
        found = _CPU_ERROR.search(str(error)) if isinstance(error, RuntimeError) else None
        if found is not None:
            try:
                self._write(self._of_cpu(int(found[1])))
            except Exception as failure:
                log.warning(f"no out-of-memory report: {type(failure).__name__}: {failure}")
        self._hook(kind, error, traceback)

    def _of_cpu(self, requested: int) -> dict[str, Any]:
        report = self._head(-1, requested)
        report["live_blocks"] = _reachable(self._torch)
        live = sum(block["bytes"] for block in report["live_blocks"])
        report["figures"] = {"live_bytes": live, "peak_live_bytes": None, "upstream_reserved_bytes": None}
        report["notes"] = [_ON_CPU]
        return report

    def _head(self, device: int, requested: int) -> dict[str, Any]:
        return {
            "report": "stalloc out of memory",
            "version": 1,
            "rank": self._rank,
            "pid": os.getpid(),
            "device": device,
            "request": {"bytes": requested, "stream": 0},
            "device_memory": None,
            "plan": None,
            "live_blocks": [],
            "live_blocks_omitted": 0,
            "events": [],
        }

    def _write(self, report: dict[str, Any]) -> None:
        if self._written == _MOST:
            return
        self._written += 1
        report.setdefault("notes", []).append(
            f"phases and the last events are not known in mode {self._mode}: modes Trace and Alloc know them"
        )
        reports.add(report, self._torch, self._mode)
        path = self._directory / f"rank{self._rank:05d}.pid{os.getpid()}.oom{self._written}.json"
        self._directory.mkdir(parents=True, exist_ok=True)
        reports.write(path, report)
        log.error(f"out of memory; report: {path}")


def _blocks_of(segment: dict[str, Any]) -> list[dict[str, Any]]:
    """Live ones of a snapshot's segment."""
    blocks, address = [], segment["address"]
    for block in segment["blocks"]:
        if block["state"] != "inactive":
            made = {
                "address": hex(block.get("address", address)),
                "bytes": block["size"],
                "requested": block.get("requested_size", block["size"]),
                "stream": segment["stream"],
                "from": "upstream",
            }
            if block["state"] == "active_pending_free":
                made["pending"] = True
            if block.get("frames"):
                made["stack"] = [f"{frame['filename']}:{frame['line']} {frame['name']}" for frame in block["frames"]]
            blocks.append(made)
        address += block["size"]
    return blocks


def _reachable(torch: Any) -> list[dict[str, Any]]:
    """Blocks of the CPU's tensors that the garbage collector knows, and of their gradients."""
    found: dict[int, int] = {}
    for thing in gc.get_objects():
        if not issubclass(type(thing), torch.Tensor):
            continue
        for tensor in (thing, thing.grad if thing.is_leaf else None):
            try:
                if tensor is not None and tensor.device.type == "cpu":
                    storage = tensor.untyped_storage()
                    found[storage.data_ptr()] = storage.nbytes()
            except (RuntimeError, NotImplementedError):  # no storage
                continue
    return [
        {"address": hex(address), "bytes": count, "requested": count, "stream": 0, "from": "upstream"}
        for address, count in found.items()
        if address and count
    ]


def watch(rank: str, mode: str = "Torch") -> None:
    """Where STALLOC_OOM_REPORT names a directory, reports are written from torch's import on."""
    directory = os.environ.get(reports.VARIABLE)
    if directory:
        when_imported("torch", TorchReports(Path(directory), int(rank or 0), mode).install)
