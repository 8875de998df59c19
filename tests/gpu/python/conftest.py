"""Fixtures of the adapter's tests on a GPU: one prepared directory per mode, a fresh process per case."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent), *(str(HERE.parents[1] / folder) for folder in ("torch", "python"))]

from adapter_process import Adapter, find_library  # noqa: E402
from gpu_process import MODES, PROGRAMS, ModedAdapter  # noqa: E402


@pytest.fixture(scope="session")
def library() -> Path:
    torch = pytest.importorskip("torch")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTORCH_NVML_BASED_CUDA_CHECK", "1")  # asking must not initialise CUDA in this process
        if not torch.cuda.is_available():
            pytest.skip("needs an NVIDIA GPU")
    return find_library()


@pytest.fixture(scope="session")
def planned(library: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the plan of cuda_cases.py's loop."""
    adapter = ModedAdapter(library, tmp_path_factory.mktemp("planned"), "fast")
    adapter.case("loop")
    adapter.plan()
    return adapter.directory


@pytest.fixture(params=list(MODES))
def moded(request: pytest.FixtureRequest, library: Path, planned: Path, tmp_path: Path) -> ModedAdapter:
    shutil.copytree(planned / "output", tmp_path / "output")
    return ModedAdapter(library, tmp_path, request.param)


@pytest.fixture(scope="module")
def planned_loop(request: pytest.FixtureRequest, library: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the plan of the loop of the test module's PROGRAM."""
    adapter = Adapter(library, PROGRAMS, tmp_path_factory.mktemp("planned_loop"))
    assert adapter.run(request.module.PROGRAM, "loop", **MODES["fast"]).result == {}
    adapter.plan()
    return adapter.directory


@pytest.fixture
def looped(library: Path, planned_loop: Path, tmp_path: Path) -> Adapter:
    """An adapter whose programs find that plan."""
    shutil.copytree(planned_loop / "output", tmp_path / "output")
    return Adapter(library, PROGRAMS, tmp_path)


@pytest.fixture
def two_gpus(library: Path, tmp_path: Path) -> Adapter:
    """An adapter for programs that need two GPUs."""
    import torch

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTORCH_NVML_BASED_CUDA_CHECK", "1")  # asking must not initialise CUDA in this process
        if torch.cuda.device_count() < 2:
            pytest.skip("needs 2 GPUs")
    return Adapter(library, PROGRAMS, tmp_path)


@pytest.fixture
def adapter(library: Path, tmp_path: Path) -> Adapter:
    return Adapter(library, PROGRAMS, tmp_path)
