"""Every byte of a GPU: what a trace notes of it, and what reports make of that. No GPU: its figures are made here."""

from __future__ import annotations

import ctypes
import os
import types
from pathlib import Path
from typing import Any, Optional

import pytest

from stalloc import cli
from stalloc.core import nvml
from stalloc.tools.report import card
from stalloc.tools.report.collect import CollectError
from stalloc.train.marking.card import CardBytes
from synthetic_runs import planned_pipeline

GIB = 1 << 30
MIB = 1 << 20


class Gpu:
    """What the adapter, torch and NVIDIA's library say of one GPU; 8 GiB of it are another process's from the start."""

    def __init__(self, others: Optional[int] = 8 * GIB) -> None:
        self.held, self.context, self.others = 0, 500 * MIB, others
        self.communicators = self.graphs = self.libraries = 0
        self.started = self.context + 8 * GIB

    @property
    def taken(self) -> int:
        came = self.communicators + self.graphs + self.libraries
        return self.context + (8 * GIB if self.others is None else self.others) + came

    def uncounted(self) -> list[dict[str, Any]]:
        return [
            {
                "device": 2,
                "taken_bytes": self.taken,
                "taken_at_start_bytes": self.started,
                "held_bytes": self.held,
                "communicator_bytes": self.communicators,
                "graph_bytes": self.graphs,
            }
        ]

    def memory(self, address: str) -> Optional[nvml.CardMemory]:
        assert address == "00000000:1b:00.0"
        if self.others is None:
            return None
        own = self.taken - self.others + self.held
        return nvml.CardMemory(81 * GIB, GIB, own + self.others, {os.getpid(): own, 1: self.others})

    def noted(self, path: Path) -> CardBytes:
        cuda = types.SimpleNamespace(
            mem_get_info=lambda index: (80 * GIB - self.taken - self.held, 80 * GIB),
            get_device_properties=lambda index: types.SimpleNamespace(pci_domain_id=0, pci_bus_id=27, pci_device_id=0),
        )
        return CardBytes(path, self, types.SimpleNamespace(cuda=cuda), self.memory)  # type: ignore[arg-type]


def test_each_cause_has_its_bytes_and_the_sum_is_what_the_driver_counts(tmp_path: Path) -> None:
    gpu = Gpu()
    noted = gpu.noted(tmp_path / "rank00003.card.json")
    noted.iteration_finished()
    gpu.held, gpu.communicators, gpu.graphs, gpu.libraries = 40 * GIB, 550 * MIB, 30 * MIB, 90 * MIB
    gpu.others = 9 * GIB  # it grows meanwhile
    noted.look()
    noted.write()
    told = card.rows(card.read(tmp_path, 3)[2])
    assert told is not None
    assert {row["name"]: row["bytes"] for row in told["rows"]} == {
        "PyTorch's allocators and the arena": 40 * GIB,
        "CUDA context": 500 * MIB,
        "NCCL communicators": 550 * MIB,
        "CUDA graphs, after instantiation": 30 * MIB,
        "kernels and libraries, loaded as they were needed": 90 * MIB,
        "other processes": 9 * GIB,
    }
    assert told["sum_bytes"] == told["measured_bytes"] == told["total_bytes"] - told["free_bytes"]
    assert told["sentence"] == (
        "At the end of the traced iterations, of 80.00 GiB that programs can have (the driver keeps 1.00 GiB besides). "
        "The driver counts 50.14 GiB as taken, as much as the sum."
    )


def test_without_nvidias_library_other_processes_are_in_the_contexts_row(tmp_path: Path) -> None:
    gpu = Gpu(others=None)
    noted = gpu.noted(tmp_path / "rank00000.card.json")
    gpu.held, gpu.libraries = GIB, 90 * MIB
    noted.look()
    noted.write()
    told = card.rows(card.read(tmp_path, 0)[2])
    assert told is not None
    named = {row["name"]: row["bytes"] for row in told["rows"]}
    assert named["CUDA context and other processes"] == 8 * GIB + 500 * MIB
    assert "other processes" not in named
    assert told["sum_bytes"] == told["total_bytes"] - told["free_bytes"]
    assert told["sentence"].endswith("The driver's own count was not available.")


def test_communicators_that_are_gone_again_count_no_more_than_there_is(tmp_path: Path) -> None:
    gpu = Gpu()
    noted = gpu.noted(tmp_path / "rank00000.card.json")
    noted.look()
    gpu.libraries = -30 * MIB  # of 50 that the communicators had, 30 came back
    gpu.communicators = 50 * MIB
    noted.look()
    noted.write()
    row = card.read(tmp_path, 0)[2]
    assert (row["communicator_bytes"], row["library_bytes"]) == (20 * MIB, 0)


def test_it_looks_after_the_first_iteration_and_then_ever_more_seldom(tmp_path: Path) -> None:
    gpu = Gpu()
    noted = gpu.noted(tmp_path / "rank00000.card.json")
    looks: list[int] = []
    noted.look = lambda: looks.append(noted._looks)  # type: ignore[method-assign]
    for _ in range(20):
        noted.iteration_finished()
    assert looks == [1, 2, 4, 8, 16]


def test_without_a_gpu_there_is_no_file_and_an_older_one_goes(tmp_path: Path) -> None:
    path = tmp_path / "rank00000.card.json"
    path.write_text("{}")
    library = types.SimpleNamespace(uncounted=list)
    noted = CardBytes(path, library, None)  # type: ignore[arg-type]
    noted.look()
    noted.write()
    assert not path.exists()
    assert card.read(tmp_path, 0) == {}
    assert card.rows(None) is None


@pytest.mark.parametrize("text", ["", "[]", '{"devices": [{"bytes": 1}]}'])
def test_a_file_that_is_none_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "rank00000.card.json").write_text(text)
    with pytest.raises(CollectError, match=r"rank00000\.card\.json: expected \{\"devices\""):
        card.read(tmp_path, 0)


class FakeNvml:
    """libnvidia-ml.so.1 of one GPU."""

    def __init__(self, processes: int = 0, used: int = 5 * GIB, code: int = 0) -> None:
        self.processes, self.used, self.code = processes, used, code

    def nvmlDeviceGetHandleByPciBusId_v2(self, address: bytes, handle: Any) -> int:  # noqa: N802 - NVIDIA's names
        return 0 if address == b"0000:1b:00.0" else 6

    def nvmlDeviceGetMemoryInfo_v2(self, handle: Any, found: Any) -> int:  # noqa: N802
        row = found._obj
        assert row.version == ctypes.sizeof(row) | 2 << 24
        row.total, row.reserved, row.used, row.free = 81 * GIB, GIB, 7 * GIB, 73 * GIB
        return self.code

    def nvmlDeviceGetComputeRunningProcesses_v3(self, handle: Any, count: Any, rows: Any) -> int:  # noqa: N802
        for index in range(2):
            rows[index].pid, rows[index].used = 100 + index, self.used
        count._obj.value = 2
        return self.processes


def test_nvidias_library_tells_who_has_the_memory() -> None:
    found = nvml.memory("0000:1b:00.0", FakeNvml)
    assert found == nvml.CardMemory(81 * GIB, GIB, 7 * GIB, {100: 5 * GIB, 101: 5 * GIB})
    assert found.others(100) == 5 * GIB
    assert found.others(7) is None, "IDs of another namespace say nothing"


def test_what_nvidias_library_does_not_say_is_not_known() -> None:
    def none() -> Any:
        raise OSError("no such file")

    assert nvml.memory("0000:1b:00.0", none) is None
    assert nvml.memory("0000:00:00.0", FakeNvml) is None
    assert nvml.memory("0000:1b:00.0", lambda: FakeNvml(code=3)) is None
    assert nvml.memory("0000:1b:00.0", types.SimpleNamespace) is None
    for processes, used in ((3, GIB), (0, ctypes.c_ulonglong(-1).value)):
        found = nvml.memory("0000:1b:00.0", lambda p=processes, u=used: FakeNvml(p, u))  # type: ignore[misc]
        assert found is not None
        assert found.processes is None
        assert found.others(100) is None


def test_reports_show_it(tmp_path: Path, build: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = planned_pipeline(tmp_path, build)
    gpu = Gpu()
    noted = gpu.noted(run / "trace" / "rank00000.card.json")
    gpu.held = 40 * GIB
    noted.look()
    noted.write()
    path = run / "trace" / "rank00000.card.json"
    path.write_text(path.read_text().replace('"device": 2', '"device": 0'))
    assert cli.main(["report", str(run), "--md", "--rank", "0"]) == 0
    shown = capsys.readouterr().out
    assert "### Every byte of the GPU" in shown
    assert "| PyTorch's allocators and the arena | 40.00 GiB |" in shown
    assert "| together | 48.49 GiB |" in shown
    assert cli.main(["report", str(run), "--md", "--rank", "1"]) == 0
    assert "Every byte" not in capsys.readouterr().out


def test_a_difference_from_the_drivers_count_is_said() -> None:
    found = {"total_bytes": 80 * GIB, "driver_bytes": GIB, "measured_bytes": 10 * GIB, "sum_bytes": 9 * GIB}
    assert card.sentence(found).endswith("The driver counts 10.00 GiB as taken, 1.00 GiB more than the sum.")
    assert card.sentence({**found, "sum_bytes": 11 * GIB}).endswith("taken, 1.00 GiB less than the sum.")
