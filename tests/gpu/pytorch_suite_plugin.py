"""pytest plugin of pytorch_suite.py: puts an allocator in place, runs its share of the tests in passes, records.

Each pass over the tests is an iteration to stalloc, so that a trace of some passes has a plan and later passes are
served from it. Steered by SUITE_* variables of the environment; see `Settings`. What happens goes to SUITE_RECORD as
one JSON object a line, written before and after each test: a crash leaves the test that it happened in.

A test finds the process as if it were the first, under every allocator: what the last one left (tensors and graphs that
a failed test's traceback keeps, cuBLAS workspaces, cached memory, peaks, how sizes are rounded) is cleared away. Some
tests compare counts before and after themselves, which garbage of others that goes meanwhile would change; others limit
the process to some MiB, of which a workspace of 32 MiB for every stream that was multiplied on leaves nothing. Tests
that read `expandable_segments` are told the native allocator's present setting, as PyTorch's own
test_cuda_expandable_segments.py tells them.

A kernel that faults leaves a context in which every later call fails. The process then ends behind the test that met
it, and another one goes on with the tests that are left, so that one fault is one failure.
"""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import json
import os
import re
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Optional

import pytest


@dataclasses.dataclass(frozen=True)
class Settings:
    """What the suite asks of this process."""

    record: Path
    allocator: str  # native, stalloc, or the path of a library for CUDAPluggableAllocator
    classes: frozenset[str]
    alone: re.Pattern[str]  # tests that need the device for themselves
    multiple: re.Pattern[str]  # tests of several devices
    share: str  # which tests are this process's: "alone", "multiple" or one of `shards` parts of the rest, by number
    shards: int
    assigned: dict[str, int]  # the part that a test is in; one that is not listed goes by its name
    passes: int
    done: frozenset[str]  # tests of an earlier process of this shard
    device_lost: int  # exit code

    @classmethod
    def read(cls) -> Settings:
        get = os.environ.__getitem__
        return cls(
            Path(get("SUITE_RECORD")),
            get("SUITE_ALLOCATOR"),
            frozenset(get("SUITE_CLASSES").split()),
            re.compile(get("SUITE_ALONE")),
            re.compile(get("SUITE_MULTIPLE")),
            get("SUITE_SHARE"),
            int(get("SUITE_SHARDS")),
            json.loads(Path(get("SUITE_ASSIGNED")).read_text()),
            int(get("SUITE_PASSES")),
            frozenset(json.loads(get("SUITE_DONE"))),
            int(get("SUITE_DEVICE_LOST")),
        )

    def takes(self, name: str) -> bool:
        """Whether the test is this process's. That does not depend on which other tests there are."""
        return name.split("::")[-2] in self.classes and name not in self.done and self._share_of(name) == self.share

    def _share_of(self, name: str) -> str:
        if self.multiple.search(name):
            return "multiple"
        if self.alone.search(name):
            return "alone"
        return str(self.assigned.get(name, zlib.crc32(name.encode()) % self.shards))


_settings = Settings.read()
_pass = 0


def _write(**event: Any) -> None:
    with _settings.record.open("a") as file:
        file.write(json.dumps(event) + "\n")


def _short(item: pytest.Item) -> str:
    """file.py::Class::test, wherever the file is."""
    path, _, rest = item.nodeid.partition("::")
    return f"{Path(path).name}::{rest}"


def _install() -> Any:
    """The stalloc package where it is the allocator, else None."""
    if _settings.allocator == "stalloc":
        import stalloc

        return stalloc
    if _settings.allocator != "native":
        import torch

        library = torch.cuda.memory.CUDAPluggableAllocator(_settings.allocator, "stalloc_malloc", "stalloc_free")
        torch.cuda.memory.change_current_allocator(library)
    return None


_stalloc = _install()


def _clear() -> None:
    """What the last test left behind."""
    torch: Any = sys.modules.get("torch")
    for name in ("last_exc", "last_type", "last_value", "last_traceback"):  # pytest's, for debuggers
        sys.__dict__.pop(name, None)
    gc.collect()
    if torch is None or not torch.cuda.is_initialized():
        return
    with contextlib.suppress(RuntimeError):  # an allocator that cannot do it
        torch.cuda.memory._set_allocator_settings("")  # rounding and splitting as at the start
        torch._C._cuda_clearCublasWorkspaces()
        torch.cuda.empty_cache()
        torch.empty(1, device="cuda")  # its segment stays: tests tell new pools by what the default one has before
        for device in range(torch.cuda.device_count()):
            torch.cuda.reset_peak_memory_stats(device)


def _expandable_segments(_: object) -> bool:
    try:
        return bool(sys.modules["torch"]._C._cuda_memorySnapshot(None)["allocator_settings"]["expandable_segments"])
    except RuntimeError:  # an allocator without snapshots
        return False


def pytest_collection_finish(session: pytest.Session) -> None:
    for case in {item.cls for item in session.items if isinstance(item, pytest.Function) and item.cls is not None}:
        if hasattr(case, "expandable_segments"):
            case.expandable_segments = property(_expandable_segments)
    gc.collect()
    gc.freeze()  # what the modules made needs no second look after every test


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items[:] = [item for item in items if len(item.nodeid.split("::")) == 3 and _settings.takes(_short(item))]


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> Optional[bool]:
    global _pass
    if session.testsfailed:
        raise session.Interrupted("a test file could not be imported")
    for _pass in range(_settings.passes):
        if _stalloc is not None:
            _stalloc.iteration(_pass)
        for index, item in enumerate(session.items):
            following = session.items[index + 1] if index + 1 < len(session.items) else None
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        if _stalloc is not None:
            _write(event="stats", process=os.getpid(), stats=_stalloc.stats())
    return True


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    _clear()
    _write(event="start", test=_short(item), number=_pass)
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    report: Any = yield
    if report.when == "call" or report.outcome != "passed":
        message = "" if report.outcome == "passed" else str(report.longrepr)[-1500:]
        _write(
            event="end",
            test=_short(item),
            number=_pass,
            outcome=report.outcome,
            message=message,
            seconds=round(report.duration, 2),
        )
    if report.outcome == "failed" and _device_is_lost():
        print(report.longrepr, flush=True)
        os._exit(_settings.device_lost)
    return report


def _device_is_lost() -> bool:
    torch: Any = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return False
    try:
        torch.cuda.synchronize()
    except RuntimeError:
        return True
    return False
