"""runtime_report.json has what MemScope's users look for, by its names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from event_runs import KIB, MIB, Writer
from stalloc import cli
from stalloc.tools.report.runtime_report import runtime_report

pytestmark = pytest.mark.usefixtures("real_libraries")

# As its schemas have them.
OF_AN_EVENT = """event_type module phase step mem_allocated_before mem_allocated_after mem_reserved_before
    mem_reserved_after max_mem_allocated max_mem_reserved delta_allocated delta_reserved inputs outputs grads notes"""


def training(path: Path, build: Path, iterations: int = 2) -> Path:
    """A weight, a module whose forward pass keeps 2 of 3 MiB, its backward pass, an optimizer; 100 bytes in a fence."""
    writer = Writer()
    writer.lines.append("h 0 67108864 0")
    writer.alloc(4 * MIB)
    for iteration in range(iterations):
        writer.mark("iteration", index=iteration)
        writer.mark("microbatch", "F", 0)
        writer.mark("layer", "F", name="Net.up")
        kept = writer.alloc(2 * MIB)
        writer.free(writer.alloc(MIB))
        writer.mark("layer", "F", name="Net.up", edge="end")
        writer.mark("microbatch", "B", 0)
        writer.mark("layer", "B", name="Net.up")
        gradient = writer.alloc(8 * MIB)
        writer.free(kept)
        writer.mark("microbatch", "B", 0, edge="end")  # ends the layer, too
        writer.mark("optimizer")
        writer.free(writer.alloc(512 * KIB))
        writer.mark("optimizer", edge="end")
        writer.free(gradient)
        writer.mark("fence", name="eval")
        writer.mark("layer", "F", name="of an evaluation")
        writer.free(writer.alloc(100))
        writer.mark("fence", name="eval", edge="end")
    return writer.trace(path, build)


def written(trace: Path, *options: str) -> dict[str, Any]:
    assert cli.main(["report", str(trace), "--per-rank", *options]) == 0
    found: dict[str, Any] = json.loads((trace.parent / "rank00000" / "runtime_report.json").read_text())
    return found


def test_steps_modules_and_gradients_are_events(tmp_path: Path, build: Path) -> None:
    found = written(training(tmp_path / "a.trace", build))
    assert all(list(event) == OF_AN_EVENT.split() for event in found["runtime_trace"])
    of_step = [event for event in found["runtime_trace"] if event["step"] == 1]
    keys = ("event_type", "module", "phase", "mem_allocated_before", "mem_allocated_after", "delta_allocated")
    assert [tuple(event[key] for key in keys) for event in of_step] == [
        ("step", "train_step", "step_start", 4 * MIB, 4 * MIB, 0),
        ("module", "Net.up", "forward_pre", 4 * MIB, 4 * MIB, 0),
        ("module", "Net.up", "forward", 4 * MIB, 6 * MIB, 2 * MIB),
        ("tensor_grad", "Net.up", "backward", 6 * MIB, 12 * MIB, 6 * MIB),
        ("step", "train_step", "forward_backward_end", 12 * MIB, 12 * MIB, 0),
        ("step", "train_step", "optimizer_step_start", 12 * MIB, 12 * MIB, 0),
        ("step", "train_step", "optimizer_step_end", 12 * MIB, 12 * MIB, 0),
        ("step", "train_step", "step_end", 4 * MIB, 4 * MIB, 0),
    ]
    assert {event["mem_reserved_after"] for event in of_step} == {64 * MIB}
    assert of_step[-1]["max_mem_allocated"] == 14 * MIB


def test_the_peak_is_that_of_the_report(tmp_path: Path, build: Path) -> None:
    found = written(training(tmp_path / "a.trace", build))
    told = {"phase": "backward", "module": "Net.up", "step": 0, "memory_bytes": 14 * MIB, "reserved_bytes": 64 * MIB}
    assert found["peak"] == told
    assert found["devices"][0]["peak"]["live_bytes"] == 14 * MIB, "the keys of --json are there as well"
    assert found["comparisons"] == {"runtime_peak_memory_bytes": 14.0 * MIB}
    assert (found["metadata"]["rank"], found["metadata"]["world_size"], found["metadata"]["device"]) == (
        "0",
        "4",
        "cuda:0",
    )


def test_top_events_are_as_many_as_asked_for(tmp_path: Path, build: Path, capsys: Any) -> None:
    trace = training(tmp_path / "a.trace", build, iterations=12)
    assert len(written(trace)["top_events"]) == 20
    top = written(trace, "--top-k", "3")["top_events"]
    assert [(event["phase"], event["step"], event["mem_allocated_after"]) for event in top] == [
        ("backward", step, 12 * MIB) for step in range(3)
    ]
    text = (tmp_path / "rank00000" / "runtime_report.md").read_text().split("## Top events")[1]
    row = "| 0 | tensor_grad | Net.up | backward | 12.00 MiB | 64.00 MiB | 6.00 MiB |"
    assert row in text
    capsys.readouterr()
    for wrong, told in (
        (("--top-k", "3"), "--top-k needs --per-rank"),
        (("--top-k", "x"), "expected a number from 0 on: 'x'"),
    ):
        with pytest.raises(SystemExit) as left:
            cli.main(["report", str(trace), *wrong])
        assert left.value.code == 2
        assert told in capsys.readouterr().err


def test_an_estimate_is_compared_with_the_run() -> None:
    estimate = [{"name": "weights", "estimate": 1}, {"name": "peak", "estimate": 800}]
    rank = {"rank": 3, "fingerprint": {"world_size": 8, "device_name": "NVIDIA H200", "trace_mode": ""}}
    arguments = {"tensor_model_parallel_size": 2, "bf16": True, "optimizer": "adam"}
    view = {"devices": [{"device": 1}], "rank": rank, "estimate": estimate, "megatron_arguments": arguments}
    found = runtime_report(view, [{"event": "alloc", "device": 1, "bytes": 1000}], 20)
    assert found["comparisons"] == {
        "runtime_peak_memory_bytes": 1024.0,
        "static_peak_memory_bytes": 800.0,
        "peak_diff_bytes": 224.0,
        "peak_diff_ratio": 0.28,
    }
    known = found["metadata"]
    assert (known["dtype"], known["tensor_model_parallel_size"], known["device"]) == ("bf16", "2", "cuda:1")


def test_automatic_marks_give_way_to_the_script_s_own() -> None:
    def mark(index: int, automatic: bool) -> dict[str, Any]:
        return {"event": "mark", "kind": "iteration", "edge": "begin", "index": index, "automatic": automatic}

    view = {"devices": [{"device": 0}], "rank": {"rank": 0, "fingerprint": {}}}
    lines = [mark(1, True), mark(5, False), mark(2, True), mark(6, False)]
    found = runtime_report(view, lines, 20)
    assert [(event["phase"], event["step"]) for event in found["runtime_trace"]] == [
        (phase, step) for step in (1, 5, 6) for phase in ("step_start", "step_end")
    ]
