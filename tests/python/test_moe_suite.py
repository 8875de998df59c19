"""bench/iterations.py, bench/moe_suite.py and the routing that shifts: what is judged, what survives a time-out."""

from __future__ import annotations

import importlib
import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from processes import ROOT, clean_environment, run_python

BENCH = ROOT / "bench"
SUITE = str(BENCH / "moe_suite.py")


def bench_module(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCH))
    return importlib.import_module(name)


@pytest.fixture
def iterations(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return bench_module("iterations", monkeypatch)


@pytest.fixture
def moe_suite(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return bench_module("moe_suite", monkeypatch)


# Single iterations --------------------------------------------------------------------------------------------------


def test_efficiency_is_of_each_iteration_and_unknown_where_nobody_counted(iterations: ModuleType) -> None:
    counted = {"step_seconds": [1.0, 2.0], "iteration_peaks": [{"live": 50, "held": 100}, {"live": 80, "held": 100}]}
    entries = iterations.iterations_of(counted)
    assert [entry["efficiency"] for entry in entries] == [0.5, 0.8]
    assert iterations.least_efficiency(entries) == (0.5, 0)
    uncounted = iterations.iterations_of({"step_seconds": [1.0], "iteration_peaks": [{}]})
    assert uncounted == [{"step_seconds": 1.0}]
    assert iterations.least_efficiency(uncounted) is None


def entries_with(efficiencies: list[float]) -> list[dict[str, Any]]:
    return [{"efficiency": efficiency} for efficiency in efficiencies]


def test_one_iteration_below_the_peer_is_a_failure_that_names_it(iterations: ModuleType) -> None:
    own, peer = entries_with([0.5, 0.99, 0.97]), entries_with([0.9, 0.99, 0.98])
    (found,) = iterations.efficiency_failures(own, peer, 1)
    assert "1 of 2 iterations, most in iteration 2: 97.0000% against 98.0000%" in found
    (found,) = iterations.efficiency_failures(own, peer, 0)
    assert "2 of 3 iterations, most in iteration 0" in found
    assert iterations.efficiency_failures(peer, own, 0) == []
    assert iterations.efficiency_failures(own, [{}, {}, {}], 0) == []


def test_one_slow_step_is_noise_and_three_in_five_are_not(iterations: ModuleType) -> None:
    native = [9.0] + [1.0] * 19
    spike = [*native]
    spike[7] = spike[12] = 1.5
    assert iterations.time_failures(spike, native, 1.02) == []
    assert iterations.slowest_step(spike, native) == (1.5, 12)
    slow = [*native]
    slow[10:13] = [1.03] * 3
    (found,) = iterations.time_failures(slow, native, 1.02)
    assert "1.0300 x" in found
    assert iterations.time_failures(slow, native, 1.04) == []


def test_a_shorter_run_is_compared_over_its_own_iterations(iterations: ModuleType) -> None:
    native = [9.0, 3.0, 3.0, 2.0, 1.0, 1.0, 1.0, 1.0, 1.0]
    assert iterations.settled_ratio(native[:3], native) == pytest.approx(1.0)
    assert iterations.settled_ratio([2 * s for s in native], native) == pytest.approx(2.0)


def test_the_first_iteration_is_in_no_window(iterations: ModuleType) -> None:
    native = [1.0] * 8
    assert iterations.time_failures([5.0, *native[1:]], native, 1.02) == []
    assert len(iterations.window_medians(native)) == 3
    assert iterations.window_medians([7.0, 1.0, 2.0, 3.0]) == [2.0]  # shorter than a window
    assert iterations.window_medians([7.0]) == []
    assert iterations.slowest_window(native, native[1:]) is None  # runs of different lengths


def test_work_that_changes_is_compared_with_the_peer_at_the_same_time(iterations: ModuleType) -> None:
    native = [1.0 + 0.1 * i for i in range(30)]
    assert iterations.slowest_window([1.01 * s for s in native], native)[0] == pytest.approx(1.01)


# The suite ----------------------------------------------------------------------------------------------------------


def result_of(complete: bool, problems: list[str]) -> dict[str, Any]:
    row = {"live_bytes": 1 << 30, "efficiency": 0.5, "step_seconds": 0.25, "least_efficiency": [0.4, 3]}
    alloc = row | {"efficiency": 0.99, "step_ratio": 1.004, "slowest_window": [1.01, 5], "losses_equal": True}
    rows = [{"mode": "native", **row}, {"mode": "alloc", **alloc}]
    return {"complete": complete, "problems": problems, "rows": rows, "plan": {"wall_seconds": 1.25}}


def test_the_table_has_a_line_for_each_whatever_there_is(moe_suite: ModuleType) -> None:
    lines = moe_suite.table([("a", result_of(True, [])), ("b", result_of(False, [])), ("c", None)])
    assert lines[2] == "| a | 1.00 | 50.00 | - | 99.00 | - | 40.00 | 250.0 | 1.0040 | 1.0100 | equal | 1.2 | ok |"
    assert lines[3].endswith("| broken off after native, alloc |")
    assert lines[4].endswith("| - | not run |")
    assert {line.count("|") for line in lines} == {lines[0].count("|")}


def test_what_is_complete_is_not_run_again_and_problems_decide_the_exit_code(tmp_path: Path) -> None:
    for code, problems in ((0, []), (1, ["alloc: too much"])):
        (tmp_path / "moe-16x12.json").write_text(json.dumps(result_of(True, problems)))
        done = run_python(SUITE, "--output", str(tmp_path), "--workloads", "moe-16x12")
        assert done.code == code, done.err
        assert ("alloc: too much" in done.out) == bool(problems)
    assert "| moe-16x12 |" in (tmp_path / "table.md").read_text()


def test_nothing_is_begun_that_would_not_end_in_time(tmp_path: Path) -> None:
    done = run_python(SUITE, "--output", str(tmp_path), "--time-limit", "30")
    assert done.code == 3, done.err
    assert done.out.count("not begun") == 5
    assert done.out.count("| not run |") == 5


def test_time_that_runs_out_keeps_what_is_there_and_ends_the_comparison(moe_suite: ModuleType, tmp_path: Path) -> None:
    mark = tmp_path / "alive"
    child = f"import time, pathlib\ntime.sleep(4)\npathlib.Path({str(mark)!r}).touch()"
    parent = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {child!r}])"
    begin = time.monotonic()
    moe_suite.run_for([sys.executable, "-c", parent], 0.5)
    assert time.monotonic() - begin < 3
    time.sleep(4.5)
    assert not mark.exists()  # the processes that the comparison started are gone, too


# Real runs on the CPU -----------------------------------------------------------------------------------------------


@pytest.mark.slow  # the demo with experts, a step of the gate, asks for as much
def test_a_toy_comparison_whose_routing_drifts_trains_the_same(build: Path, tmp_path: Path) -> None:
    command = ["--output", str(tmp_path), "--toy", "--workloads", "moe-drift", "--iterations", "4"]
    command += ["--modes", "native", "trace-fast", "alloc", "--", "--trace-iterations", "3", "--device", "cpu"]
    environment = {"STALLOC_LIB_PATH": str(build), "OMP_NUM_THREADS": "1"}
    done = run_python(SUITE, *command, environment=environment, cwd=tmp_path)
    assert done.code == 0, done.err
    result = json.loads((tmp_path / "toy-moe-drift.json").read_text())
    assert result["complete"]
    alloc = next(row for row in result["rows"] if row["mode"] == "alloc")
    assert alloc["losses_equal"]
    assert alloc["weights_equal"]
    assert len(alloc["iterations"]) == 4
    assert all(0 < entry["efficiency"] <= 1 for entry in alloc["iterations"])
    assert "| toy-moe-drift |" in (tmp_path / "table.md").read_text()


def test_a_suite_that_is_ended_ends_its_comparison_and_keeps_the_modes_that_are_done(
    build: Path, tmp_path: Path
) -> None:
    command = [sys.executable, SUITE, "--output", str(tmp_path), "--toy", "--workloads", "moe-16x12"]
    command += ["--iterations", "1000", "--modes", "trace-fast", "native", "--", "--trace-iterations", "2"]
    environment = clean_environment({"STALLOC_LIB_PATH": str(build), "OMP_NUM_THREADS": "1"})
    suite = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    path = tmp_path / "toy-moe.json"
    for _ in range(1200):
        if path.exists() or suite.poll() is not None:
            break
        time.sleep(0.1)
    suite.send_signal(signal.SIGTERM)
    out, _ = suite.communicate(timeout=60)
    assert suite.returncode == 3
    assert not json.loads(path.read_text())["complete"]
    assert "| broken off after trace-fast |" in out
    assert "| broken off after trace-fast |" in (tmp_path / "table.md").read_text()


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
    done = run_python("-c", SHARES, str(BENCH), cwd=tmp_path, environment={"OMP_NUM_THREADS": "1"})
    assert done.code == 0, done.err
    shares = {(p, int(i)): float(share) for p, i, share, _ in (line.split() for line in done.out.splitlines())}
    assert shares["toy-moe-collapse", 5] < 0.75
    assert shares["toy-moe-collapse", 6] == 1.0  # among every token's two
    assert shares["toy-moe-drift", 20] > shares["toy-moe-drift", 0] + 0.05
