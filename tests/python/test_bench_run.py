"""bench/run.py and bench/table.py: what is compared, what --check refuses, which programs of a suite run where."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from processes import ROOT, run_python

sys.path.insert(0, str(ROOT / "bench"))

import run
import table

BENCH = ROOT / "bench"
GIB = 1 << 30
CHECKED = argparse.Namespace(min_efficiency=0.0, min_hits=99.9, max_step_ratio=None)


def ran(live: int, held: int, seconds: list[float], losses: list[float], **more: Any) -> dict[str, Any]:
    return {"live_bytes": live, "held_bytes": held, "step_seconds": seconds, "printed": {"losses": losses}, **more}


def summary(live: int, held: int, hits: int = 1000, **more: Any) -> dict[str, Any]:
    steady = {"hits": hits, "requests": 1000}
    return {"peak_live_bytes": live, "held_peak_bytes": held, "steady": steady, "misses": {}, **more}


def plan_with(graphs: Any, ratio: float = 1.0, device: int = 0) -> dict[str, Any]:
    simulated = {"native_bytes": 4 * GIB, "native_efficiency": 0.75, "expandable_segments_bytes": 3 * GIB}
    device_report = {"graphs": graphs, "plan": {"ratio": ratio}, "device": device, "simulated": simulated}
    return {"ranks": [{"report": {"devices": [{**device_report, "peak": {"live_bytes": 3 * GIB}}]}}]}


def runs() -> dict[str, list[dict[str, Any]]]:
    native = ran(0, 4 * GIB, [9.0, 3.0, 3.0, 1.0, 1.0, 1.0], [2.0, 1.5])
    alloc = ran(0, 3 * GIB, [9.0, 3.0, 3.0, 1.1, 1.1, 1.1], [2.0, 1.5], summary=summary(3 * GIB, 3 * GIB))
    return {"native": [native], "alloc": [alloc]}


def test_live_bytes_are_those_that_stalloc_counted_in_any_run() -> None:
    native, alloc = table.rows_of(runs(), None)
    assert (native["efficiency"], alloc["efficiency"]) == (0.75, 1.0)
    assert alloc["step_ratio"] == pytest.approx(1.1), "without the first third"
    assert alloc["losses_equal"]
    assert table.problems_of([native, alloc], plan_with(None), CHECKED) == []


def test_a_shorter_run_is_compared_over_its_own_steps() -> None:
    native = [9.0, 3.0, 3.0, 2.0, 1.0, 1.0, 1.0, 1.0, 1.0]
    assert table.settled_ratio(native[:3], native) == pytest.approx(1.0)
    assert table.settled_ratio([2 * s for s in native], native) == pytest.approx(2.0)
    assert table.settled_ratio([], native) is None


def test_what_differs_or_falls_short_is_refused_with_its_value() -> None:
    found = runs()
    found["alloc"][0]["printed"]["losses"] = [2.0, 1.6]
    found["alloc"][0]["summary"] = summary(3 * GIB, 4 * GIB, hits=900)
    found["expandable"] = [{"out_of_memory": "no memory"}]
    limits = argparse.Namespace(min_efficiency=99.0, min_hits=99.9, max_step_ratio=1.05)
    problems = table.problems_of(table.rows_of(found, None), plan_with(None, ratio=1.02), limits)
    assert problems == [
        "alloc: losses differ from native's",
        "alloc: steady hit rate 90.00000%, expected at least 99.9 %",
        "alloc: E 0.75, expected at least 99.0 %",
        "alloc: a step takes 1.1000 x native's, at most 1.05",
        "expandable: out of memory",
        "plan: the arena is 1.0200 x its lower bound, expected at most 1.01",
    ]
    text = table.modes_table(table.rows_of(found, None))
    assert "NO" in text
    assert "out of memory" in text
    assert "x native" not in text, "modes that ran one after the other have no ratio of times"
    assert all(
        f"{name}: " in table.COLUMNS or f"; {name}" in table.COLUMNS for name in ("live", "held", "E", "step", "hits")
    )


def test_auto_counts_from_its_plan_on() -> None:
    since = {"peak_live_bytes": 9, "held_peak_bytes": 10}
    figures = {"summary": summary(1, 2, since_plan=since), "stages": []}
    (row,) = table.rows_of({"auto": [ran(0, 0, [1.0], [], **figures)]}, None)
    assert (row["efficiency"], row["run_efficiency"], row["planned"]) == (0.9, 0.5, True)


def test_with_captured_graphs_each_mode_has_e_of_the_device() -> None:
    plan = plan_with({"needed_bytes": 3 * GIB})
    rows = table.rows_of({**runs(), "expandable": [{"out_of_memory": "no memory"}]}, plan)
    assert [row.get("device_efficiency") for row in rows] == [0.75, 1.0, None]
    assert table.remarks(rows, plan) == [
        "captured graphs: the device needs 3.000 GiB; E of the device: native 75.00 %, alloc 100.00 %"
    ]
    assert table.remarks(table.rows_of(runs(), plan_with(None)), plan_with(None)) == []


def test_a_table_of_programs_has_a_row_of_the_worst_rank_of_each() -> None:
    found = runs()
    found["alloc"].append(ran(0, 0, [1.0], [], summary=summary(GIB, 2 * GIB)))
    document = {"program": ["x/a.py"], "ranks": 2, "rows": table.rows_of(found, None), "plan": None}
    nothing = {"native": [ran(None, None, [], [])], "alloc": found["alloc"][:1]}  # type: ignore[arg-type]
    on_cpu = {"program": ["b.py"], "ranks": 1, "rows": table.rows_of(nothing, None), "plan": plan_with(None)}
    lines = table.programs_table([document, on_cpu]).splitlines()
    assert len({line.count("|") for line in lines}) == 1
    assert lines[2].startswith("| `a.py`, 2 ranks (3.00 GiB) | 4.00 GiB, 75.0 % | - | 2.00 GiB, 50.0 % |")
    assert lines[2].endswith("| equal |")
    assert lines[3].startswith("| `b.py` (3.00 GiB) | 4.00 GiB, 75.0 % | 3.00 GiB, 100.0 % | 3.00 GiB, 100.0 % |")


def test_lines_with_losses_are_read_in_the_order_of_ranks() -> None:
    text = 'RESULT {"losses": [2], "rank": 1}\nstep {"losses"\n{"losses": [1], "rank": 0}\n'
    assert [each["losses"] for each in run.printed_of(text)] == [[1], [2]]


# Suites ---------------------------------------------------------------------------------------------------------------


def test_every_example_is_in_the_suite_and_all_programs_are_there() -> None:
    suites = json.loads((BENCH / "workloads" / "suites.json").read_text())
    examples = [ROOT / entry["program"] for entry in suites["examples"]]
    assert sorted(examples) == sorted((ROOT / "examples").glob("*.py"))
    assert all((ROOT / entry["program"]).is_file() for entries in suites.values() for entry in entries)


@pytest.mark.parametrize(
    ("entry", "gpus", "why"),
    [
        ({}, 0, None),
        ({"needs": ["no_such_package"]}, 1, "needs no_such_package"),
        ({"ranks": 2}, 1, "needs 2 GPUs"),
        ({"ranks": 2}, 0, None),
        ({"gpus": 1}, 0, "needs 1 GPU"),
    ],
)
def test_what_does_not_run_here_is_told(entry: dict[str, Any], gpus: int, why: str | None) -> None:
    assert run.obstacle(entry, gpus) == why


# Real runs on the CPU -------------------------------------------------------------------------------------------------


def test_a_toy_whose_routing_drifts_trains_the_same_in_all_modes(build: Path, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    program = [str(BENCH / "train_gpt.py"), "--preset", "toy-moe-drift", "--iterations", "4", "--device", "cpu"]
    words = ["--modes", "native", "trace-fast", "alloc", "--trace-steps", "3", "--check", "--min-hits", "0"]
    words += ["--json", str(tmp_path / "drift.json"), "--directory", str(tmp_path / "kept"), "--", *program]
    done = run_python(str(BENCH / "run.py"), *words, environment={"STALLOC_LIB_PATH": str(build)}, cwd=tmp_path).good()
    document = json.loads((tmp_path / "drift.json").read_text())
    assert document["complete"]
    alloc = next(row for row in document["rows"] if row["mode"] == "alloc")
    assert alloc["losses_equal"]
    assert alloc["weights_equal"]
    assert 0 < alloc["efficiency"] <= 1
    assert len(document["runs"]["native"][0]["step_seconds"]) == 4
    assert [line.split()[0] for line in done.out.splitlines()[1:5]] == ["mode", "native", "trace-fast", "alloc"]


def test_a_run_that_fails_is_named_and_what_was_done_is_kept(build: Path, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    program = tmp_path / "fails.py"
    program.write_text("import os\nassert 'STALLOC_MODE' not in os.environ, 'a fault'\n")
    words = ["--modes", "native", "trace-fast", "--json", str(tmp_path / "fails.json"), "--", str(program)]
    done = run_python(str(BENCH / "run.py"), *words, environment={"STALLOC_LIB_PATH": str(build)}, cwd=tmp_path)
    assert done.code == 1
    assert "run: the trace-fast run failed with exit code 1" in done.err
    assert not json.loads((tmp_path / "fails.json").read_text())["complete"]


SHARES = """
import sys, torch
sys.path.insert(0, sys.argv[1])
from workload import PRESETS, Gpt, RoutingShift, token_batches
import dataclasses
cpu = torch.device("cpu")
for preset, iterations in (("toy-moe-collapse", (5, 6)), ("toy-moe-drift", (0, 20))):
    config = dataclasses.replace(PRESETS[preset], layers=1)
    torch.manual_seed(1)
    model, shift, again = Gpt(config, cpu), RoutingShift(config, 1), RoutingShift(config, 1)
    tokens = next(token_batches(config, 1, cpu))
    for iteration in iterations:
        bias = shift.bias(iteration)
        assert torch.equal(bias, again.bias(iteration))
        model.shift_routing(bias)
        loads = []
        experts = model.blocks[0].feed_forward.experts
        hooks = [e.register_forward_hook(lambda m, i, o: loads.append(len(o))) for e in experts]
        model(tokens)
        for hook in hooks:
            hook.remove()
        print(preset, iteration, max(loads) / tokens[:, 1:].numel(), len(loads))
"""


def test_routing_collapses_and_drifts_as_the_presets_say(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    done = run_python("-c", SHARES, str(BENCH), cwd=tmp_path, environment={"OMP_NUM_THREADS": "1"}).good()
    shares = {(p, int(i)): float(share) for p, i, share, _ in (line.split() for line in done.out.splitlines())}
    assert shares["toy-moe-collapse", 5] < 0.75
    assert shares["toy-moe-collapse", 6] == 1.0  # among every token's two
    assert shares["toy-moe-drift", 20] > shares["toy-moe-drift", 0] + 0.05
