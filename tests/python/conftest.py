"""What the Python tests share: the fake library and torch, the real build.

The real build is $STALLOC_BUILD_DIR, else build/release; tests that need it are skipped where neither has the adapter.
Test modules import from processes.py and its like, never from here: other directories have a conftest of their own.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from megatron_scripts import Megatron
from processes import HERE, ROOT, FakeProcess, Training
from shown_page import chromium
from synthetic_runs import synthesize

# A shell without job control starts what runs in its background with interrupts ignored, and so would be all
# processes that are started here.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# A process under the fakes ------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def fake_libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a fake libstalloc.so and libstalloc_torch.so."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler for the fake library")
    directory = tmp_path_factory.mktemp("fake_libraries")
    adapter = directory / "libstalloc_torch.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", str(adapter), str(HERE / "fake_library.c")], check=True)
    shutil.copy(adapter, directory / "libstalloc.so")
    return directory


@pytest.fixture
def fake(fake_libraries: Path, tmp_path: Path) -> FakeProcess:
    return FakeProcess(fake_libraries, tmp_path)


@pytest.fixture
def megatron(fake: FakeProcess) -> Megatron:
    return Megatron(fake)


# The real thing -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def build() -> Path:
    """The directory of the real libraries and the planner."""
    chosen = os.environ.get("STALLOC_BUILD_DIR")
    directory = Path(chosen) if chosen else ROOT / "build" / "release"
    missing = [n for n in ("libstalloc_torch.so", "libstalloc.so", "stalloc-planner") if not (directory / n).exists()]
    if missing and chosen:
        pytest.fail(f"STALLOC_BUILD_DIR={chosen} has no {', '.join(missing)}")
    if missing:
        pytest.skip(f"{directory} has no {', '.join(missing)}")
    pytest.importorskip("torch")
    return directory


@pytest.fixture
def real_libraries(build: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What this process loads, and the planner that it starts, are the real build's."""
    monkeypatch.setenv("STALLOC_LIB_PATH", str(build))


@pytest.fixture
def training(build: Path, tmp_path: Path) -> Training:
    return Training(build, tmp_path)


@pytest.fixture(scope="session")
def planned(build: Path, tmp_path_factory: pytest.TempPathFactory) -> Training:
    """A directory with the trace of four iterations, full marks, and its plan. Tests must not trace into it again."""
    training = Training(build, tmp_path_factory.mktemp("planned"))
    training.run("Trace", "--iterations", "4")
    training.plan()
    return training


@pytest.fixture(scope="session")
def trace(tmp_path_factory: pytest.TempPathFactory, build: Path) -> Path:
    """A synthetic one: three iterations of three micro-batches, four layers."""
    shape = ("--layers=4", "--stages=1", "--micro-batches=3", "--iterations=3", "--state=full")
    return synthesize(tmp_path_factory.mktemp("synthetic"), build, *shape)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    yield from chromium()
