"""bench/card: its arithmetic, its turns and attempts over made-up processes, and the real thing on a CPU."""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Callable, Optional

import pytest

from processes import PACKAGE, ROOT, Finished, run_python, run_with_torch

sys.path.insert(0, str(ROOT / "bench" / "card"))

import least_memory
import step_ratios
from card_document import Document
from least_memory import Least, is_too_slow, least, mean_ratio, outcome_of
from program_process import OUT_OF_MEMORY, TOO_SLOW, TRAINED, ProgramProcess, Run
from step_figure import alternate

CARD = ROOT / "bench" / "card"
MIB = 1 << 20
PROGRAM = """
import sys
import torch
from torch import nn

torch.manual_seed(1)
network = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64))
optimizer, other = (torch.optim.AdamW(network.parameters()) for _ in range(2))
for step in range(int(sys.argv[1])):
    rows = torch.randn(64 + 16 * (step % 3), 64)
    nn.functional.mse_loss(network(rows), rows).backward()
    optimizer.step()
    if "two" in sys.argv:
        other.step()
    optimizer.zero_grad()
    if "memory" in sys.argv and step == 2:
        try:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        except RuntimeError as error:
            raise ValueError("step failed") from error
    if "error" in sys.argv and step == 2:
        raise ValueError("a fault of the program")
print("main", __name__, sys.argv[1:])
"""


# Arithmetic -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("needed", [1000, 1003, 1234, 1499, 1500])
def test_bisection_finds_the_least_cap_to_the_resolution(needed: int) -> None:
    tried: list[int] = []

    def trains(cap: int) -> bool:
        tried.append(cap)
        return cap >= needed

    found = least(1000, 1500, 5, trains)
    assert needed <= found <= needed + 5
    assert len(tried) == 7
    assert len(set(tried)) == len(tried)


def test_nothing_is_attempted_where_the_free_cards_need_is_within_the_resolution() -> None:
    assert least(1000, 1004, 5, lambda _: pytest.fail("attempted")) == 1004
    assert least(1000, 990, 5, lambda _: pytest.fail("attempted")) == 990


def test_the_interval_is_that_of_the_sign_test() -> None:
    # Tables of the sign test: with 20 values the 6th and the 15th, with 9 the 2nd and the 8th.
    assert step_ratios.median_interval([float(i) for i in range(1, 21)]) == [6.0, 15.0]
    assert step_ratios.median_interval([float(i) for i in range(9, 0, -1)]) == [2.0, 8.0]
    assert step_ratios.median_interval([3.0, 1.0, 2.0]) == [1.0, 3.0], "too few"


def test_the_interval_holds_the_true_median_as_often_as_it_says() -> None:
    numbers = random.Random(7)
    hit = 0
    for _ in range(1000):
        low, high = step_ratios.median_interval([numbers.expovariate(1.0) for _ in range(25)])
        hit += low <= 0.6931 <= high
    assert 940 <= hit <= 985


def test_rounds_do_not_see_who_goes_first() -> None:
    # Whoever goes second takes a tenth longer; both are equally fast, and so are they in rounds.
    found = step_ratios.compare([1.1, 1.0] * 8, [1.0, 1.1] * 8, warm_up=1, together=2)
    assert found is not None
    assert found["interval"][1] - found["interval"][0] > 0.1
    assert found["median_of_rounds"] == pytest.approx(1.0)
    assert found["interval_of_rounds"] == pytest.approx([1.0, 1.0])
    assert step_ratios.round_sums([1.0, 2.0, 3.0, 4.0, 5.0], 2) == [3.0, 7.0], "no half of a round"


def test_steps_are_compared_by_their_index() -> None:
    base = [9.0, *(float(i) for i in range(1, 21))]
    found = step_ratios.compare([1.0, *(1.1 * s for s in base[1:]), 7.0], base, warm_up=1, together=3)
    assert found is not None
    assert found["steps"] == 20
    for name in ("median", "ratio_of_sums", "ratio_of_p99", "median_of_rounds"):
        assert found[name] == pytest.approx(1.1), name
    assert found["interval"] == pytest.approx([1.1, 1.1])
    assert step_ratios.compare([1.0], [1.0], warm_up=1) is None


def test_the_percentile_is_one_of_the_steps() -> None:
    assert step_ratios.percentile([float(i) for i in range(1, 201)], 99) == 198.0
    assert step_ratios.percentile([3.0, 1.0], 99) == 3.0


def test_changes_of_the_arena_count_after_the_warm_up() -> None:
    names = ("times_moved", "moved_bytes", "times_grown", "times_mapped_again", "times_waited")
    names += ("move_seconds", "map_seconds", "wait_seconds")
    end = {"at_warm_up": {f"arena_{n}": 1 for n in names}, "at_end": {f"arena_{n}": 3 for n in names}}
    found = step_ratios.arena_changes(end, [100.0, 20.0, 20.0], warm_up=1)
    assert found is not None
    assert (found["moves"], found["maps"], found["waits"]) == (2, 4, 2)
    assert found["share_of_steps"] == pytest.approx(4 / 40)
    assert step_ratios.arena_changes({}, [1.0], 0) is None, "without stalloc"


def test_an_attempt_is_too_slow_as_soon_as_it_cannot_become_fast_enough() -> None:
    free = [9.0, 1.0, 1.0]
    assert not is_too_slow([50.0, 2.0], free, 1, most=1.05)
    assert is_too_slow([50.0, 2.2], free, 1, most=1.05)
    assert mean_ratio([50.0, 1.0, 1.2], free, 1) == pytest.approx(1.1)
    assert mean_ratio([50.0], free, 1) is None


def test_a_program_that_ends_early_in_its_cap_has_not_trained() -> None:
    chosen = argparse.Namespace(warm_up=1, step_ratio=1.05, caps=[])
    free = [9.0, 1.0, 1.0]

    def outcome(*seconds: float) -> str:
        return outcome_of(Run(TRAINED, list(seconds), [], 0, {}), free, chosen)

    assert outcome(9.0, 1.0, 1.0) == TRAINED
    assert outcome(9.0, 1.0, 1.2) == TOO_SLOW
    assert outcome(9.0, 1.0) == "failed"


# Turns ----------------------------------------------------------------------------------------------------------------


class Turning:
    """A process that makes `steps` steps and then ends, well or not."""

    def __init__(self, name: str, order: list[str], steps: int, well: bool = True) -> None:
        self._name, self._order, self._left, self._well = name, order, steps, well
        self.trained = False

    def let_go(self) -> None:
        self._order.append(self._name)

    def step(self) -> Optional[float]:
        if self._left == 0:
            return None
        self._left -= 1
        self.trained = self._left == 0 and self._well
        return 1.0


def test_who_goes_first_changes_from_step_to_step() -> None:
    order: list[str] = []
    assert alternate({name: Turning(name, order, 4) for name in "abc"}) is None  # type: ignore[misc]
    assert "".join(order) == "abcbcacababc"


def test_nobody_goes_on_once_one_has_failed() -> None:
    order: list[str] = []
    processes = {"a": Turning("a", order, 4), "b": Turning("b", order, 1, well=False)}
    assert alternate(processes) == "b"  # type: ignore[arg-type]
    assert "".join(order) == "abb"


# Attempts -------------------------------------------------------------------------------------------------------------

LIVE = 1000 * MIB
HELD = {"native": 1.4, "expandable": 1.1, "stalloc": 1.001}  # on the free card, over live
NEED = {"native": 1.25, "expandable": 1.02, "stalloc": 1.001}  # to train at all
FAST = {"native": 1.3, "expandable": 1.05, "stalloc": 1.001}  # with steps as on the free card


class Ran:
    def __init__(self, run: Run) -> None:
        self._run = run

    def finish(self, stop: Callable[[list[float]], bool] = lambda _: False) -> Run:
        return self._run


class Card:
    """In place of Allocators: a GPU on which 300 MiB are outside of all allocators."""

    prepared = False

    def prepare(self) -> None:
        self.prepared = True

    @contextmanager
    def running(self, name: str, *, card: Optional[int] = None) -> Iterator[Ran]:
        cap = HELD[name] if card is None else (card - 300 * MIB) / LIVE
        seconds = [9.0, *[1.0 if cap >= FAST[name] else 1.2] * 5]
        memory = {"live_bytes": LIVE, "held_bytes": round(LIVE * min(cap, HELD[name])), "device": "card"}
        end = {**memory, "outside_bytes": (300 if name == "native" else 400) * MIB}
        fits = cap >= NEED[name]
        yield Ran(Run(TRAINED if fits else OUT_OF_MEMORY, seconds if fits else [], [], int(cap < HELD[name]), end))


def attempts(tmp_path: Path, caps: list[float], **more: Any) -> dict[str, Any]:
    chosen = argparse.Namespace(
        **{"figure": "least", "allocators": list(HELD), "mode": "alloc", "steps": 6, "warm_up": 1, "caps": caps},
        **{"resolution": 0.5, "step_ratio": 1.05, "json": tmp_path / "least.json", "program": ["train.py"]},
        **{"of_card": None, "budget_s": None, **more},
    )
    card = Card()
    assert Least(chosen, card, Document(chosen)).measure() == 0  # type: ignore[arg-type]
    assert card.prepared
    document: dict[str, Any] = json.loads((tmp_path / "least.json").read_text())
    assert document["complete"]
    assert [path.name for path in tmp_path.iterdir()] == ["least.json"]
    return document


def test_the_least_memory_is_that_of_fast_steps(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document = attempts(tmp_path, [])
    for name, share in FAST.items():
        found = document["least"][name]
        assert share <= found["least_over_live"] <= share + 0.005, name
        assert found["held_over_live"] == pytest.approx(HELD[name], abs=1e-6)
    assert document["outside_bytes"] == 300 * MIB, "native's, for all"
    outcomes = {each["outcome"] for each in document["attempts"] if each["allocator"] == "native"}
    assert outcomes == {TRAINED, TOO_SLOW, OUT_OF_MEMORY}
    assert not any(each["allocator"] == "stalloc" for each in document["attempts"]), "within the resolution"
    assert "least / live" in capsys.readouterr().out


def test_caps_are_compared_with_expandable_segments_in_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = attempts(tmp_path, [1.1, 1.02])
    found = {(round(each["cap_over_live"], 4), each["allocator"]): each for each in document["attempts"]}
    assert len(found) == 6
    assert found[1.1, "native"]["outcome"] == OUT_OF_MEMORY
    assert found[1.1, "native"]["over_expandable"] is None
    assert found[1.02, "expandable"]["outcome"] == TRAINED, "no step is too slow here"
    assert found[1.02, "expandable"]["mean_step_ratio"] == pytest.approx(1.2)
    assert found[1.02, "expandable"]["num_alloc_retries"] == 1
    assert found[1.02, "stalloc"]["over_expandable"]["median"] == pytest.approx(1 / 1.2)
    assert "x expandable" in capsys.readouterr().out


def test_no_smaller_card_is_tried_than_one_that_was_too_small(tmp_path: Path) -> None:
    caps = [1.1, 1.05, 1.02]
    document = attempts(tmp_path, caps, of_card=[100 / cap for cap in caps])
    tried = {name: [each["outcome"] for each in document["attempts"] if each["allocator"] == name] for name in HELD}
    assert tried["native"] == [OUT_OF_MEMORY]
    assert [len(tried[name]) for name in ("expandable", "stalloc")] == [3, 3]
    assert attempts(tmp_path, caps, budget_s=0)["attempts"] == [], "there is no time"


def test_live_over_card_is_given_in_percent(monkeypatch: pytest.MonkeyPatch) -> None:
    import card

    words = ["card.py", "least", "--of-card", "99.5", "80", "--json", "x.json", "--", "train.py"]
    monkeypatch.setattr(sys, "argv", words)
    assert card.parse_arguments().caps == [1.25, pytest.approx(100 / 99.5)]
    monkeypatch.setattr(sys, "argv", [*words[:3], *words[5:]])
    assert len(card.parse_arguments().caps) == 6


def test_a_program_without_memory_of_the_gpu_has_no_figure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{__name__}.LIVE", 1)
    monkeypatch.setattr(Least, "_live", lambda _: 0)
    with pytest.raises(least_memory.CardError, match="used no memory"):
        attempts(tmp_path, [])


# The real thing -------------------------------------------------------------------------------------------------------


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.py"
    path.write_text(PROGRAM)
    return path


def child(program: list[str], report: Path, *options: str, cwd: Optional[Path] = None) -> tuple[Finished, list[Any]]:
    pytest.importorskip("torch")
    words = [str(CARD / "child.py"), "--report", str(report), *options, "--", *program]
    done = run_with_torch(*words, cwd=cwd)
    return done, [json.loads(line) for line in report.read_text().splitlines()]


def test_a_program_is_ended_after_its_steps(program: Path, tmp_path: Path) -> None:
    done, events = child([str(program), "9"], tmp_path / "report", "--steps", "4")
    assert done.code == 0, done.err
    assert [each["event"] for each in events] == ["ready", *["step"] * 4, "end"]
    assert [each["last"] for each in events[1:-1]] == [False, False, False, True]
    assert all(each["seconds"] > 0 for each in events[1:-1])
    assert "main" not in done.out


def test_a_program_that_ends_by_itself_is_run_as_python_runs_it(program: Path, tmp_path: Path) -> None:
    done, events = child([str(program), "3", "--x", "--", "y"], tmp_path / "report", "--steps", "9")
    assert done.code == 0, done.err
    assert done.out.strip() == "main __main__ ['3', '--x', '--', 'y']"
    assert events[-1]["event"] == "end"
    assert events[-1]["steps"] == 3


def test_a_step_may_be_several_of_the_first_optimizer(program: Path, tmp_path: Path) -> None:
    words = ["-m", program.stem, "7", "two"]
    done, events = child(words, tmp_path / "report", "--optimizer-steps", "2", cwd=tmp_path)
    assert done.code == 0, done.err
    assert events[-1]["steps"] == 3


def test_out_of_memory_is_exit_code_3_also_where_another_error_came_of_it(program: Path, tmp_path: Path) -> None:
    done, events = child([str(program), "9", "memory"], tmp_path / "report")
    assert done.code == 3
    assert events[-1]["event"] == "out_of_memory"
    assert events[-1]["message"].startswith("CUDA out of memory")
    assert events[-1]["steps"] == 3
    assert "step failed" in done.err


@pytest.mark.parametrize(("words", "outcome"), [("memory", OUT_OF_MEMORY), ("error", "failed"), ("", TRAINED)])
def test_a_process_says_what_came_of_it(program: Path, tmp_path: Path, words: str, outcome: str) -> None:
    pytest.importorskip("torch")
    environment = {"PYTHONPATH": str(PACKAGE), "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    process = ProgramProcess(
        [], ["--steps", "5"], [str(program), "9", words], environment, tmp_path / "log", turns=True, limit_s=100
    )
    process.ready()
    for _ in range(5):
        process.let_go()
        if process.step() is None:
            break
    run = process.end()
    assert run.outcome == outcome, run.message
    assert len(run.seconds) == (5 if outcome == TRAINED else 3)
    assert ("fault of the program" in run.message) == (outcome == "failed")


def test_a_process_whose_time_is_over_is_ended(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    program = tmp_path / "endless.py"
    program.write_text("import time\ntime.sleep(1000)\n")
    process = ProgramProcess([], [], [str(program)], {}, tmp_path / "log", limit_s=3)
    assert process.finish().outcome == "time over"


def run_card(build: Path, *words: str) -> Finished:
    return run_python(str(CARD / "card.py"), *words, environment={"STALLOC_LIB_PATH": str(build)})


def test_steps_of_three_allocators_in_turns(build: Path, program: Path, tmp_path: Path) -> None:
    results = tmp_path / "step.json"
    options = ["--device", "cpu", "--steps", "8", "--warm-up", "2", "--json", str(results)]
    done = run_card(build, "step", *options, "--directory", str(tmp_path / "kept"), "--", str(program), "20").good()
    document = json.loads(results.read_text())
    assert document["complete"]
    assert document["program"] == [str(program), "20"]
    assert all(len(run["step_seconds"]) == 8 for run in document["runs"].values())
    row = document["rows"]["stalloc"]
    assert set(row["over"]) == {"native", "expandable"}
    assert all(ratio["steps"] == 6 for ratio in row["over"].values())
    assert row["arena_changes"]["moves"] >= 0
    assert row["live_bytes"] > 0
    assert document["runs"]["stalloc"]["stalloc"]["at_end"]["planned_hits"] > 0
    header, *rows = done.out.splitlines()[1:]
    assert header.split()[0] == "allocator"
    assert [line.split()[0] for line in rows] == ["native", "expandable", "stalloc"]


def test_the_second_start_under_auto_is_measured(build: Path, program: Path, tmp_path: Path) -> None:
    results = tmp_path / "step.json"
    options = ["--alone", "--mode", "auto", "--device", "cpu", "--steps", "16", "--json", str(results)]
    run_card(build, "step", *options, "--allocators", "stalloc", "--", str(program), "20").good()
    run = json.loads(results.read_text())["runs"]["stalloc"]
    assert run["stalloc"]["at_end"]["plan_loaded"]
    assert run["end_of_step_seconds"] == sorted(run["end_of_step_seconds"])


def test_threads_of_all_processes_share_a_core(build: Path, tmp_path: Path) -> None:
    program = tmp_path / "cores.py"
    program.write_text(
        "import os, sys, threading\n"
        f"exec({PROGRAM!r})\n"
        "thread = threading.Thread(target=lambda: print('cores', *os.sched_getaffinity(0)))\n"
        "thread.start(); thread.join()\n"
    )
    kept = tmp_path / "kept"
    options = ["--device", "cpu", "--steps", "8", "--warm-up", "2", "--allocators", "native", "expandable"]
    run_card(build, "step", "--one-core", *options, "--directory", str(kept), "--", str(program), "6").good()
    cores = [line for log in kept.glob("*.log") for line in log.read_text().splitlines() if line.startswith("cores")]
    assert cores == [f"cores {max(os.sched_getaffinity(0))}"] * 2


def test_a_program_that_fails_is_named_with_what_it_said(build: Path, program: Path) -> None:
    options = ["--device", "cpu", "--steps", "8", "--warm-up", "2", "--allocators", "native", "expandable"]
    done = run_card(build, "step", *options, "--", str(program), "20", "error")
    assert done.code == 1
    assert "card: expandable: failed after 3 steps" in done.err, "it has the first turn of the fourth step"
    assert "a fault of the program" in done.err


@pytest.mark.parametrize("more", [[], ["--caps", "1.1", "1.05"]])
def test_a_cpu_cannot_be_capped(tmp_path: Path, program: Path, more: list[str]) -> None:
    done = run_card(tmp_path, "least", "--device", "cpu", *more, "--", str(program))
    assert done.code == 1
    assert done.out == ""
    (line,) = done.err.splitlines()
    assert line.startswith("card: least needs a GPU")


def test_help_has_examples() -> None:
    for words in (["--help"], ["step", "--help"], ["least", "--help"]):
        done = run_python(str(CARD / "card.py"), *words)
        assert done.code == 0
        assert "examples:" in done.out
