"""Captured graphs in `stalloc advise`, in reports, and as a choice, on traces from events in text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from event_runs import MIB, answer, text
from event_runs import run as without_graphs
from graphed_runs import POOL, eager, graphed
from stalloc import cli
from stalloc.tools.fitting.ways import Way, other_way
from stalloc.tools.report import collect, graph_choice, graphs

pytestmark = pytest.mark.usefixtures("real_libraries")


def test_what_lending_saves_is_told(tmp_path: Path, build: Path, capsys: Any) -> None:
    """20 MiB of the pool, 4 + 1 outside, and 8 that lie in the pool where it is lent."""
    trace = str(graphed(tmp_path / "a.trace", build))
    found = answer(capsys, "advise", trace)["devices"][0]["graphs"]
    assert (found["graphs"], found["pools"], found["unknown_pools"]) == (1, 1, 0)
    assert (found["pools_bytes"], found["dead_bytes"]) == (POOL, 8 * MIB)
    assert found["carried_bytes"] == found["kept_bytes"] == 0
    assert (found["held_apart_bytes"], found["held_bytes"]) == (POOL + 13 * MIB, POOL + 5 * MIB)
    assert found["saves_bytes"] == found["cycle_saves_bytes"] == 8 * MIB
    shown = text(capsys, "advise", trace)
    assert "captured graphs: 1 in 1 pool of 20.00 MiB: 8.00 MiB free between launches" in shown
    assert (
        "saves 8.00 MiB: 25.00 MiB held instead of 33.00 MiB; no more, for most is held while a launch writes" in shown
    )
    assert "    set: nothing: STALLOC_GRAPHS=shared is the default" in shown
    report = text(capsys, "report", trace, "--md")
    assert "- captured graphs: 1 in 1 pool of 20.00 MiB" in report
    assert "At least 21.00 MiB are held where pools serve nobody else" in report, "8 of the pool, 13 outside"


def test_graphs_that_the_trace_has_too_late_need_more_steps(tmp_path: Path, build: Path, capsys: Any) -> None:
    trace = str(graphed(tmp_path / "a.trace", build, replays=False))
    found = answer(capsys, "advise", trace)["devices"][0]["graphs"]
    assert found["saves_bytes"] == 0
    assert found["told"][1].endswith("saves 0 B: no launch of them is in the trace")
    assert found["how_to"].startswith("nothing"), "five iterations came behind the capture"
    view = collect.view(collect.find_ranks(Path(trace))[0])
    report = view["rank"]["devices"][0]
    report["graphs"]["captured_in"] = 4
    late = graphs.finding(view, 0)
    assert late is not None
    assert late["how_to"] == "STALLOC_TRACE_STEPS=7 when tracing, or more"
    report["forecast"]["lending"] |= {"limit": "carried", "unknown_pools": 1}
    unknown = graphs.finding(view, 0)
    assert unknown is not None
    assert unknown["told"][0].endswith("; 1 cannot be followed")
    assert unknown["told"][1].endswith("saves 0 B: the pools' bytes are carried to a later launch when most is held")
    assert unknown["how_to"] == "trace once more, with this version"


def test_what_is_saved_behind_the_first_iterations_alone_is_told(tmp_path: Path, build: Path) -> None:
    """The same as eager iterations before the capture have it: 13 MiB then, less than what is held behind it."""
    view = collect.view(collect.find_ranks(graphed(tmp_path / "a.trace", build, eager_iterations=2))[0])
    found = graphs.finding(view, 0)
    assert found is not None
    assert (found["held_bytes"], found["saves_bytes"]) == (POOL + 5 * MIB, 8 * MIB)
    lending = view["rank"]["devices"][0]["forecast"]["lending"]
    lending |= {"saves_bytes": 0, "held_bytes": 40 * MIB}
    later = graphs.finding(view, 0)
    assert later is not None
    assert "saves nothing of the most that is held, 40.00 MiB" in later["told"][1]
    assert "there it saves 8.00 MiB" in later["told"][1]
    view["rank"]["devices"][0]["forecast"] = None
    assert (graphs.finding(view, 0) or {})["why"] == "no iteration ran to its end"


def test_captures_that_are_not_in_the_trace(tmp_path: Path, build: Path, capsys: Any) -> None:
    trace = without_graphs(build, tmp_path / "a.trace", iterations=3)
    assert answer(capsys, "advise", str(trace))["devices"][0]["graphs"] is None
    view = collect.view(collect.find_ranks(trace)[0])
    words = view["rank"]["fingerprint"]["command_line"]
    words += ["pretrain_gpt.py", "--cuda-graph-impl", "local"]
    found = graphs.finding(view, 0)
    assert found is not None
    assert found["told"] == [
        "captured graphs: captures are not in the trace: they come after 3 iterations, 3 were traced",
        "set: STALLOC_TRACE_STEPS=7 when tracing, or more",
    ]
    words += ["--cuda-graph-warmup-steps=2"]
    assert graphs.finding(view, 0) is None, "the third iteration would have captured"
    words[-3:] = ["--cuda-graph-impl", "none"]
    assert graphs.finding(view, 0) is None
    columns = {"pool": [1], "role": [0], "requests": [9], "most": [6 * MIB], "end": [MIB], "idle_then": [5 * MIB]}
    view["devices"][0]["graph_pools"] = {"held": 27 * MIB, "live_then": 22 * MIB, "event": 3, **columns}
    unmarked = graphs.finding(view, 0)
    assert unmarked is not None
    assert unmarked["why"] == "their pools hold 6.00 MiB, and the trace has no marks of captures"


def test_graphs_as_a_choice(tmp_path: Path, build: Path, capsys: Any) -> None:
    """13 MiB live and needed in both. With a graph the pool's segment is held beside 5 MiB, without one 13, in whole
    chunks. Steps take 10 and 12 ms."""
    one, other = graphed(tmp_path / "g.trace", build), eager(tmp_path / "e.trace", build)
    words = ["whatif", str(one), "--memory=24M", "--graphs-beside"]
    found = answer(capsys, *words, str(other))["devices"][0]["graphs"]
    assert found["with"]["peak_live_bytes"] == found["without"]["peak_live_bytes"] == 13 * MIB
    assert found["with"]["needed_bytes"] == found["without"]["needed_bytes"] == 13 * MIB
    assert (found["with"]["held_bytes"], found["without"]["held_bytes"]) == (POOL + 5 * MIB, 14 * MIB)
    assert (found["with"]["seconds"], found["without"]["seconds"]) == (0.010, 0.012)
    assert (found["how_timed"], found["fits"]) == ("while traced", ["without"])
    assert (found["capture_bytes"], found["capture_fits"]) == (12 * MIB, True)
    shown = text(capsys, *words, str(other))
    assert "graphs: +11.00 MiB, -16.7 % of the step" in shown
    assert "with graphs the run does not fit into 24.00 MiB" in shown
    turned = answer(capsys, "whatif", str(other), "--memory=11M", "--graphs-beside", str(one))["devices"][0]["graphs"]
    assert turned["change"] == found["change"]
    assert not turned["capture_fits"]
    told = text(capsys, "whatif", str(other), "--memory=11M", "--graphs-beside", str(one))
    assert "the capture alone does not fit into 11.00 MiB: 12.00 MiB are held meanwhile" in told
    for trace in (one, other):
        assert cli.main(["whatif", str(trace), "--memory=1G", "--graphs-beside", str(trace)]) == 1
    assert "neither has a captured graph" in capsys.readouterr().err
    view = collect.view(collect.find_ranks(one)[0])
    view["devices"][0]["device"] = 1
    with pytest.raises(collect.CollectError, match="has no allocation on device 1"):
        graph_choice.choice(view, one, other, 0, 1 << 30)
    view["devices"].append({"device": -1})
    assert graph_choice.choice(view, one, other, 1, 1 << 30) is None, "the host's memory"


def test_steps_behind_the_trace_count_for_more(tmp_path: Path, build: Path, capsys: Any) -> None:
    one, other = (tmp_path / run / "trace" / "rank00000.trace" for run in ("g", "e"))
    for make, trace in ((graphed, one), (eager, other)):
        trace.parent.mkdir(parents=True)
        make(trace, build)
    words = ["whatif", str(tmp_path / "g"), "--memory=1G", "--graphs-beside", str(tmp_path / "e")]
    steps = {"seconds": [9.0, 8.0, 0.9, 1.1, 1.0], "tokens": [[]] * 5}
    one.with_suffix(".steps.json").write_text(json.dumps(steps))
    assert answer(capsys, *words)["devices"][0]["graphs"]["how_timed"] == "while traced", "one of them has none"
    other.with_suffix(".steps.json").write_text(json.dumps({"seconds": [2.0, 2.0], "tokens": [[], []]}))
    found = answer(capsys, *words)["devices"][0]["graphs"]
    assert (found["how_timed"], found["with"]["seconds"], found["without"]["seconds"]) == ("untraced", 1.0, 2.0)
    assert "graphs: +11.00 MiB, -50.0 % of the step" in text(capsys, *words)
    other.with_suffix(".steps.json").write_text(json.dumps({"seconds": ["fast"]}))
    assert cli.main(words) == 1
    assert "rank00000.steps.json: expected the seconds of iterations" in capsys.readouterr().err


def test_fit_has_graphs_as_a_choice(tmp_path: Path, build: Path, capsys: Any) -> None:
    one, other = graphed(tmp_path / "g.trace", build), eager(tmp_path / "e.trace", build)
    words = ["fit", str(other), "--memory=64M", "--graphs-beside", str(one)]
    found = answer(capsys, *words)["graphs"]
    assert (found["change"]["held_bytes"], found["memory_bytes"]) == (11 * MIB, 64 * MIB)
    assert "graphs: +11.00 MiB, -16.7 % of the step" in text(capsys, *words)
    assert answer(capsys, *words[:-2])["graphs"] is None


def test_fit_chooses_graphs_where_they_fit_and_are_faster(tmp_path: Path, build: Path, capsys: Any) -> None:
    one, other = graphed(tmp_path / "one.trace", build), eager(tmp_path / "other.trace", build)

    def chosen(memory: str, first: Path = other, second: Path = one) -> dict[str, Any]:
        words = ["fit", str(first), f"--memory={memory}", "--keep-micro-batch", "--graphs-beside", str(second)]
        found: dict[str, Any] = answer(capsys, *words)
        assert [each["graphs"] for each in found["tried"]].count(True) == 1, "both ways compete"
        return found

    large, small = chosen("64M"), chosen("24M")
    assert (large["chosen"]["graphs"], small["chosen"]["graphs"]) == (True, False), "graphs hold 25 MiB"
    with_graphs, without = (each["predicted"] for each in (large, small))
    assert with_graphs["step_seconds"] == pytest.approx(without["step_seconds"] - 0.002)
    assert with_graphs["held_bytes"]["stalloc"] == without["held_bytes"]["stalloc"] + 11 * MIB
    assert "with captured graphs" in text(
        capsys, "fit", str(other), "--memory=64M", "--keep-micro-batch", "--graphs-beside", str(one)
    )
    assert chosen("64M", one, other)["chosen"]["graphs"] is True, "whichever was traced first"


def test_graphs_save_what_the_host_takes_and_grow_with_the_micro_batch() -> None:
    found = {
        "with": {"held_bytes": 30, "run": "graphs"},
        "without": {"held_bytes": 20},
        "capture_bytes": 35,
        "change": {"seconds": -0.1},
    }
    way = other_way(found, Path("eager"))
    assert way == Way(graphs=True, more_bytes=15, more_seconds=-0.1), "a capture may need more than launches"
    assert other_way(found, Path("graphs")) == Way(graphs=False, more_bytes=-15, more_seconds=0.1)
    assert other_way({**found, "change": {"seconds": None}}, Path("eager")) is None
    assert way.bytes_at(2.0) == 30
    assert way.seconds_at(3, 10.0, None) == pytest.approx(-0.3), "with each micro-batch"
    assert way.seconds_at(3, 10.0, 0.01) == pytest.approx(-0.1), "the host takes no more"
