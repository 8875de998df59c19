"""`stalloc report --leaks`, `advise`, `whatif` and `diff`, on traces from events in text."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from event_runs import KIB, MIB, Writer, answer, run, text
from exports import STACKED, trace_of_text
from processes import PACKAGE
from stalloc import cli
from stalloc.tools.report import advice, collect, figures, markdown

pytestmark = pytest.mark.usefixtures("real_libraries")


def test_a_leak_is_named_with_its_size(tmp_path: Path, build: Path, capsys: Any) -> None:
    trace = str(run(build, tmp_path / "a.trace", leak=64 * KIB))
    device = answer(capsys, "report", "--leaks", trace)["devices"][0]
    assert device["bytes_per_iteration"] == 64 * KIB
    (group,) = device["groups"]
    assert (group["bytes"], group["blocks_per_iteration"], group["phase"]) == (64 * KIB, 1, "B 0")
    assert (group["since_iteration"], group["call_site"]) == (1, "")
    assert group["live"] == [index * 64 * KIB for index in range(7)]
    assert "64.00 KiB more in every iteration" in text(capsys, "report", "--leaks", trace)


def test_state_that_is_made_once_is_no_leak(tmp_path: Path, build: Path, capsys: Any) -> None:
    trace = str(run(build, tmp_path / "a.trace"))
    assert answer(capsys, "report", "--leaks", trace)["devices"][0]["groups"] == []
    assert "no leak in 7 iterations" in text(capsys, "report", "--leaks", trace)


def test_few_iterations_cannot_be_judged(tmp_path: Path, build: Path, capsys: Any) -> None:
    trace = str(run(build, tmp_path / "a.trace", leak=64 * KIB, iterations=5))
    device = answer(capsys, "report", "--leaks", trace)["devices"][0]
    assert (device["enough_iterations"], device["needed_iterations"]) == (False, 6)
    assert "too few iterations: 5 traced, 6 are needed" in text(capsys, "report", "--leaks", trace)
    enough = str(run(build, tmp_path / "b.trace", leak=64 * KIB, iterations=6))
    assert answer(capsys, "report", "--leaks", enough)["devices"][0]["bytes_per_iteration"] == 64 * KIB


def test_the_help_asks_for_as_many_iterations_as_the_message(capsys: Any) -> None:
    with pytest.raises(SystemExit):
        cli.main(["report", "--help"])
    assert "trace 6 iterations or more" in " ".join(capsys.readouterr().out.split())


def test_advice_is_ranked_and_played(tmp_path: Path, build: Path, capsys: Any) -> None:
    trace = str(run(build, tmp_path / "a.trace"))
    rows = answer(capsys, "advise", trace)["devices"][0]["advice"]
    by_what = {row["what"]: row for row in rows}
    # The peak is 4 + 8 + 2 x 4 + 1 = 21 MiB; without the state 13, which a layer's 4 MiB cannot reach.
    assert by_what["offload the optimizer state"]["saves_bytes"] == 8 * MIB
    assert by_what["share the optimizer state among 4 ranks (ZeRO 1, distributed optimizer)"]["saves_bytes"] == 6 * MIB
    # The last layer's activations are made anew where they were at the peak, the first one's when those have gone.
    for what in ("recompute each of layers.*", "recompute layers.0"):
        assert (by_what[what]["saves_bytes"], by_what[what]["peak_bytes"]) == (4 * MIB, 17 * MIB)
    assert "recompute layers.1" not in by_what
    assert 0 < by_what["recompute layers.0"]["cost_share"] < 0.2
    saved = [row["saves_bytes"] for row in rows]
    assert saved == sorted(saved, reverse=True)
    shown = text(capsys, "advise", trace)
    assert "recompute each of layers.*" in shown
    assert r're.fullmatch(r"layers\.\d+", n)' in shown
    assert all(row["how_to"] for row in rows)


def test_offloading_costs_its_time_on_the_bus(tmp_path: Path, build: Path, capsys: Any) -> None:
    trace = str(run(build, tmp_path / "a.trace"))
    rows = answer(capsys, "advise", trace, "--bus", "4")["devices"][0]["advice"]
    offload = next(row for row in rows if row["what"] == "offload the activations of each of layers.*")
    # An event a millisecond, 20 in an iteration; 8 MiB go out and come back.
    assert offload["cost_share"] == pytest.approx(2 * 8 * MIB / 4e9 / 20e-3)
    assert offload["at_least"], "not all of a layer comes back at once"


def test_more_gpus_share_more(tmp_path: Path, build: Path, capsys: Any) -> None:
    trace = str(run(build, tmp_path / "a.trace"))
    rows = answer(capsys, "advise", trace, "--gpus", "8")["devices"][0]["advice"]
    saved = {row["what"]: row["saves_bytes"] for row in rows}
    assert saved["share the optimizer state among 8 ranks (ZeRO 1, distributed optimizer)"] == 7 * MIB
    assert saved["share optimizer state and gradients among 8 ranks (ZeRO 2): at most so much"] == 9 * MIB * 7 // 8
    most = saved["share weights, gradients and state among 8 ranks (FSDP, ZeRO 3): at most so much"]
    assert most == 13 * MIB * 7 // 8
    with pytest.raises(SystemExit):
        cli.main(["advise", trace, "--gpus", "0"])


def test_what_a_variable_keeps_is_freed_late(tmp_path: Path, build: Path, capsys: Any) -> None:
    writer = Writer()
    writer.alloc(4 * MIB)
    kept = None
    for iteration in range(6):
        writer.mark("iteration", index=iteration)
        writer.mark("microbatch", "F")
        blocks = [writer.alloc(MIB) for _ in range(20)]
        logits = writer.alloc(16 * MIB)
        if kept is not None:
            writer.free(kept)  # the variable has a new value
        writer.mark("microbatch", "B")
        for block in reversed(blocks):
            writer.free(writer.alloc(512))
            writer.free(block)
        kept = logits
        writer.mark("optimizer")
        writer.free(writer.alloc(2 * MIB))
    rows = answer(capsys, "advise", str(writer.trace(tmp_path / "a.trace", build)))["devices"][0]["advice"]
    late = next(row for row in rows if row["what"].startswith("free what outlives the backward pass"))
    # 4 + 20 + 2 x 16 are live at the peak, one of the two from the last iteration; then a block of the backward is.
    assert (late["saves_bytes"], late["peak_bytes"], late["cost"]) == (16 * MIB - 512, 40 * MIB + 512, "none")
    assert "up to 16.00 MiB, most from F 0" in late["what"]


def test_what_outlives_its_layer_s_backward_is_freed_late(tmp_path: Path, build: Path, capsys: Any) -> None:
    writer = Writer()
    writer.alloc(4 * MIB)
    for iteration in range(5):
        writer.mark("iteration", index=iteration)
        writer.mark("microbatch", "F")
        blocks = []
        for layer in ("layers.0", "layers.1"):
            writer.mark("layer", "F", name=layer)
            blocks.append(writer.alloc(4 * MIB))
            writer.mark("layer", "F", name=layer, edge="end")
        writer.mark("microbatch", "B")
        for layer, scratch in (("layers.1", MIB), ("layers.0", 6 * MIB)):
            writer.mark("layer", "B", name=layer)
            writer.free(writer.alloc(scratch))
            writer.mark("layer", "B", name=layer, edge="end")
        for block in blocks:
            writer.free(block)
        writer.mark("optimizer")
        writer.free(writer.alloc(MIB))
    rows = answer(capsys, "advise", str(writer.trace(tmp_path / "a.trace", build)))["devices"][0]["advice"]
    (late,) = (row for row in rows if row["what"].startswith("free activations where the backward pass of their layer"))
    # Without the block of layers.1, which its backward pass has left behind, the last layer's scratch meets 4 + 4 MiB.
    assert (late["saves_bytes"], late["peak_bytes"]) == (4 * MIB, 14 * MIB)


def test_logits_in_parts(tmp_path: Path, build: Path, capsys: Any) -> None:
    writer = Writer()
    writer.alloc(4 * MIB)
    for iteration in range(5):
        writer.mark("iteration", index=iteration)
        writer.mark("microbatch", "F")
        blocks = [writer.alloc(MIB) for _ in range(20)]
        logits = writer.alloc(16 * MIB)
        writer.mark("microbatch", "B")
        gradient = writer.alloc(16 * MIB)
        writer.free(logits)
        writer.free(gradient)
        for block in reversed(blocks):
            writer.free(writer.alloc(512))
            writer.free(block)
        writer.mark("optimizer")
        writer.free(writer.alloc(2 * MIB))
    rows = answer(capsys, "advise", str(writer.trace(tmp_path / "a.trace", build)))["devices"][0]["advice"]
    (loss,) = (row for row in rows if row["what"].startswith("compute logits and loss in 4 parts"))
    assert loss["saves_bytes"] == 24 * MIB
    assert "blocks of up to 16.00 MiB" in loss["what"]


def test_a_leak_is_advice(tmp_path: Path, build: Path, capsys: Any) -> None:
    trace = str(run(build, tmp_path / "a.trace", leak=256 * KIB))
    rows = answer(capsys, "advise", trace)["devices"][0]["advice"]
    (row,) = (row for row in rows if row["what"].startswith("stop leaving 256.00 KiB more live"))
    # The peak is in the last of seven iterations; the six before it have left as much each.
    assert (row["saves_bytes"], row["peak_bytes"]) == (6 * 256 * KIB, 21 * MIB)
    assert "stalloc report DIR --leaks" in row["how_to"]


def test_differences_add_up(tmp_path: Path, build: Path, capsys: Any) -> None:
    before = str(run(build, tmp_path / "a.trace"))
    after = str(run(build, tmp_path / "b.trace", activation=6 * MIB))
    found = answer(capsys, "diff", before, after)
    assert found["peak_live_bytes"] == {"before": 21 * MIB, "after": 25 * MIB, "change": 4 * MIB}
    for part in ("by_class", "by_layer", "blocks"):
        assert sum(row["change"] for row in found[part]) == 4 * MIB, part
    assert {row["name"]: row["change"] for row in found["by_layer"] if row["change"]} == {
        "layers.0": 2 * MIB,
        "layers.1": 2 * MIB,
    }
    shown = text(capsys, "diff", before, after)
    assert "peak 21.00 MiB in iter 1, B 0 -> 25.00 MiB in iter 1, B 0: +4.00 MiB" in shown
    same = answer(capsys, "diff", before, before)
    assert same["blocks"] == []
    assert all(row["change"] == 0 for row in same["by_class"])


def test_two_runs_differ_by_call_site(build: Path, tmp_path: Path, capsys: Any) -> None:
    more = STACKED.replace("a 2 512 0 0 4000000", "a 2 512 0 0 4000000 1\na 3 1024 0 0 4500000 2")
    traces = [
        str(trace_of_text(build, text, tmp_path / f"{name}.trace"))
        for name, text in (("one", STACKED), ("other", more))
    ]
    assert cli.main(["diff", *traces, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["by_call_site"]
    assert {row["name"]: row["change"] for row in found} == {
        "a model.py:30 Block.forward": 1024,
        "a model.py:7 <module>": 512,
        "from no known place": -512,
    }
    assert cli.main(["diff", *traces]) == 0
    assert "call site, at the peak" in capsys.readouterr().out
    without = "\n".join(line for line in STACKED.splitlines() if line[0] not in "tc").replace(" 3\n", "\n")
    bare = trace_of_text(build, without.replace("3000000 2", "3000000"), tmp_path / "bare.trace")
    assert cli.main(["diff", traces[0], str(bare), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["by_call_site"] == [], "one of them has no stacks"
    assert told["not_compared"] == ["call sites: only A has them; trace B with STALLOC_TRACE_STACKS=1"]


def test_what_one_of_two_runs_has_no_data_of_is_no_change(build: Path, tmp_path: Path, capsys: Any) -> None:
    """The same run with and without layer marks; one is planned."""
    begin, end = "m layer begin F 0 0 2 net.0", "m layer end F 0 0 5 net.0"
    lines = ["stalloc-events 1", "a 0 4096 0 0 1", begin, "a 1 8192 0 0 3", "a 2 1024 0 0 4", end, "f 1 6"]
    marked = trace_of_text(build, "\n".join(lines) + "\n", tmp_path / "marked.trace")
    bare = [line for line in lines if line[0] != "m"]
    unmarked = trace_of_text(build, "\n".join(bare) + "\n", tmp_path / "unmarked.trace")
    found = answer(capsys, "diff", str(marked), str(unmarked))
    assert found["by_layer"] == []
    assert found["blocks"] == []
    assert found["not_compared"] == ["layers of activations: only A has them; trace B with STALLOC_TRACE_MODULES=1"]
    assert found["not_compared"][0] in text(capsys, "diff", str(marked), str(unmarked))
    same = answer(capsys, "diff", str(marked), str(marked))
    assert {row["name"]: row["change"] for row in same["by_layer"]} == {"net.0": 0, "in no known layer": 0}
    assert same["not_compared"] == []


def test_a_reader_that_has_seen_enough_is_no_error(tmp_path: Path, build: Path) -> None:
    trace = run(build, tmp_path / "a.trace")
    read, write = os.pipe()
    os.close(read)
    words = [sys.executable, "-m", "stalloc", "advise", str(trace)]
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE)}
    done = subprocess.run(words, stdout=write, stderr=subprocess.PIPE, env=environment, text=True, check=False)
    os.close(write)
    assert (done.returncode, done.stderr) == (1, "")


@pytest.mark.parametrize("command", [["report", "--leaks"], ["advise"], ["whatif", "--memory=1G"]])
def test_what_cannot_be_read_is_named(command: list[str], tmp_path: Path, capsys: Any) -> None:
    assert cli.main([*command, str(tmp_path / "no")]) == 1
    assert str(tmp_path / "no") in capsys.readouterr().err


def test_graphs_that_hold_idle_memory_are_told(tmp_path: Path, build: Path) -> None:
    view = collect.view(collect.find_ranks(run(build, tmp_path / "a.trace"))[0])
    device = figures.device_figures(view, 0)
    assert view["devices"][0]["graph_pools"] is None
    columns = {"pool": [1], "role": [0], "requests": [9], "most": [6 * MIB], "end": [MIB], "idle_then": [5 * MIB]}
    view["devices"][0]["graph_pools"] = {"held": 27 * MIB, "live_then": 22 * MIB, "event": 3, **columns}
    (row,) = (row for row in advice.advise(view, 0, device) if "graphs' pools" in row["what"])
    assert (row["saves_bytes"], row["peak_bytes"], row["of_live"]) == (5 * MIB, 22 * MIB, False)
    told = "\n".join(markdown._graph_pools(view["devices"][0]))
    assert "| 1 | set-up | 6.00 MiB | 1.00 MiB | 5.00 MiB | 9 |" in told
    assert "At least 27.00 MiB are held" in told
    report = view["rank"]["devices"][0]
    assert report["graphs"] is None
    assert markdown._graph_needs(report) == []
    graph = {"number": 0, "pool": 1, "launches": 3, "dead_bytes": 4 * MIB, "carried_bytes": 2 * MIB, "kept_bytes": MIB}
    report["graphs"] = {"needed_bytes": 24 * MIB, "live_then_bytes": 18 * MIB, "traced_efficiency": 0.75}
    report["graphs"]["graphs"] = [graph] * 30
    told = "\n".join(markdown._graph_needs(report))
    assert "| 0 | 1 | 3 | 4.00 MiB | 2.00 MiB | 1.00 MiB |" in told
    assert "| 6 more |" in told
    assert "needs 24.00 MiB at most, of which PyTorch counts 18.00 MiB as live. E of the device when traced: 75" in told
