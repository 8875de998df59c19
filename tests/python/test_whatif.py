"""`stalloc whatif`, on traces from events in text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from event_runs import MIB, Writer, answer, run, text
from stalloc import cli
from stalloc.tools.report import findings


@pytest.fixture(autouse=True)
def _libraries(build: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STALLOC_LIB_PATH", str(build))


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


def test_what_does_not_fit_is_tried_with_each_change(tmp_path: Path, build: Path, capsys: Any) -> None:
    """21 MiB live, 8 of them activations, 8 of state that two ranks can share."""
    trace = str(run(build, tmp_path / "a.trace"))
    assert answer(capsys, "whatif", trace, "--memory=1G")["devices"][0]["changes"] == [], "it fits"
    device = answer(capsys, "whatif", trace, "--memory=16M")["devices"][0]
    advised = {row["what"]: row for row in answer(capsys, "advise", trace)["devices"][0]["advice"]}
    efficiency = {row["name"]: device["peak_live_bytes"] / row["held_bytes"] for row in device["allocators"]}
    assert len(device["changes"]) > 2
    for row in device["changes"]:
        assert row["peak_bytes"] == advised[row["what"]]["peak_bytes"] < device["peak_live_bytes"]
        assert row["fits"] == [name for name, part in efficiency.items() if row["peak_bytes"] <= 16 * MIB * part]
    assert not [what for what in (row["what"] for row in device["changes"]) if "expandable_segments" in what]
    shown = " ".join(text(capsys, "whatif", trace, "--memory=16M").split())
    assert device["changes"][0]["what"] in shown
    assert "fits under" in shown


def test_two_directories_of_several_ranks_need_the_rank(tmp_path: Path, build: Path, capsys: Any) -> None:
    for name, count in (("a", 2), ("b", 4)):
        (tmp_path / name / "trace").mkdir(parents=True)
        for rank in range(2):
            of_micro_batch(build, tmp_path / name / "trace" / f"rank{rank:05d}.trace", count)
    words = ["whatif", str(tmp_path / "a"), "--memory=1G", "--micro-batch=2", "--beside", str(tmp_path / "b"), "4"]
    assert cli.main(words) == 1
    assert "needs --rank" in capsys.readouterr().err
    assert answer(capsys, *words, "--rank=1")["devices"][0]["fit"]["unpaired_bytes"] == 0
