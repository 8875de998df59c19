"""The utilisation lines."""

from __future__ import annotations

import types
from typing import Any

import pytest

from stalloc.core.outcome import planned
from stalloc.train import iteration_lines


class FakeCuda:
    """Two devices; only those with reserved bytes are reported."""

    def __init__(self, *peaks: tuple[int, int]) -> None:
        self._peaks = peaks

    def device_count(self) -> int:
        return len(self._peaks)

    def memory_stats(self, device: int) -> dict[str, int]:
        allocated, reserved = self._peaks[device]
        return {"allocated_bytes.all.peak": allocated, "reserved_bytes.all.peak": reserved} if reserved else {}


def figures(*peaks: tuple[int, int]) -> list[str]:
    return iteration_lines.cuda_figures(types.SimpleNamespace(cuda=FakeCuda(*peaks)))


def test_the_line_of_one_device_has_both_peaks_and_their_ratio() -> None:
    gib = 1 << 30
    assert figures((int(34.93 * gib), int(36.87 * gib)), (0, 0)) == [
        "peak allocated 34.93 GiB, peak reserved 36.87 GiB, utilisation 94.7 %"
    ]


def test_several_devices_are_told_apart() -> None:
    assert [line.split()[0] for line in figures((1, 2), (0, 0), (3, 3))] == ["cuda:0", "cuda:2"]


def test_the_host_line_has_the_resident_set() -> None:
    assert "peak resident" in iteration_lines.host_figures()


def test_the_allocators_line_names_its_hits(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "5")
    device: dict[str, Any] = {"peak_live_bytes": 1 << 30, "held_peak_bytes": 1 << 31, "planned_hits": 9, "requests": 10}
    iteration_lines.stats_report(lambda: {"devices": [device]})(4)
    assert capsys.readouterr().err == (
        "[stalloc] rank 5 iteration 4: peak live 1.00 GiB, peak held 2.00 GiB, utilisation 50.0 %, "
        "planned 9 of 10 requests\n"
    )


def test_the_hits_are_the_trainings_and_what_is_fenced_stands_beside_them(capsys: pytest.CaptureFixture[str]) -> None:
    device: dict[str, Any] = {
        "planned_hits": 90,
        "requests": 500,
        "steady": {"requests": 70, "hits": 70, "fenced": 400},
    }
    iteration_lines.stats_report(lambda: {"devices": [device]})(4)
    assert capsys.readouterr().err.endswith(", planned 70 of 70 steady requests, and 400 fenced\n")
    device["steady"]["fenced"] = 0
    assert planned(device) == "70 of 70 steady requests"
    device["steady"]["requests"] = 0  # the second iteration has not begun
    assert planned(device) == "90 of 500 requests"


def test_the_line_has_the_rank_s_place_in_the_model(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    options = ["--tensor-model-parallel-size", "2", "--pipeline-model-parallel-size", "2", "--micro-batch-size", "1"]
    monkeypatch.setattr("sys.argv", ["pretrain.py", *options])
    monkeypatch.setenv("RANK", "5")
    monkeypatch.setenv("WORLD_SIZE", "8")
    iteration_lines.stats_report(lambda: {"devices": [{}]})(4)
    monkeypatch.setenv("WORLD_SIZE", "7")  # which the groups do not divide
    iteration_lines.stats_report(lambda: {"devices": [{}]})(4)
    monkeypatch.setattr("sys.argv", ["pretrain.py", "--tensor-model-parallel-size", "two"])
    iteration_lines.stats_report(lambda: {"devices": [{}]})(4)
    begins = [line.split(": ")[0] for line in capsys.readouterr().err.splitlines()]
    assert begins == ["[stalloc] rank 5 iteration 4 (tp 1, pp 1, dp 0)", *2 * ["[stalloc] rank 5 iteration 4"]]


def test_figures_that_cannot_be_read_end_in_one_warning(capsys: pytest.CaptureFixture[str]) -> None:
    calls: list[int] = []

    def broken(iteration: int) -> None:
        calls.append(iteration)
        raise RuntimeError("does not yet support getDeviceStats")

    report = iteration_lines.harmless(broken)
    report(0)
    report(1)
    assert calls == [0]
    assert capsys.readouterr().err.count("getDeviceStats") == 1
