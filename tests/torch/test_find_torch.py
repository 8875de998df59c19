"""What the build finds out about a torch, without importing it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from adapter_process import ROOT

from stalloc.core import interface

pytestmark = pytest.mark.every_torch

FIND_TORCH = ROOT / "allocator" / "torch" / "find_torch.py"
LAST_WITH_UNTYPED_SEGMENTS = (2, 12)


def facts(*arguments: str) -> dict[str, str]:
    command = [sys.executable, "-I", str(FIND_TORCH), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return dict(line.split("=", 1) for line in done.stdout.splitlines())


@pytest.fixture(scope="module")
def found() -> dict[str, str]:
    return facts()


def test_a_package_that_is_named_is_found_as_the_interpreters_own(found: dict[str, str]) -> None:
    package = Path(found["c10"]).parents[1]
    assert facts("--package", str(package)) == found


def test_the_format_of_shared_segments_is_that_of_the_version(found: dict[str, str]) -> None:
    if not found["c10_cuda"]:
        pytest.skip("this torch has no CUDA")
    minor = tuple(int(part) for part in found["minor_version"].split("."))
    assert found["segment_format"] == ("2" if minor <= LAST_WITH_UNTYPED_SEGMENTS else "3")


def test_the_library_claims_what_the_build_found(found: dict[str, str], library: Path) -> None:
    claim = interface.claim_of(library)
    assert claim is not None
    assert claim.torch.partition("+")[0] == found["version"].partition("+")[0]
    assert claim.interface == found["interface"] == interface.fingerprint(found["include"])


def test_where_there_is_no_torch_nothing_is_found(tmp_path: Path) -> None:
    assert facts("--package", str(tmp_path)) == {}
