"""`stalloc doctor`: this machine, and others with one thing wrong each."""

from __future__ import annotations

import ctypes
import json
import types
from pathlib import Path
from typing import Any, Optional

import pytest

from processes import run_python
from stalloc.core import nvml
from stalloc.tools.commands import doctor
from stalloc.tools.doctor import gpu, memory, sharing, software, storage
from stalloc.tools.doctor.machine import FAILURE, OK, WARNING, Finding, Machine


class FakeDriver:
    """libcuda: so many devices, with these attributes."""

    def __init__(self, init: int = 0, version: int = 13000, devices: int = 1, attributes: tuple[int, ...] = (102, 103)):
        self._init, self._version, self._devices, self._attributes = init, version, devices, attributes

    def cuInit(self, flags: int) -> int:  # noqa: N802 - the driver's names
        return self._init

    def cuDriverGetVersion(self, value: Any) -> int:  # noqa: N802
        value._obj.value = self._version
        return 0

    def cuDeviceGetCount(self, value: Any) -> int:  # noqa: N802
        value._obj.value = self._devices
        return 0

    def cuDeviceGet(self, device: Any, index: int) -> int:  # noqa: N802
        device._obj.value = index
        return 0

    def cuDeviceGetName(self, name: Any, size: int, device: ctypes.c_int) -> int:  # noqa: N802
        name.value = b"Fake H100"
        return 0

    def cuDeviceTotalMem(self, total: Any, device: ctypes.c_int) -> int:  # noqa: N802
        total._obj.value = 80 << 30
        return 0

    def cuDeviceGetPCIBusId(self, address: Any, size: int, device: ctypes.c_int) -> int:  # noqa: N802
        address.value = b"0000:1b:00.0"
        return 0

    def cuDeviceGetAttribute(self, value: Any, attribute: int, device: ctypes.c_int) -> int:  # noqa: N802
        value._obj.value = int(attribute in self._attributes)
        return 0


def torch(cuda: Optional[str] = "13.0", available: bool = True) -> Any:
    return types.SimpleNamespace(
        __version__="2.15.0",
        __file__="/nowhere/torch/__init__.py",
        version=types.SimpleNamespace(cuda=cuda),
        cuda=types.SimpleNamespace(is_available=lambda: available),
    )


def with_driver(driver: Optional[FakeDriver], root: Path, **changes: Any) -> Machine:
    def load() -> Any:
        if driver is None:
            raise OSError("libcuda.so.1: cannot open shared object file")
        return driver

    return Machine(**{"root": root, "environ": {}, "cuda": load, "torch": torch(), **changes})


def states(findings: Any) -> dict[str, str]:
    return {finding.subject: finding.status for finding in findings}


def test_this_machine_is_examined_and_nothing_is_wrong_that_is_built_here(build: Path, tmp_path: Path) -> None:
    environment = {"STALLOC_LIB_PATH": str(build), "STALLOC_MODE": "Alloc", "STALLOC_MODEL_INFO_PATH": str(tmp_path)}
    done = run_python("-m", "stalloc", "doctor", "--json", environment=environment)
    found = json.loads(done.out)
    by_subject = {row["subject"]: row for row in found["findings"]}
    for subject in ("stalloc", "torch", "adapter", "planner", "host memory", "STALLOC_MODEL_INFO_PATH"):
        assert by_subject[subject]["status"] == OK, by_subject[subject]
    assert found["ok"] is (done.code == 0)
    assert "STALLOC_MODE=Alloc" in by_subject["variables"]["fact"]
    assert list(tmp_path.iterdir()) == []


def test_what_must_be_mended_is_a_failure_with_what_to_do(tmp_path: Path) -> None:
    environment = {"STALLOC_LIB_PATH": str(tmp_path), "STALLOC_MODE": "Trac", "STALLOC_MEMORY_LIMI": "1G"}
    environment["STALLOC_MODEL_INFO_PATH"] = "/proc/none"
    done = run_python("-m", "stalloc", "doctor", environment=environment)
    assert done.code == 1
    assert "FAIL  variables" in done.out
    assert "-> STALLOC_MODE must be one of Torch, Trace, Alloc, Auto: 'Trac'" in done.out
    assert "STALLOC_MEMORY_LIMI is not read by anything" in done.out
    assert "FAIL  STALLOC_MODEL_INFO_PATH" in done.out
    assert "to be mended first:" in done.out.splitlines()[-1]


def test_a_whole_gpu_is_well(tmp_path: Path) -> None:
    found = list(gpu.driver(with_driver(FakeDriver(devices=2), tmp_path)))
    assert states(found) == {"CUDA driver": OK, "CUDA runtime": OK, "GPU 0": OK, "GPU 1": OK}
    assert "Fake H100, 80.0 GiB, virtual memory management" in found[-1].fact


@pytest.mark.parametrize(
    ("driver", "changes", "subject", "status", "told"),
    [
        (None, {}, "CUDA driver", WARNING, "no GPU here"),
        (None, {"environ": {"STALLOC_DEVICE": "cuda"}}, "CUDA driver", FAILURE, "install the driver's libraries"),
        (FakeDriver(init=100), {}, "CUDA driver", FAILURE, "no device is visible"),
        (FakeDriver(version=12040), {}, "CUDA runtime", FAILURE, "install a torch for CUDA 12"),
        (FakeDriver(), {"torch": torch(available=False)}, "CUDA runtime", FAILURE, "says why"),
        (FakeDriver(attributes=()), {}, "GPU 0", FAILURE, "virtual memory management"),
        (FakeDriver(attributes=(102,)), {}, "GPU 0", WARNING, "cannot be shared"),
    ],
)
def test_what_a_driver_lacks_is_told(
    driver: Optional[FakeDriver], changes: dict[str, Any], subject: str, status: str, told: str
) -> None:
    nowhere = Path("/nowhere")
    found = {finding.subject: finding for finding in gpu.driver(with_driver(driver, nowhere, **changes))}
    assert found[subject].status == status
    assert told in found[subject].advice


def test_the_kernels_module_without_the_library_is_a_failure(tmp_path: Path) -> None:
    version = tmp_path / "proc" / "driver" / "nvidia" / "version"
    version.parent.mkdir(parents=True)
    version.write_text("NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.95.05  Tue")
    (found,) = gpu.driver(with_driver(None, tmp_path))
    assert found.status == FAILURE
    assert "580.95.05" in next(iter(gpu.driver(with_driver(FakeDriver(), tmp_path)))).fact


@pytest.mark.parametrize(
    ("capabilities", "has"), [("0000000000080000", "has CAP"), ("0000000000000000", "has not CAP")]
)
def test_processes_that_cannot_share_are_told_with_the_reason(
    capabilities: str, has: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/status").write_text(f"Name:\tx\nCapEff:\t{capabilities}\n")
    (tmp_path / "proc/sys/kernel/yama").mkdir(parents=True)
    (tmp_path / "proc/sys/kernel/yama/ptrace_scope").write_text("1\n")
    monkeypatch.setattr(sharing, "fetch_from_parent", lambda: "Operation not permitted")
    (found,) = sharing.between_processes(Machine(root=tmp_path))
    assert found.status == WARNING
    assert f"Operation not permitted (kernel.yama.ptrace_scope is 1, this process {has}" in found.fact
    assert "SYS_PTRACE" in found.advice


def test_a_container_with_little_memory_is_told(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text("MemTotal:       65536000 kB\n")
    assert next(iter(memory.limits(Machine(root=tmp_path)))).status == OK
    (tmp_path / "sys/fs/cgroup").mkdir(parents=True)
    (tmp_path / "sys/fs/cgroup/memory.max").write_text("1073741824\n")
    found = next(iter(memory.limits(Machine(root=tmp_path))))
    assert (found.status, "1.00 GiB (a limit of the container)" in found.fact) == (WARNING, True)


def test_limits_of_addresses_and_descriptors_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory.resource, "getrlimit", lambda which: (256, 512))
    found = states(memory.limits(Machine()))
    assert (found["addresses"], found["descriptors"]) == (FAILURE, WARNING)


def test_directories_are_looked_at_and_not_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    environ = {
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "STALLOC_MODEL_INFO_PATH": str(tmp_path / "file" / "run1"),
        "STALLOC_OOM_REPORT": str(tmp_path / "oom"),
    }
    found = states(storage.directories(Machine(environ=environ)))
    assert found == {"STALLOC_MODEL_INFO_PATH": FAILURE, "plans of Auto": OK, "STALLOC_OOM_REPORT": OK}
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_full_disk_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage.shutil, "disk_usage", lambda path: types.SimpleNamespace(free=1 << 20))
    (found,) = storage.directories(Machine(environ={"XDG_CACHE_HOME": str(tmp_path)}))
    assert (found.status, "1.00 MiB free" in found.fact) == (WARNING, True)


@pytest.mark.parametrize(
    ("environ", "status", "told"),
    [
        ({}, OK, ""),
        ({"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}, WARNING, "stalloc run"),
        ({"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}, FAILURE, "unset it"),
        ({"PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync"}, FAILURE, "unset backend:"),
        (
            {"STALLOC_MODE": "Trace", "STALLOC_LOG_LEVEL": "9"},
            FAILURE,
            "STALLOC_LOG_LEVEL must be one of debug, info, warning, error, off, or 0 to 3",
        ),
    ],
)
def test_settings_that_are_in_the_way_are_told(environ: dict[str, str], status: str, told: str) -> None:
    worst = max(
        software.environment(Machine(environ=environ)), key=lambda finding: (OK, WARNING, FAILURE).index(finding.status)
    )
    assert worst.status == status
    assert told in worst.advice


def test_a_torch_that_no_adapter_is_for_is_told_with_what_to_type(build: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STALLOC_LIB_PATH", str(build))
    other = torch()
    for version, told in (("2.9.99", "pip install"), ("3.0.0", "stalloc has them for PyTorch 2.9 to 2.15")):
        other.__version__ = version
        (found,) = software.adapter(Machine(torch=other))
        assert found.status == FAILURE
        assert told in found.advice


def test_a_planner_that_does_not_run_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STALLOC_LIB_PATH", str(tmp_path))
    (tmp_path / "stalloc-planner").write_text("#!/bin/sh\nexit 3\n")
    (tmp_path / "stalloc-planner").chmod(0o755)
    (found,) = software.planner(Machine())
    assert (found.status, "does not run" in found.fact) == (FAILURE, True)


def test_a_check_that_breaks_does_not_hide_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(machine: Machine) -> Any:
        raise KeyError("x")

    def fine(machine: Machine) -> Any:
        return [Finding("fine", OK, "yes")]

    monkeypatch.setattr(doctor, "_CHECKS", (broken, fine))
    found = doctor.examine(Machine())
    assert [finding.status for finding in found] == [WARNING, OK]
    assert "KeyError: 'x'" in found[0].fact
    assert list(doctor.show(found, colours=True))[1].startswith(" ")


def test_who_has_the_gpus_memory_is_named(tmp_path: Path) -> None:
    asked: list[str] = []

    def card(address: str) -> nvml.CardMemory:
        asked.append(address)
        return nvml.CardMemory(80 << 30, 1 << 29, 12 << 30, {77: 2 << 30, 78: 10 << 30})

    found = {row.subject: row for row in gpu.driver(with_driver(FakeDriver(), tmp_path, card=card))}["GPU 0 memory"]
    assert asked == ["0000:1b:00.0"]
    assert found.status == WARNING
    assert found.fact == (
        "67.50 GiB free; the driver keeps 512.00 MiB, processes have 12.00 GiB (process 78: 10.00 GiB, "
        "process 77: 2.00 GiB)"
    )
    assert "STALLOC_KEEP_FREE" in found.advice


@pytest.mark.parametrize("processes", [None, {}])
def test_an_idle_gpu_is_all_well(tmp_path: Path, processes: Optional[dict[int, int]]) -> None:
    machine = with_driver(FakeDriver(), tmp_path, card=lambda _: nvml.CardMemory(80 << 30, 1 << 29, 3 << 20, processes))
    found = {row.subject: row for row in gpu.driver(machine)}["GPU 0 memory"]
    assert (found.status, found.fact) == (OK, "79.50 GiB free; the driver keeps 512.00 MiB, processes have 3.00 MiB")


def test_without_nvidias_management_library_nothing_is_said_of_memory(tmp_path: Path) -> None:
    found = states(gpu.driver(with_driver(FakeDriver(), tmp_path, card=lambda _: None)))
    assert "GPU 0 memory" not in found
