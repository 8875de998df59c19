"""torch_memory_saver's interface over stalloc's sleep and wake, for programs that speak it.

    from stalloc.memory_saver import torch_memory_saver

    with torch_memory_saver.region(tag="kv_cache"):
        cache = torch.empty(...)
    torch_memory_saver.pause("kv_cache")
    torch_memory_saver.resume("kv_cache")

Only what was allocated in a region pauses; under TMS_INIT_ENABLE=1 everything does, and its bytes are kept where
TMS_INIT_ENABLE_CPU_BACKUP=1. stalloc must be active in mode Alloc or Auto; docs/sleep.md has what is other.
"""

from __future__ import annotations

import contextlib
import importlib
import os
from collections.abc import Iterator
from typing import Any, Optional

from stalloc.train.sleep import api

_DEFAULT_TAG = "default"
_BACKENDS = (None, "mmap", "pinned")


class TorchMemorySaver:
    """One a process: `torch_memory_saver`. Errors are those of `stalloc.sleep` and `stalloc.wake`."""

    def __init__(self) -> None:
        self._tags: dict[str, bool] = {}  # of all regions so far; the last one's bytes are kept
        self.hook_mode = "preload"  # set by programs; nothing depends on it here
        self.memory_margin_bytes = 0  # likewise
        self.retain_cpu_backup = True  # likewise: the host's memory is kept in any case

    @property
    def enabled(self) -> bool:
        return True

    @contextlib.contextmanager
    def region(
        self,
        tag: str = _DEFAULT_TAG,
        enable_cpu_backup: bool = False,
        enable_disk_backup: bool = False,
        cpu_backup_backend: Optional[str] = None,
    ) -> Iterator[None]:
        """What is allocated inside pauses by its tag; its bytes are lost then, unless `enable_cpu_backup`."""
        if enable_disk_backup:
            raise NotImplementedError("stalloc keeps bytes in the host's memory, not on disk")
        if cpu_backup_backend not in _BACKENDS:
            raise ValueError(f"cpu_backup_backend must be one of {_BACKENDS}: {cpu_backup_backend!r}")
        if cpu_backup_backend is not None and not enable_cpu_backup:
            raise ValueError("cpu_backup_backend requires enable_cpu_backup=True")
        self._tags[tag] = enable_cpu_backup
        with api.region(tag, enable_cpu_backup):
            yield

    @contextlib.contextmanager
    def disable(self) -> Iterator[None]:
        """What is allocated inside never pauses, and can be had while all else does."""
        with api.outside():
            yield

    @contextlib.contextmanager
    def cuda_graph(  # noqa: PLR0917
        self,
        cuda_graph: Any,
        pool: Any = None,
        stream: Any = None,
        capture_error_mode: str = "global",
        tag: str = _DEFAULT_TAG,
        enable_cpu_backup: bool = False,
        cpu_backup_backend: Optional[str] = None,
    ) -> Iterator[None]:
        """Works like torch.cuda.graph. The graph's own pool does not pause; regions that it reads come back in time."""
        del tag, enable_cpu_backup, cpu_backup_backend
        torch = importlib.import_module("torch")
        with torch.cuda.graph(cuda_graph, pool=pool, stream=stream, capture_error_mode=capture_error_mode):
            yield

    def pause(self, tag: Optional[str] = None) -> None:
        """Pauses one tag, or all. Does nothing if no region has it."""
        if tag is None and _of_everything():
            api.sleep(None if _keeps_everything() else self._with_backup(), None, "host", None)
        else:
            tags = self._known(tag)
            if tags:
                api.sleep(None, tags, "host", None)

    def resume(self, tag: Optional[str] = None) -> None:
        """Resumes one tag, or all. RuntimeError while the device is full; it can be called again."""
        if tag is None and _of_everything():
            api.wake(None, None)
        else:
            tags = self._known(tag)
            if tags:
                api.wake(tags, None)

    def get_cpu_backup(self, x: Any, zero_copy: bool = False) -> Any:
        """A copy of the tensor's bytes while it is paused, on the CPU; None where they are not kept."""
        del zero_copy
        torch = importlib.import_module("torch")
        if not x.is_contiguous():
            raise ValueError("a backup is of a contiguous tensor")
        copy = torch.empty(x.shape, dtype=x.dtype, device="cpu")
        found = api.library().read_asleep(x.data_ptr(), x.nbytes, copy.data_ptr())
        return copy if found else None

    def set_disk_backup_dir(self, path: str) -> None:
        raise NotImplementedError(f"stalloc keeps bytes in the host's memory, not on disk: {path}")

    def _with_backup(self) -> list[str]:
        return [name for name, kept in self._tags.items() if kept]

    def _known(self, tag: Optional[str]) -> list[str]:
        return [name for name in self._tags if tag is None or name == tag]


def _of_everything() -> bool:
    return os.environ.get("TMS_INIT_ENABLE") == "1"


def _keeps_everything() -> bool:
    return os.environ.get("TMS_INIT_ENABLE_CPU_BACKUP") == "1"


@contextlib.contextmanager
def configure_subprocess() -> Iterator[None]:
    """Does nothing: processes that are started inside need nothing preloaded."""
    yield


torch_memory_saver = TorchMemorySaver()
