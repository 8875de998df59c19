"""`stalloc import` and `stalloc export`: PyTorch's snapshots in and out, Perfetto, CSV."""

from __future__ import annotations

import csv
import json
import lzma
import pickle
import re
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import trace_event_format
from lifetimes import lifetimes, most_requested
from stalloc import cli
from stalloc._commands.export import dump_lines
from stalloc.snapshot import iterations
from stalloc.snapshot.phases import find_marks
from stalloc.snapshot.read import SnapshotError, parse, read_snapshot
from synthetic_runs import synthesize

DATA = Path(__file__).resolve().parent / "data"
BASE = 0x7000_0000_0000
MIB = 1 << 20
FORWARD = [{"filename": "/model.py", "name": "forward", "line": 3}]
OPTIMIZER = [{"filename": "/torch/optim/adamw.py", "name": "step", "line": 9}]


@pytest.fixture(autouse=True)
def _libraries(build: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STALLOC_LIB_PATH", str(build))


class History:
    """A snapshot as PyTorch writes it: entries one microsecond apart."""

    def __init__(self) -> None:
        self.entries: list[dict[str, Any]] = []
        self.annotations: list[dict[str, Any]] = []
        self.live: dict[int, int] = {}

    def add(self, action: str, address: int, size: int, frames: object = ()) -> None:
        entry = {"action": action, "addr": address, "size": size, "stream": 0, "time_us": len(self.entries)}
        self.entries.append(entry | {"frames": frames})

    def alloc(self, address: int, size: int, frames: object = ()) -> None:
        self.add("alloc", BASE + address * MIB, size, frames)
        self.live[BASE + address * MIB] = size

    def free(self, address: int) -> None:
        size = self.live.pop(BASE + address * MIB)
        self.add("free_requested", BASE + address * MIB, size)
        self.add("free_completed", BASE + address * MIB, size)

    def annotate(self, name: str, stage: str) -> None:
        self.annotations.append({"name": name, "stage": stage, "time_us": len(self.entries), "device": 0})

    def snapshot(self, more_blocks: tuple[tuple[int, int], ...] = ()) -> dict[str, Any]:
        live = {**self.live, **{BASE + address * MIB: size for address, size in more_blocks}}
        blocks = [{"address": a, "size": s, "requested_size": s, "state": "active_allocated"} for a, s in live.items()]
        segment = {"device": 0, "address": BASE, "total_size": 64 * MIB, "stream": 0, "blocks": blocks}
        return {"segments": [segment], "device_traces": [self.entries], "external_annotations": self.annotations}


def training(steps: int, layers: int = 5, annotate: bool = False) -> History:
    history = History()
    history.add("segment_alloc", BASE, 64 * MIB)
    history.alloc(0, 4 * MIB)
    for step in range(steps):
        if annotate:
            history.annotate(f"ProfilerStep#{step}", "START")
        for layer in range(layers):
            history.alloc(10 + layer, 1000 * (layer + 1), FORWARD)
        for layer in reversed(range(layers)):
            history.alloc(20 + layer, 3000 + layer)
            history.free(10 + layer)
        history.alloc(30, 77777, OPTIMIZER)
        history.free(30)
        for layer in range(layers):
            history.free(20 + layer)
        if annotate:
            history.annotate(f"ProfilerStep#{step}", "END")
    return history


def imported(snapshot: object, directory: Path, capsys: pytest.CaptureFixture[str], *options: str) -> dict[str, Any]:
    file = directory / "run.pickle"
    file.write_bytes(pickle.dumps(snapshot))
    assert cli.main(["import", str(file), "--json", *options]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


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


class TestPeriod:
    def test_micro_batches_are_no_iterations(self) -> None:
        microbatch = [100 + i for i in range(40)]
        step = microbatch * 8 + [7, 8, 9, 10, 11]
        assert iterations.find_period([1, 2, 3] + step * 4) == len(step)

    def test_sizes_that_vary_do_not_vote(self) -> None:
        steps = [[10, 11, 12, 13, 14, 15, 16, 17, 1000 + 7 * k, 2000 + 3 * k * k] for k in range(5)]
        assert iterations.find_period([size for step in steps for size in step]) == 10

    def test_nothing_repeats(self) -> None:
        assert iterations.find_period(list(range(1000))) == 0
        assert iterations.cut([5] * 30, [0] * 30) == []

    def test_cuts_where_least_is_live(self) -> None:
        step, live = list(range(20)), [9] * 20
        live[4] = 1
        assert iterations.cut(step * 4, live * 4) == [4, 24, 44, 64]


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


# Export -------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory, build: Path) -> Path:
    path = tmp_path_factory.mktemp("synthetic") / "rank00000.trace"
    synth = [
        "synth",
        "--layers=4",
        "--stages=1",
        "--micro-batches=3",
        "--iterations=3",
        "--state=full",
        f"--output={path}",
    ]
    subprocess.run([str(build / "stalloc-planner"), *synth], check=True, capture_output=True)
    return path


def exported(trace: Path, form: str, directory: Path) -> Path:
    file = directory / f"out.{form}"
    assert cli.main(["export", str(trace), "--format", form, "--output", str(file)]) == 0
    return file


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


STACKED = """stalloc-events 1
t /home/me/a model.py
t Block.forward
t <module>
t /site/torch/nn/modules/linear.py
c 0 7 0 2
c 1 30 0 1
c 2 125 3 1
m iteration begin - 0 0 1000000
a 0 4096 0 0 2000000 3
a 1 8192 0 0 3000000 2
a 2 512 0 0 4000000
f 1 5000000
"""


def test_stacks_go_into_snapshots_and_come_back(build: Path, tmp_path: Path) -> None:
    def report(trace: Path) -> list[tuple[int, str, str]]:
        done = subprocess.run([str(build / "stalloc-planner"), "report", str(trace), "--json"], stdout=-1, check=True)
        device = json.loads(done.stdout)["devices"][0]
        peak, stacks = device["peak"], device["stacks"]
        return sorted(
            (size, stacks["call_site"][at], stacks["calls"][at]) for size, at in zip(peak["bytes"], peak["stack"])
        )

    trace = tmp_path / "stacked.trace"
    command = [str(build / "stalloc-planner"), "import", "-", f"--output={trace}"]
    subprocess.run(command, input=STACKED, text=True, check=True, capture_output=True)
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


def test_two_runs_differ_by_call_site(build: Path, tmp_path: Path, capsys: Any) -> None:
    def trace(name: str, text: str) -> str:
        file = tmp_path / f"{name}.trace"
        command = [str(build / "stalloc-planner"), "import", "-", f"--output={file}"]
        subprocess.run(command, input=text, text=True, check=True, capture_output=True)
        return str(file)

    more = STACKED.replace("a 2 512 0 0 4000000", "a 2 512 0 0 4000000 1\na 3 1024 0 0 4500000 2")
    traces = (trace("one", STACKED), trace("other", more))
    assert cli.main(["diff", *traces, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["by_call_site"]
    assert {row["name"]: row["change"] for row in found} == {
        "a model.py:30 Block.forward": 1024,
        "a model.py:7 <module>": 512,
        "from no known place": -512,
    }
    assert cli.main(["diff", *traces]) == 0
    assert "call site, at the peak" in capsys.readouterr().out


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


def test_perfetto_has_counters_and_phases(trace: Path, tmp_path: Path, build: Path) -> None:
    document = json.loads(exported(trace, "perfetto", tmp_path).read_text())
    trace_event_format.check(document)
    events = document["traceEvents"]
    report = subprocess.run(
        [str(build / "stalloc-planner"), "report", str(trace), "--json"], capture_output=True, check=True
    )
    peak = json.loads(report.stdout)["rank"]["devices"][0]["peak"]["live_bytes"]
    counters = [sum(event["args"].values()) for event in events if event["ph"] == "C" and event["name"] == "live bytes"]
    assert max(counters) == peak
    slices = [event for event in events if event["ph"] == "X"]
    assert [event["name"] for event in slices if event["tid"] == 1] == ["set-up", "iter 0", "iter 1", "iter 2"]
    assert all(event["dur"] >= 0 for event in slices)
    assert {"F 0", "B 2", "optimizer"} <= {event["name"] for event in slices if event["tid"] == 2}


@pytest.mark.parametrize(
    "broken",
    [
        {"ph": "X", "name": "late", "pid": 0, "tid": 1, "ts": 5, "dur": 10},
        {"ph": "X", "name": "", "pid": 0, "tid": 1, "ts": 5, "dur": 1},
        {"ph": "X", "name": "negative", "pid": 0, "tid": 1, "ts": 5, "dur": -1},
        {"ph": "C", "name": "bytes", "pid": 0, "ts": 5, "args": {"live": "many"}},
        {"ph": "B", "name": "unknown", "pid": 0, "tid": 1, "ts": 5},
    ],
    ids=["crossing", "no name", "negative", "no number", "kind"],
)
def test_the_check_of_the_format_finds_what_is_wrong(broken: dict[str, Any]) -> None:
    good = [
        {"ph": "M", "name": "thread_name", "pid": 0, "tid": 1, "args": {"name": "phases"}},
        {"ph": "X", "name": "outer", "pid": 0, "tid": 1, "ts": 0, "dur": 10},
        {"ph": "C", "name": "bytes", "pid": 0, "ts": 0, "args": {"live": 1}},
    ]
    trace_event_format.check({"traceEvents": good})
    with pytest.raises(AssertionError):
        trace_event_format.check({"traceEvents": [*good, broken]})


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
    iterations = "SELECT number FROM marks WHERE kind = 'iteration' AND edge = 'begin' ORDER BY event"
    assert asked(file, iterations) == [(0,), (1,), (2,)]
    assert asked(file, "SELECT max(peak_live) FROM phases") == [(live,)]


def test_a_database_has_stacks(build: Path, tmp_path: Path) -> None:
    stacked = tmp_path / "stacked.trace"
    command = [str(build / "stalloc-planner"), "import", "-", f"--output={stacked}"]
    subprocess.run(command, input=STACKED, text=True, check=True, capture_output=True)
    query = "SELECT b.bytes, c.line, o.line FROM blocks b JOIN calls c ON c.id = b.call JOIN calls o ON o.id = c.outer"
    assert sorted(asked(exported(stacked, "sqlite", tmp_path), query)) == [(4096, 125, 30), (8192, 30, 7)]


def test_csv_is_of_one_device_that_the_trace_has(build: Path, tmp_path: Path, capsys: Any) -> None:
    def export(events: str, *options: str) -> tuple[int, list[str]]:
        file = tmp_path / "a.trace"
        command = [str(build / "stalloc-planner"), "import", "-", f"--output={file}"]
        subprocess.run(command, input=f"stalloc-events 1\n{events}", text=True, check=True, capture_output=True)
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
    report = subprocess.run(
        [str(build / "stalloc-planner"), "report", str(trace), "--json"], capture_output=True, check=True
    )
    assert result["lower_bound"] == json.loads(report.stdout)["rank"]["devices"][0]["peak"]["live_bytes"]
