"""`stalloc export -f snapshot`: what PyTorch's readers and `stalloc import` find in it."""

from __future__ import annotations

import json
import pickle
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import memory_snapshot_format
from exports import STACKED, exported, trace_of_text
from lifetimes import lifetimes
from processes import view_of
from stalloc import cli
from synthetic_runs import synthesize

pytestmark = pytest.mark.usefixtures("real_libraries")


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
        device = view_of(build, file)["devices"][0]
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
        device = view_of(build, trace)["devices"][0]
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


def test_exported_stacks_have_no_calls_of_stalloc(build: Path, tmp_path: Path) -> None:
    """Neither those around a framework's calls nor those that started the program, and not what started these."""
    files = ("<frozen runpy>", "/site/stalloc/cli.py", "/site/stalloc/train/runner.py", "/home/me/stalloc/train.py")
    files = (*files, "/site/stalloc/train/frameworks/around.py", "/site/stalloc/core/log.py", "/site/torch/linear.py")
    texts = [f"t {name}" for name in ("call", *files)]
    calls = [f"c {at} {10 + at} {at + 1} 0" for at in range(len(files))]
    lines = ["stalloc-events 1", *texts, *calls, "a 0 4096 0 0 1 7", "a 1 512 0 0 2 3", "f 1 3"]
    trace = trace_of_text(build, "\n".join(lines) + "\n", tmp_path / "own.trace")
    snapshot = pickle.loads(exported(trace, "snapshot", tmp_path).read_bytes())
    stacks = {entry["size"]: entry["frames"] for entry in snapshot["device_traces"][0] if entry["action"] == "alloc"}
    assert [(call["filename"], call["line"]) for call in stacks[4096]] == [
        ("/site/torch/linear.py", 16),
        ("/home/me/stalloc/train.py", 13),
    ]
    assert stacks[512] == []


def test_pytorch_s_page_can_read_what_is_exported(trace: Path, build: Path, tmp_path: Path) -> None:
    assert memory_snapshot_format.check(exported(trace, "snapshot", tmp_path).read_bytes())["segments"]
    stacked = trace_of_text(build, STACKED, tmp_path / "stacked.trace")
    memory_snapshot_format.check(exported(stacked, "snapshot", tmp_path).read_bytes())


def _leave_a_gap(snapshot: Any) -> None:
    del snapshot["segments"][0]["blocks"][1]


def _forget_unknown(snapshot: Any) -> None:
    for entry in snapshot["device_traces"][0]:
        if entry.get("category") == "unknown":
            del entry["category"]


def _allocate_outside(snapshot: Any) -> None:
    first = snapshot["device_traces"][0][1]
    end = snapshot["segments"][0]["address"] + snapshot["segments"][0]["total_size"]
    pair = [first | {"action": action, "addr": end} for action in ("alloc", "free_requested", "free_completed")]
    snapshot["device_traces"][0][1:1] = pair


def _free_twice(snapshot: Any) -> None:
    history = snapshot["device_traces"][0]
    at = next(at for at, entry in enumerate(history) if entry["action"] == "free_completed")
    history.insert(at, history[at])


@pytest.mark.parametrize(
    ("change", "protocol", "told"),
    [
        (lambda snapshot: None, 5, "protocol 5"),
        (lambda snapshot: snapshot.update(more={1}), 4, "EMPTY_SET"),
        (_leave_a_gap, 4, "a gap before"),
        (_forget_unknown, 4, "without unknown"),
        (_allocate_outside, 4, "no segment"),
        (_free_twice, 4, "live behind that"),
    ],
    ids=["protocol", "opcode", "gap", "category", "outside", "twice"],
)
def test_the_check_of_snapshots_finds_what_is_wrong(
    change: Callable[[Any], None], protocol: int, told: str, trace: Path, tmp_path: Path
) -> None:
    snapshot = pickle.loads(exported(trace, "snapshot", tmp_path).read_bytes())
    change(snapshot)
    with pytest.raises(AssertionError, match=told):
        memory_snapshot_format.check(pickle.dumps(snapshot, protocol=protocol))


def test_the_page_colours_blocks_by_their_class(trace: Path, build: Path, tmp_path: Path) -> None:
    """Bytes of each class, added up at the peak, are the report's."""
    snapshot = pickle.loads(exported(trace, "snapshot", tmp_path).read_bytes())
    expected = view_of(build, trace)["rank"]["devices"][0]["peak"]
    live: dict[str, int] = {}
    found: dict[str, int] = {}
    held: dict[int, tuple[str, int]] = {}
    for entry in snapshot["device_traces"][0]:
        if entry["action"] == "alloc":
            held[entry["addr"]] = entry["category"], max(512, -(-entry["size"] // 512) * 512)
            category, size = held[entry["addr"]]
            live[category] = live.get(category, 0) + size
        elif entry["action"] == "free_completed":
            category, size = held.pop(entry["addr"])
            live[category] -= size
        if sum(live.values()) > sum(found.values()):
            found = dict(live)
    assert {name: size for name, size in found.items() if size} == {
        name: size for name, size in expected["by_class"].items() if size
    }


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
