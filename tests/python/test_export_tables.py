"""`stalloc export -f sqlite` and `-f csv`."""

from __future__ import annotations

import csv
import json
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from exports import STACKED, exported, trace_of_text
from lifetimes import lifetimes
from processes import view_of
from stalloc import cli

pytestmark = pytest.mark.usefixtures("real_libraries")


def asked(database: Path, query: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(database)) as opened:
        return opened.execute(query).fetchall()


AT_THE_PEAK = """FROM peaks p JOIN blocks b ON b.device = p.device AND b.allocated_event <= p.event
    AND (b.freed_event IS NULL OR b.freed_event > p.event)"""


def test_a_database_has_every_block_and_the_peak(trace: Path, tmp_path: Path) -> None:
    file = exported(trace, "sqlite", tmp_path)
    blocks = lifetimes(trace)
    assert asked(file, "SELECT count(*), count(freed_event), sum(bytes) FROM blocks") == [
        (len(blocks), sum(end >= 0 for _, _, end in blocks), sum(size for size, _, _ in blocks))
    ]
    [(live, summed)] = asked(file, f"SELECT live_bytes, sum(rounded) {AT_THE_PEAK}")
    assert live == summed
    by_phase = f"SELECT b.phase, sum(rounded) {AT_THE_PEAK} GROUP BY 1 ORDER BY 1"
    assert asked(file, by_phase) == asked(file, "SELECT phase, sum(bytes * count) FROM peak GROUP BY 1 ORDER BY 1")
    freed = f"SELECT coalesce(b.freed_in, ''), sum(rounded) {AT_THE_PEAK} GROUP BY 1 ORDER BY 1"
    assert asked(file, freed) == asked(file, "SELECT freed_in, sum(bytes * count) FROM peak GROUP BY 1 ORDER BY 1")
    by_class = f"SELECT b.class, b.layer, b.tensor, sum(rounded) {AT_THE_PEAK} GROUP BY 1, 2, 3 ORDER BY 1, 2, 3"
    of_peak = "SELECT class, layer, tensor, sum(bytes * count) FROM peak GROUP BY 1, 2, 3 ORDER BY 1, 2, 3"
    assert asked(file, by_class) == asked(file, of_peak)
    assert len(asked(file, by_class)) > 3
    iterations = "SELECT number FROM marks WHERE kind = 'iteration' AND edge = 'begin' ORDER BY event"
    assert asked(file, iterations) == [(0,), (1,), (2,)]
    assert asked(file, "SELECT max(peak_live) FROM phases") == [(live,)]


def test_a_database_has_stacks(build: Path, tmp_path: Path) -> None:
    stacked = trace_of_text(build, STACKED, tmp_path / "stacked.trace")
    query = "SELECT b.bytes, c.line, o.line FROM blocks b JOIN calls c ON c.id = b.call JOIN calls o ON o.id = c.outer"
    assert sorted(asked(exported(stacked, "sqlite", tmp_path), query)) == [(4096, 125, 30), (8192, 30, 7)]


def test_a_database_has_no_calls_of_stalloc(build: Path, tmp_path: Path) -> None:
    own = STACKED.replace("/site/torch/nn/modules/linear.py", "/site/stalloc/_hooks.py")
    assert own != STACKED
    file = exported(trace_of_text(build, own, tmp_path / "own.trace"), "sqlite", tmp_path)
    assert asked(file, "SELECT count(*) FROM calls WHERE file LIKE '%stalloc%'") == [(0,)]
    query = "SELECT b.bytes, c.line FROM blocks b JOIN calls c ON c.id = b.call"
    assert sorted(asked(file, query)) == [(4096, 30), (8192, 30)]


def test_csv_is_of_one_device_that_the_trace_has(build: Path, tmp_path: Path, capsys: Any) -> None:
    def export(events: str, *options: str) -> tuple[int, list[str]]:
        file = trace_of_text(build, f"stalloc-events 1\n{events}", tmp_path / "a.trace")
        code = cli.main(["export", str(file), "-f", "csv", "-o", str(tmp_path / "out.csv"), *options])
        return code, (tmp_path / "out.csv").read_text().splitlines()[1:]

    cpu, two = "a 0 700 -1 0 1\n", "a 0 700 0 0 1\na 1 512 1 0 2\n"
    assert export(cpu) == (0, ["0,1,2,1024"])
    assert export(two, "--device=1") == (0, ["1,1,2,512"])
    assert export(two)[0] == 1
    assert "has devices [0, 1], and CSV is of one: choose it with --device" in capsys.readouterr().err
    assert export(cpu, "--device=0")[0] == 1
    assert "has no device 0; it has [-1]" in capsys.readouterr().err


def test_csv_is_an_instance_for_pack(trace: Path, tmp_path: Path, build: Path) -> None:
    file = exported(trace, "csv", tmp_path)
    rows = list(csv.DictReader(file.read_text().splitlines()))
    assert len(rows) == len(lifetimes(trace))
    assert all(int(row["lower"]) < int(row["upper"]) and int(row["size"]) % 512 == 0 for row in rows)
    packed = [str(build / "stalloc-planner"), "pack", "--input", str(file), "--time-limit=1", "--json"]
    result = json.loads(subprocess.run(packed, check=True, capture_output=True).stdout)
    assert result["lower_bound"] == view_of(build, trace)["rank"]["devices"][0]["peak"]["live_bytes"]


def test_a_directory_is_exported_by_rank(build: Path, tmp_path: Path, capsys: Any) -> None:
    for rank, size in ((0, 512), (3, 1024)):
        trace_of_text(build, f"stalloc-events 1\n= rank {rank}\na 0 {size} -1 0 1\n", _trace_file(tmp_path, rank))
    for options, told in (((), "0,1,2,512"), (("--rank=3",), "0,1,2,1024")):
        assert cli.main(["export", str(tmp_path), "-f", "csv", "-o", str(tmp_path / "out.csv"), *options]) == 0
        assert (tmp_path / "out.csv").read_text().splitlines()[1:] == [told]
    assert cli.main(["export", str(tmp_path), "-f", "csv", "-o", str(tmp_path / "out.csv"), "--rank=1"]) == 1
    assert "has no rank 1; traced: 0, 3" in capsys.readouterr().err


def _trace_file(directory: Path, rank: int) -> Path:
    (directory / "trace").mkdir(exist_ok=True)
    return directory / "trace" / f"rank{rank:05d}.trace"
