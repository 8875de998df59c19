"""How fast copies to the host are: measured after a trace, and taken from there by `stalloc fit`."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from stalloc import cli
from stalloc.tools.fitting.replayed import Bus
from stalloc.tools.report.collect import CollectError
from stalloc.train.marking import bus

SECONDS = {(bus.TO_HOST,): 0.5, (bus.TO_DEVICE,): 0.25}


def seconds(directions: tuple[str, ...]) -> dict[str, float]:
    if len(directions) == 1:
        return {directions[0]: SECONDS[directions]}
    return dict.fromkeys(directions, 1.0)


def test_speeds_are_bytes_over_seconds() -> None:
    count = bus._BYTES * bus._COPIES
    assert bus.speeds(seconds) == {
        "to_host": 2 * count,
        "to_device": 4 * count,
        "to_host_with_both": count,
        "to_device_with_both": count,
    }


@pytest.mark.parametrize("torch", [None, SimpleNamespace(cuda=SimpleNamespace(is_initialized=lambda: False))])
def test_without_a_gpu_there_is_no_file_and_an_old_one_goes(torch: Any, tmp_path: Path) -> None:
    path = tmp_path / "rank00000.bus.json"
    path.write_text("{}")
    bus.measure(path, torch)
    assert not path.exists()


def test_what_cannot_be_measured_costs_a_warning(tmp_path: Path, capsys: Any) -> None:
    def empty(*_: Any, **__: Any) -> None:
        raise RuntimeError("no memory")

    torch = SimpleNamespace(cuda=SimpleNamespace(is_initialized=lambda: True), empty=empty, uint8=None)
    bus.measure(tmp_path / "rank00000.bus.json", torch)
    assert "the speed of copies to the host was not measured: no memory" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def written(tmp_path: Path, content: Any) -> Path:
    trace = tmp_path / "rank00000.trace"
    trace.with_suffix(".bus.json").write_text(content if isinstance(content, str) else json.dumps(content))
    return trace


def test_the_slower_direction_counts(tmp_path: Path) -> None:
    trace = tmp_path / "rank00000.trace"
    assert Bus.measured_with(trace) == Bus(25e9, measured=False)
    written(tmp_path, {"to_host": 5e10, "to_device": 4e10, "to_host_with_both": 1e10})
    assert Bus.measured_with(trace) == Bus(4e10, measured=True)


def test_the_host_s_memory_is_what_its_processes_share(tmp_path: Path) -> None:
    assert bus.host_bytes({}, tmp_path) is None, "the system says nothing"
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text("MemTotal: 9000 kB\nMemAvailable: 1000 kB\n")
    assert bus.host_bytes({}, tmp_path) == 921600
    assert bus.host_bytes({"LOCAL_WORLD_SIZE": "4"}, tmp_path) == 230400
    group = tmp_path / "sys/fs/cgroup"
    group.mkdir(parents=True)
    (group / "memory.max").write_text("max\n")
    (group / "memory.current").write_text("500\n")
    assert bus.host_bytes({}, tmp_path) == 921600, "a container without a limit"
    (group / "memory.max").write_text("1500\n")
    assert bus.host_bytes({}, tmp_path) == 900
    found = Bus.measured_with(written(tmp_path, {"to_host": 5e10, "to_device": 4e10, "host_bytes": 900}))
    assert found == Bus(4e10, measured=True, host_bytes=900)


@pytest.mark.parametrize(
    ("content", "found"),
    [
        ({"to_host": 1e9}, "KeyError('to_device')"),
        ({"to_host": "fast", "to_device": 1}, "ValueError"),
        ([], "expected"),
        ("{", "expected"),
        ({"to_host": 0, "to_device": 1e9}, "expected more than 0 bytes a second, found 0.0"),
    ],
)
def test_a_file_that_is_none_is_one_line(tmp_path: Path, content: Any, found: str) -> None:
    with pytest.raises(CollectError, match=rf"rank00000\.bus\.json.*{re.escape(found)}") as error:
        Bus.measured_with(written(tmp_path, content))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("words", [["--bus-bandwidth", "0"], ["--bus-bandwidth", "fast"]])
def test_a_speed_is_a_number_above_zero(words: list[str], capsys: Any) -> None:
    with pytest.raises(SystemExit):
        cli.main(["fit", "run1", "--memory", "1G", *words])
    assert "expected GB/s, more than 0" in capsys.readouterr().err
