"""`stalloc leaks`, `advise`, `whatif` and `diff`, on traces from events in text."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from exports import STACKED, trace_of_text
from processes import PACKAGE
from stalloc import cli
from stalloc.report import findings

KIB = 1 << 10
MIB = 1 << 20


@pytest.fixture(autouse=True)
def _libraries(build: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STALLOC_LIB_PATH", str(build))


class Writer:
    """Events in text, a millisecond apart."""

    def __init__(self) -> None:
        self.lines = ["stalloc-events 1", "= world_size 4"]
        self.ids = iter(range(1 << 30))
        self.times: Iterator[int] = iter(range(0, 1 << 60, 1_000_000))

    def alloc(self, size: int) -> int:
        block = next(self.ids)
        self.lines.append(f"a {block} {size} 0 0 {next(self.times)}")
        return block

    def free(self, block: int) -> None:
        self.lines.append(f"f {block} {next(self.times)}")

    def mark(self, kind: str, which: str = "-", index: int = 0, name: str = "", edge: str = "begin") -> None:
        self.lines.append(f"m {kind} {edge} {which} 0 {index} {next(self.times)} {name}".rstrip())

    def trace(self, path: Path, build: Path) -> Path:
        return trace_of_text(build, "\n".join(self.lines) + "\n", path)


def run(build: Path, path: Path, *, leak: int = 0, activation: int = 4 * MIB, iterations: int = 7) -> Path:
    """4 MiB of weights, two layers of activations, 1 MiB of gradients, 8 MiB of state, 2 MiB of optimizer scratch."""
    writer = Writer()
    writer.alloc(4 * MIB)
    for iteration in range(iterations):
        writer.mark("iteration", index=iteration)
        writer.mark("microbatch", "F")
        blocks = []
        for layer in ("layers.0", "layers.1"):
            writer.mark("layer", "F", name=layer)
            blocks.append(writer.alloc(activation))
            writer.mark("layer", "F", name=layer, edge="end")
        writer.mark("microbatch", "B")
        gradient = writer.alloc(MIB)
        for block in reversed(blocks):
            writer.free(block)
        if leak:
            writer.alloc(leak)
        writer.mark("optimizer")
        if iteration == 0:
            writer.alloc(8 * MIB)
        writer.free(writer.alloc(2 * MIB))
        writer.free(gradient)
    return writer.trace(path, build)


def answer(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert cli.main([*words, "--json"]) == 0
    result: dict[str, Any] = json.loads(capsys.readouterr().out)
    return result


def text(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert cli.main([*words]) == 0
    return capsys.readouterr().out


def test_a_leak_is_named_with_its_size(tmp_path: Path, build: Path, capsys: Any) -> None:
    trace = str(run(build, tmp_path / "a.trace", leak=64 * KIB))
    device = answer(capsys, "leaks", trace)["devices"][0]
    assert device["bytes_per_iteration"] == 64 * KIB
    (group,) = device["groups"]
    assert (group["bytes"], group["blocks_per_iteration"], group["phase"]) == (64 * KIB, 1, "B 0")
    assert group["iterations"] == 5, "of seven, the last two cannot be judged"
    assert "64.00 KiB more in every iteration" in text(capsys, "leaks", trace)


def test_state_that_is_made_once_is_no_leak(tmp_path: Path, build: Path, capsys: Any) -> None:
    trace = str(run(build, tmp_path / "a.trace"))
    assert answer(capsys, "leaks", trace)["devices"][0]["groups"] == []
    assert "no leak in 5 iterations" in text(capsys, "leaks", trace)


def test_few_iterations_cannot_be_judged(tmp_path: Path, build: Path, capsys: Any) -> None:
    trace = str(run(build, tmp_path / "a.trace", leak=64 * KIB, iterations=4))
    assert not answer(capsys, "leaks", trace)["devices"][0]["enough_iterations"]
    assert "too few iterations: 2 can be judged" in text(capsys, "leaks", trace)


def test_advice_is_ranked_and_played(tmp_path: Path, build: Path, capsys: Any) -> None:
    trace = str(run(build, tmp_path / "a.trace"))
    rows = answer(capsys, "advise", trace)["devices"][0]["advice"]
    by_what = {row["what"]: row for row in rows}
    # The peak is 4 + 8 + 2 x 4 + 1 = 21 MiB; without the state 13, which a layer's 4 MiB cannot reach.
    assert by_what["offload the optimizer state"]["saves_bytes"] == 8 * MIB
    assert by_what["share the optimizer state among 4 ranks (ZeRO 1, distributed optimizer)"]["saves_bytes"] == 6 * MIB
    layer = by_what["recompute one of layers.* (2 of them save as much each)"]
    assert (layer["saves_bytes"], layer["peak_bytes"]) == (4 * MIB, 17 * MIB)
    assert 0 < layer["cost_share"] < 0.2
    # Without any activations the optimizer's 4 + 8 + 1 + 2 = 15 MiB are the peak.
    assert by_what["recompute all layers (a bound: layer inputs stay)"]["saves_bytes"] == 6 * MIB
    saved = [row["saves_bytes"] for row in rows]
    assert saved == sorted(saved, reverse=True)
    assert "recompute layers.*" in text(capsys, "advise", trace)


def test_offloading_costs_its_time_on_the_bus(tmp_path: Path, build: Path, capsys: Any) -> None:
    trace = str(run(build, tmp_path / "a.trace"))
    rows = answer(capsys, "advise", trace, "--bus", "4")["devices"][0]["advice"]
    offload = next(row for row in rows if row["what"] == "offload the activations of layers.*")
    # An event a millisecond, 16 in an iteration; 8 MiB go out and come back.
    assert offload["cost_share"] == pytest.approx(2 * 8 * MIB / 4e9 / 16e-3)


def test_more_gpus_share_more(tmp_path: Path, build: Path, capsys: Any) -> None:
    trace = str(run(build, tmp_path / "a.trace"))
    rows = answer(capsys, "advise", trace, "--gpus", "8")["devices"][0]["advice"]
    saved = {row["what"]: row["saves_bytes"] for row in rows}
    assert saved["share the optimizer state among 8 ranks (ZeRO 1, distributed optimizer)"] == 7 * MIB
    assert saved["share optimizer state and gradients among 8 ranks (ZeRO 2)"] == 9 * MIB * 7 // 8
    assert saved["share weights, gradients and state among 8 ranks (FSDP, ZeRO 3; a bound)"] == 13 * MIB * 7 // 8
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
    assert any("stalloc leaks" in row["what"] and row["saves_bytes"] == 5 * 256 * KIB for row in rows)


def test_the_largest_micro_batch_keeps_what_is_fixed(tmp_path: Path, build: Path, capsys: Any) -> None:
    trace = str(run(build, tmp_path / "a.trace"))
    device = answer(capsys, "whatif", trace, "--memory", "64M", "--micro-batch", "2")["devices"][0]
    assert device["peak_live_bytes"] == 21 * MIB
    assert device["peak_of_twice"] == 29 * MIB
    native = next(row for row in device["allocators"] if row["name"] == "PyTorch native")
    efficiency = device["peak_live_bytes"] / native["held_bytes"]
    assert native["fits"]
    assert native["largest_scale"] == pytest.approx((64 * MIB * efficiency - 13 * MIB) / (8 * MIB))
    assert native["largest_micro_batch"] == int(2 * native["largest_scale"])
    small = answer(capsys, "whatif", trace, "--memory", "12M")["devices"][0]["allocators"][0]
    assert (small["fits"], small["largest_scale"]) == (False, 0)
    assert "29.00 MiB with twice the micro-batch" in text(capsys, "whatif", trace, "--memory", "64M")


def test_extrapolation_is_what_a_larger_run_has(tmp_path: Path, build: Path, capsys: Any) -> None:
    twice = str(run(build, tmp_path / "b.trace", activation=8 * MIB))
    peak = answer(capsys, "whatif", twice, "--memory", "64M")["devices"][0]["peak_live_bytes"]
    once = str(run(build, tmp_path / "a.trace"))
    assert answer(capsys, "whatif", once, "--memory", "64M")["devices"][0]["peak_of_twice"] == peak


def of_micro_batch(build: Path, path: Path, count: int, micro_batches: int = 3) -> Path:
    """A workspace of 3 MiB that activations of 2 MiB a sequence come with, and scratch with 1 MiB of padding."""
    writer = Writer()
    writer.alloc(4 * MIB)
    for iteration in range(5):
        writer.mark("iteration", index=iteration)
        for number in range(micro_batches):
            writer.mark("microbatch", "F", number)
            blocks = [writer.alloc(3 * MIB), writer.alloc(2 * MIB * count), writer.alloc(MIB + 512 * 3 * count)]
            if count > 2:
                writer.free(writer.alloc(512))  # another kernel's
            writer.mark("microbatch", "B", number)
            writer.free(writer.alloc(MIB * count))
            for block in blocks:
                writer.free(block)
        writer.mark("optimizer")
        writer.free(writer.alloc(5 * MIB))
    return writer.trace(path, build)


def test_two_traces_tell_what_does_not_grow(tmp_path: Path, build: Path, capsys: Any) -> None:
    paths = {count: str(of_micro_batch(build, tmp_path / f"{count}.trace", count)) for count in (2, 4, 16)}
    peaks = {
        count: answer(capsys, "whatif", path, "--memory=1G")["devices"][0]["peak_live_bytes"]
        for count, path in paths.items()
    }
    assert peaks == {count: 8 * MIB + 512 * 3 * count + 3 * MIB * count for count in paths}
    words = ["whatif", paths[2], "--memory", "56.5M", "--micro-batch", "2"]
    device = answer(capsys, *words, "--beside", paths[4], "4")["devices"][0]
    fit = device["fit"]
    assert (fit["fixed_bytes"], fit["unpaired_bytes"]) == (7 * MIB, 0)
    assert (fit["proportional_bytes"], fit["affine_bytes"]) == (6 * MIB, MIB + 512 * 6)
    assert fit["fitted_peak_bytes"] == fit["other_peak_bytes"] == peaks[4]
    assert device["peak_of_twice"] == peaks[4]
    # One trace alone takes workspace and padding for what grows.
    assert answer(capsys, *words)["devices"][0]["peak_of_twice"] > peaks[4]
    native = device["allocators"][0]
    room = 56.5 * MIB * device["peak_live_bytes"] / native["held_bytes"]
    assert native["largest_micro_batch"] == int((room - 8 * MIB) / (3 * MIB + 512 * 3))
    # Eight times the first trace's micro-batch, which neither has.
    eight = answer(capsys, "whatif", paths[2], "--memory=1G", "--micro-batch=2", "--beside", paths[16], "16")
    assert eight["devices"][0]["fit"]["fitted_peak_bytes"] == peaks[16]
    shown = text(capsys, *words, "--beside", paths[4], "4")
    assert "7.00 MiB of the peak do not grow" in shown
    assert "traced (+0.00 %)" in shown


def test_fewer_micro_batches_are_paired_with_the_last(tmp_path: Path, build: Path, capsys: Any) -> None:
    one, other = of_micro_batch(build, tmp_path / "2.trace", 2), of_micro_batch(build, tmp_path / "4.trace", 4, 1)
    words = ["whatif", str(one), "--memory=1G", "--micro-batch=2", "--beside", str(other), "4"]
    fit = answer(capsys, *words)["devices"][0]["fit"]
    assert fit["unpaired_bytes"] == 0
    assert fit["fitted_peak_bytes"] == fit["other_peak_bytes"]


def test_the_second_trace_needs_another_micro_batch(tmp_path: Path, build: Path, capsys: Any) -> None:
    trace = str(of_micro_batch(build, tmp_path / "2.trace", 2))
    for count in ("2", "0", "x"):
        assert cli.main(["whatif", trace, "--memory=1G", "--micro-batch=2", "--beside", trace, count]) == 1
        assert f"other than --micro-batch 2: {count}" in capsys.readouterr().err
    assert cli.main(["whatif", trace, "--memory=1G", "--beside", str(tmp_path / "no.trace"), "4"]) == 1
    assert "no.trace" in capsys.readouterr().err


def test_sizes_are_read_as_people_write_them(tmp_path: Path, capsys: Any) -> None:
    for wrong in ("many", "80X", "-1G"):
        with pytest.raises(SystemExit) as error:
            cli.main(["whatif", str(tmp_path), f"--memory={wrong}"])
        assert error.value.code == 2
    capsys.readouterr()


def test_nothing_scales_is_said() -> None:
    with pytest.raises(ValueError, match="nothing in the trace scales"):
        findings.largest_scale({"fixed": [5], "scaling": [0]}, 10)


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


def test_a_reader_that_has_seen_enough_is_no_error(tmp_path: Path, build: Path) -> None:
    trace = run(build, tmp_path / "a.trace")
    read, write = os.pipe()
    os.close(read)
    words = [sys.executable, "-m", "stalloc", "advise", str(trace)]
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE)}
    done = subprocess.run(words, stdout=write, stderr=subprocess.PIPE, env=environment, text=True, check=False)
    os.close(write)
    assert (done.returncode, done.stderr) == (1, "")


@pytest.mark.parametrize("command", [["leaks"], ["advise"], ["whatif", "--memory=1G"]])
def test_what_cannot_be_read_is_named(command: list[str], tmp_path: Path, capsys: Any) -> None:
    assert cli.main([*command, str(tmp_path / "no")]) == 1
    assert str(tmp_path / "no") in capsys.readouterr().err
