"""`stalloc export -f snapshot`: what PyTorch's readers and `stalloc import` find in it."""

from __future__ import annotations

import json
import pickle
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from exports import STACKED, exported, trace_of_text
from lifetimes import lifetimes
from stalloc import cli
from synthetic_runs import synthesize


@pytest.fixture(autouse=True)
def _libraries(build: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STALLOC_LIB_PATH", str(build))


def test_a_snapshot_exported_and_imported_has_the_same_lifetimes(trace: Path, tmp_path: Path, capsys: Any) -> None:
    file = exported(trace, "snapshot", tmp_path)
    again = tmp_path / "again"
    assert cli.main(["import", str(file), "-o", str(again), "--json"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["iterations"] == 3
    assert lifetimes(again / "trace" / "rank00000.trace") == lifetimes(trace)


def test_passes_of_micro_batches_come_back_from_a_snapshot(build: Path, tmp_path: Path, capsys: Any) -> None:
    """Of an interleaved pipeline, marks in the same microsecond as events included."""
    pipeline = synthesize(
        tmp_path, build, "--layers=8", "--stages=2", "--chunks=2", "--micro-batches=4", "--iterations=3", "--state=full"
    )
    again = tmp_path / "again"
    assert cli.main(["import", str(exported(pipeline, "snapshot", tmp_path)), "-o", str(again)]) == 0
    capsys.readouterr()
    told = []
    for file in (pipeline, again / "trace" / "rank00000.trace"):
        report = subprocess.run([str(build / "stalloc-planner"), "report", str(file), "--json"], stdout=-1, check=True)
        device = json.loads(report.stdout)["devices"][0]
        phases = device["phases"]
        busy = [at for at, requests in enumerate(phases["requests"]) if requests]
        told.append(
            [[phases[column][at] for at in busy] for column in ("name", "requests", "peak_live", "begin_live")]
            + [device["peak"]["at_phase"]]
        )
    assert told[0] == told[1]
    assert any("chunk 1" in name for name in told[0][0])


def test_stacks_go_into_snapshots_and_come_back(build: Path, tmp_path: Path) -> None:
    def report(trace: Path) -> list[tuple[int, str, str]]:
        done = subprocess.run([str(build / "stalloc-planner"), "report", str(trace), "--json"], stdout=-1, check=True)
        device = json.loads(done.stdout)["devices"][0]
        peak, stacks = device["peak"], device["stacks"]
        return sorted(
            (size, stacks["call_site"][at], stacks["calls"][at]) for size, at in zip(peak["bytes"], peak["stack"])
        )

    trace = trace_of_text(build, STACKED, tmp_path / "stacked.trace")
    outer = "/home/me/a model.py:30 Block.forward\n/home/me/a model.py:7 <module>"
    told = [
        (512, "", ""),
        (4096, "a model.py:30 Block.forward", f"/site/torch/nn/modules/linear.py:125 Block.forward\n{outer}"),
        (8192, "a model.py:30 Block.forward", outer),
    ]
    assert report(trace) == told
    file = exported(trace, "snapshot", tmp_path)
    snapshot = pickle.loads(file.read_bytes())
    frames = {entry["size"]: entry["frames"] for entry in snapshot["device_traces"][0] if entry["action"] == "alloc"}
    linear = {"filename": "/site/torch/nn/modules/linear.py", "line": 125, "name": "Block.forward"}
    assert frames[4096] == [linear, *frames[8192]]
    assert frames[512] == []
    live = {block["requested_size"]: block["frames"] for block in snapshot["segments"][0]["blocks"]}
    assert live[4096] == frames[4096]
    assert 8192 not in live, "freed"
    # As PyTorch writes stacks of all kinds: what is not Python is left out.
    for entry in snapshot["device_traces"][0]:
        if entry["frames"]:
            entry["frames"].insert(0, {"filename": "??", "line": 0, "name": "c10::Allocator::allocate"})
            break
    file.write_bytes(pickle.dumps(snapshot))
    assert cli.main(["import", str(file), "-o", str(tmp_path / "again")]) == 0
    assert report(tmp_path / "again" / "trace" / "rank00000.trace") == told


def test_no_two_live_blocks_of_a_snapshot_overlap(trace: Path, tmp_path: Path) -> None:
    live: dict[int, int] = {}
    snapshot = pickle.loads(exported(trace, "snapshot", tmp_path).read_bytes())
    for entry in snapshot["device_traces"][0]:
        if entry["action"] == "alloc":
            assert all(entry["addr"] + entry["size"] <= a or a + s <= entry["addr"] for a, s in live.items())
            live[entry["addr"]] = entry["size"]
        elif entry["action"] == "free_requested":
            del live[entry["addr"]]
    blocks = snapshot["segments"][0]["blocks"]
    assert {b["address"] for b in blocks if b["state"] == "active_allocated"} == set(live)


# PyTorch's own readers of snapshots: what they refuse, its page would not draw either.
def test_pytorch_s_viewer_takes_what_is_exported(trace: Path, tmp_path: Path) -> None:
    viz = pytest.importorskip("torch.cuda._memory_viz")
    snapshot = pickle.loads(exported(trace, "snapshot", tmp_path).read_bytes())
    blocks = lifetimes(trace)
    assert "segments: 1\n" in viz.segsum(snapshot), "its sums are checked there"
    requests = re.findall(r"^\w+ = (?!MEM)\w+\[\d+:.*\]$", viz.trace(snapshot), re.M)
    assert len(requests) == len(blocks), "all of them inside the segment"
    for table in (viz.segments, viz.memory):
        assert "inactive" in table(snapshot, format_flamegraph=str)
    for page in (viz.trace_plot(snapshot), viz.trace_plot(snapshot, plot_segments=True), viz.segment_plot(snapshot)):
        assert "snapshot.pickle" in page
    segments = snapshot["segments"]
    assert viz.compare(segments, segments, format_flamegraph=str) == ""
    assert viz.compare([], segments, format_flamegraph=str).count("only_after;stream_") > 1
    still_live = viz.filter_alloc_free_pairs(snapshot)["device_traces"][0]
    assert sum(entry["action"] == "alloc" for entry in still_live) == sum(end < 0 for _, _, end in blocks)


def test_pytorch_s_command_line_takes_what_is_exported(trace: Path, tmp_path: Path) -> None:
    script = pytest.importorskip("torch.cuda._memory_viz").__file__
    file = exported(trace, "snapshot", tmp_path)
    command = [sys.executable, script]
    told = {
        name: subprocess.run([*command, name, str(file)], check=True, capture_output=True, text=True).stdout
        for name in ("stats", "trace")
    }
    assert "segments: 1\n" in told["stats"]
    assert told["trace"].count("del ") == sum(end >= 0 for _, _, end in lifetimes(trace))
    for plot in ("trace_plot", "segment_plot"):
        page = tmp_path / f"{plot}.html"
        subprocess.run([*command, plot, str(file), "-o", str(page)], check=True, capture_output=True)
        assert "MemoryViz.js" in page.read_text()
