"""Tensors shared with another process (CUDA IPC): plain torch there, stalloc here, in the arena and without one.

The cases are functions of programs/ipc_cases.py.
"""

from __future__ import annotations

import subprocess
import sys

import pytest
from gpu_process import ModedAdapter

pytestmark = pytest.mark.gpu

PROGRAM = "ipc_cases.py"
# Asks for a descriptor of the process that started it, as receivers of expandable segments do.
ASK = """
import ctypes, os
system = ctypes.CDLL(None, use_errno=True)
process = system.syscall(434, os.getppid(), 0)
if process < 0 or system.syscall(438, process, 0, 0) < 0:
    print(os.strerror(ctypes.get_errno()))
"""


@pytest.fixture(scope="module")
def refusal() -> str:
    """Why processes get no descriptors of each other here (a container without CAP_SYS_PTRACE); empty: they do."""
    return subprocess.run([sys.executable, "-c", ASK], capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.parametrize("moded", ["fast", "alloc", "exact"], indirect=True)
@pytest.mark.parametrize("case", ["queue", "simple_queue", "views", "rebuilt", "lifetime"])
def test_a_process_of_plain_torch_reads_and_writes_what_is_shared(moded: ModedAdapter, case: str, refusal: str) -> None:
    if moded.name != "fast" and refusal:
        pytest.skip(f"the system refuses pidfd_getfd: {refusal}")
    result = moded.case(case, PROGRAM)
    assert result["served"] == (moded.name != "fast"), "the case must have met our memory"
    assert result.get("unknown_frees", 0) == 0


def test_what_the_native_allocator_gave_out_is_shared_by_it(moded: ModedAdapter) -> None:
    """Not from its expandable segments: torch 2.11 mistakes their handles where some processes use fabric handles."""
    result = moded.case("native", PROGRAM, PYTORCH_CUDA_ALLOC_CONF="expandable_segments:False")
    assert result["served"] == (moded.name != "fast")
