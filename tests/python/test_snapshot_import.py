"""`stalloc import`: a PyTorch memory snapshot becomes a trace."""

from __future__ import annotations

import json
import lzma
import pickle
import subprocess
from pathlib import Path
from typing import Any

import pytest

from histories import BASE, MIB, History, imported, training
from lifetimes import lifetimes, most_requested
from stalloc import cli
from stalloc.tools.commands.export import dump_lines
from stalloc.tools.snapshot.phases import find_marks
from stalloc.tools.snapshot.read import SnapshotError, parse, read_snapshot

pytestmark = pytest.mark.usefixtures("real_libraries")

DATA = Path(__file__).resolve().parent / "data"


def test_a_snapshot_becomes_a_trace_that_can_be_planned(tmp_path: Path, build: Path, capsys: Any) -> None:
    found = imported(training(4).snapshot(), tmp_path, capsys)
    assert found["iterations"] == 4
    assert found["source"].startswith("the period of the requests")
    planner = [str(build / "stalloc-planner"), "plan", str(tmp_path / "run"), "--json"]
    report = json.loads(subprocess.run(planner, check=True, capture_output=True).stdout)["ranks"][0]["report"]
    device = report["devices"][0]
    assert device["traced_held_peak_bytes"] == 64 * MIB
    # Weights, and at the backward pass's beginning all activations with the first gradient, rounded up to 512.
    activations = sum(-(-1000 * (layer + 1) // 512) * 512 for layer in range(5))
    assert device["peak"]["live_bytes"] >= 4 * MIB + activations
    assert device["plan"]["arena_bytes"] == device["peak"]["live_bytes"]
    assert report["marks"]["microbatches"] == 2 * 4 * 1, "F and B of each iteration, from stacks (begins only)"
    assert report["marks"]["optimizers"] == 4


def test_annotations_tell_iterations(tmp_path: Path, capsys: Any) -> None:
    snapshot = training(3, annotate=True).snapshot()
    assert imported(snapshot, tmp_path, capsys)["source"] == 'annotations "ProfilerStep#" (3 iterations)'
    lines = [line for line in dump_lines(tmp_path / "run" / "trace" / "rank00000.trace") if line["event"] == "mark"]
    assert [line["index"] for line in lines if line["kind"] == "iteration"] == [0, 1, 2]
    assert imported(snapshot, tmp_path, capsys, "--iterations", "nothing")["iterations"] == 0


def test_blocks_from_before_the_history_count_as_set_up() -> None:
    history = training(3)
    earlier = History()
    earlier.live = {BASE + 50 * MIB: 5 * MIB}
    earlier.entries = list(history.entries)
    earlier.free(50)  # allocated before
    snapshot = parse(earlier.snapshot(more_blocks=((60, 7 * MIB), (0, 4 * MIB))))
    assert snapshot.earlier_blocks == 2
    first = [event for event in snapshot.events if event.kind == "alloc"][:2]
    assert [(event.address, event.size) for event in first] == [(BASE + 50 * MIB, 5 * MIB), (BASE + 60 * MIB, 7 * MIB)]
    assert {event.time_us for event in first} == {0}


def test_what_newer_torches_write_besides_changes_nothing() -> None:
    """From 2.14 on words on live blocks and the host's memory, from 2.15 on the allocator's own words."""
    history = training(3)
    before = parse(history.snapshot())
    at = next(index for index, entry in enumerate(history.entries) if entry["action"] == "free_requested")
    words = {**history.entries[at - 1], "action": "annotate", "user_metadata": "weights"}
    history.entries.insert(at, words)
    for entry in history.entries:
        entry["internal_metadata"] = "mallocWithAddress"
    host = {"address": 0x5000, "size": MIB, "allocated": True, "active": True, "segment_pool_id": (0, 0)}
    after = parse(history.snapshot() | {"host_segments": [host], "host_traces": list(history.entries)})
    assert after == before


def test_times_that_step_back_do_not_change_the_order() -> None:
    history = History()
    history.alloc(1, 512)
    history.free(1)
    history.alloc(1, 1024)
    for entry, time_us in zip(history.entries, (50, 49, 48, 47)):
        entry["time_us"] = time_us
    events = [event for event in parse(history.snapshot()).events if event.kind != "held"]
    assert [(event.kind, event.size, event.time_us) for event in events] == [
        ("alloc", 512, 50),
        ("free", 0, 50),
        ("alloc", 1024, 50),
    ]


def test_without_stacks_there_are_iterations_only() -> None:
    history = training(3)
    for entry in history.entries:
        entry["frames"] = ()
    marks = find_marks(parse(history.snapshot()))
    assert {mark.kind for mark in marks.marks} == {"iteration"}


class _Evil:
    def __reduce__(self) -> tuple[Any, ...]:
        return print, ("run",)


def test_a_file_that_is_not_there_is_said_to_be_so(tmp_path: Path, capsys: Any) -> None:
    assert cli.main(["import", str(tmp_path / "x.pickle")]) == 1
    assert capsys.readouterr().err == f"stalloc import: [Errno 2] No such file or directory: '{tmp_path}/x.pickle'\n"


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"no pickle", "not a pickle"),
        (pickle.dumps(_Evil()), "refers to builtins.print"),
        (pickle.dumps([1]), "expected a dictionary"),
        (pickle.dumps({"segments": [], "device_traces": [[]]}), "it has no history"),
        (pickle.dumps({"segments": [], "device_traces": [[{"action": "alloc"}]]}), "not as PyTorch writes it"),
    ],
    ids=["garbage", "code", "list", "no history", "broken entry"],
)
def test_what_is_no_snapshot_is_refused(content: bytes, told: str, tmp_path: Path, capsys: Any) -> None:
    file = tmp_path / "x.pickle"
    file.write_bytes(content)
    with pytest.raises(SnapshotError, match=told):
        read_snapshot(file)
    assert cli.main(["import", str(file)]) == 1
    captured = capsys.readouterr()
    assert str(file) in captured.err
    assert captured.out == ""


# A history that PyTorch wrote on a GPU: tests/gpu/python/test_snapshot_cuda.py keeps it, and what PyTorch counted.
def test_a_real_history_is_read_as_pytorch_counted(tmp_path: Path, capsys: Any) -> None:
    packed = DATA / "toy_history.pickle.xz"
    if not packed.exists():
        pytest.skip(f"no {packed.name} in {DATA.name}: STALLOC_KEEP_SNAPSHOT of the tests on a GPU writes one")
    counted = json.loads((DATA / "toy_history.json").read_text())
    found = imported(pickle.loads(lzma.decompress(packed.read_bytes())), tmp_path, capsys)
    assert (found["allocations"], found["earlier_blocks"]) == (counted["memory"]["allocations"], 0)
    assert counted["iterations"] - 1 <= found["iterations"] <= counted["iterations"]
    assert most_requested(lifetimes(Path(found["trace"]))) == counted["most_requested"]
