"""Fixtures of the adapter's tests on the CPU."""

from __future__ import annotations

from pathlib import Path

import pytest
from adapter_process import PROGRAMS, Adapter, find_library


@pytest.fixture(scope="session")
def library() -> Path:
    return find_library()


@pytest.fixture
def adapter(library: Path, tmp_path: Path) -> Adapter:
    return Adapter(library, PROGRAMS, tmp_path)
