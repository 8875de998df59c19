"""pytest plugin of pytorch_suite.py: puts an allocator in place, runs its share of the tests in passes, records.

Each pass over the tests is an iteration to stalloc, so that a trace of some passes has a plan and later passes are
served from it. Steered by SUITE_* variables of the environment; see `Settings`. What happens goes to SUITE_RECORD as
one JSON object a line, written before and after each test: a crash leaves the test that it happened in.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
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
    return report
