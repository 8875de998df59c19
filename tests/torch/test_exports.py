"""What libstalloc_torch.so shows to the process that loads it, and what it needs from it."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.every_torch

ABI = {
    "stalloc_abi_version",
    "stalloc_version",
    "stalloc_init",
    "stalloc_last_error",
    "stalloc_mark",
    "stalloc_stats_json",
    "stalloc_flush",
    "stalloc_stop_trace",
    "stalloc_start_trace",
    "stalloc_prepare_plan",
    "stalloc_take_plan",
    "stalloc_trace_again",
    "stalloc_signature_json",
    "stalloc_drop_plan",
    "stalloc_silence",
    "stalloc_move_run",
    "stalloc_text",
    "stalloc_name_tensor",
    "stalloc_layer_input",
    "stalloc_tell_oom_reports",
    "stalloc_sleep",
    "stalloc_wake",
    "stalloc_sleep_json",
    "stalloc_region_tag",
    "stalloc_enter_region",
    "stalloc_read_asleep",
    "stalloc_reserve_host_pool",
    "stalloc_release_host_pools",
    "stalloc_graph_error",
    "stalloc_graphs_json",
    "stalloc_uncounted_json",
    "stalloc_torch_built_for",
    "stalloc_torch_has_cuda",
    "stalloc_torch_interface",
    "stalloc_torch_install_cuda",
    "stalloc_torch_install_cpu",
    "stalloc_torch_install_fake",
    "stalloc_torch_fake_allocate",
    "stalloc_torch_fake_free",
    "stalloc_torch_fake_record_stream",
}
SYSTEM = re.compile(r"(libc|libm|libdl|libpthread|librt|libgcc_s|libstdc\+\+|ld-linux[\w-]*)\.so(\.\d+)*")


def output(*command: str) -> str:
    if shutil.which(command[0]) is None:
        pytest.skip(f"needs {command[0]}")
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_only_the_abi_is_exported(library: Path) -> None:
    lines = output("nm", "-D", "--defined-only", str(library)).splitlines()
    assert {line.split()[-1].partition("@")[0] for line in lines} == ABI


def test_it_needs_torch_and_the_system_only_and_carries_no_path(library: Path) -> None:
    dynamic = output("readelf", "-d", str(library))
    needed = set(re.findall(r"\(NEEDED\).*\[(.+)\]", dynamic))
    assert {name for name in needed if not SYSTEM.fullmatch(name)} <= {
        "libc10.so",
        "libc10_cuda.so",
        "libtorch_cpu.so",
    }
    assert "RPATH" not in dynamic
    assert "RUNPATH" not in dynamic
    assert b"site-packages" not in library.read_bytes()


# Which CUDA 12 and 13 both have, in one form: torch's version does not say with which of them it was built.
CUDA_RUNTIME = {
    "cudaDeviceSynchronize",
    "cudaDriverGetVersion",
    "cudaEventCreateWithFlags",
    "cudaEventDestroy",
    "cudaEventElapsedTime",
    "cudaEventQuery",
    "cudaEventRecord",
    "cudaEventSynchronize",
    "cudaGetErrorString",
    "cudaGetLastError",
    "cudaMemGetInfo",
    "cudaMemcpyPeerAsync",
    "cudaStreamIsCapturing",
    "cudaStreamQuery",
    "cudaStreamSynchronize",
    "cudaStreamWaitEvent",
}


def test_it_needs_no_function_that_one_cuda_alone_has(library: Path) -> None:
    symbols = output("nm", "-D", "--undefined-only", str(library))
    assert set(re.findall(r"\bcuda[A-Z]\w*", symbols)) <= CUDA_RUNTIME


def test_it_has_no_copy_of_torchs_static_variables(library: Path) -> None:
    """Nothing is exported, so an inline function with a static variable would give this library one of its own."""
    symbols = output("nm", "-C", str(library))
    for name in ("getConfigParserHook", "getMutableKeys", "CUDAAllocatorConfig::instance"):
        assert name not in symbols


def test_it_brings_neither_protobuf_nor_abseil(library: Path) -> None:
    symbols = output("nm", "-C", str(library))
    assert "google::protobuf" not in symbols
    assert "absl::" not in symbols
