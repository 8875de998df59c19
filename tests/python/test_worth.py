"""bench/worth: the search for the fastest configuration that fits, over a made-up card; and the toy programs."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Optional

import pytest

from processes import PACKAGE, ROOT, run_python, run_with_torch

sys.path.insert(0, str(ROOT / "bench" / "card"))
sys.path.insert(0, str(ROOT / "bench"))
sys.path.insert(0, str(ROOT / "bench" / "worth"))

from search import Attempt, Outcome, best_of, first_assumption, search

WORTH = ROOT / "bench" / "worth"
CARD = 1000
EACH = 60  # bytes of a sequence; 100 are there in any case


def proposed(assumed: int) -> Optional[int]:
    """The largest batch that a prediction would take for so many bytes."""
    return (assumed - 100) // EACH or None if assumed > 100 else None


def trainer(waste: float) -> tuple[list[int], object]:
    tried: list[int] = []

    def attempt(batch: int) -> Outcome:
        tried.append(batch)
        held = round((100 + EACH * batch) * waste)
        return Outcome(held <= CARD, float(batch), held)

    return tried, attempt


def largest(waste: float) -> int:
    return max(batch for batch in range(1, 20) if round((100 + EACH * batch) * waste) <= CARD)


@pytest.mark.parametrize("waste", [1.0, 1.05, 1.12, 0.97])
def test_the_largest_that_fits_is_found_within_few_attempts(waste: float) -> None:
    tried, attempt = trainer(waste)
    best = best_of(search(CARD, proposed, attempt, most=5))  # type: ignore[arg-type]
    assert best is not None
    assert best.configuration == largest(waste)
    assert len(tried) <= 5
    assert len(set(tried)) == len(tried), "nothing is tried twice"


def test_nothing_is_proposed_that_would_not_be_attempted() -> None:
    asked: list[int] = []

    def propose(assumed: int) -> Optional[int]:
        asked.append(assumed)
        return proposed(assumed)

    _, attempt = trainer(0.9)
    assert len(search(CARD, propose, attempt, most=1)) == 1  # type: ignore[arg-type]
    assert len(asked) == 1


def test_where_one_attempt_is_asked_for_less_is_tried_until_one_fits() -> None:
    tried, attempt = trainer(1.12)
    found = search(CARD, proposed, attempt, most=1)  # type: ignore[arg-type]
    assert [each.outcome.fits for each in found] == [False, True]
    assert len(tried) == 2


def test_nothing_fits_where_the_card_is_too_small() -> None:
    tried, attempt = trainer(20)
    assert best_of(search(CARD, proposed, attempt)) is None  # type: ignore[arg-type]
    assert len(tried) == 4
    assert search(50, proposed, attempt) == []  # type: ignore[arg-type]


def test_room_that_is_left_is_tried_once_more() -> None:
    tried, attempt = trainer(0.9)
    best = best_of(search(CARD, proposed, attempt, most=6))  # type: ignore[arg-type]
    assert best is not None
    assert best.configuration > proposed(CARD)  # type: ignore[operator]
    assert tried[0] == proposed(first_assumption(CARD))


def test_the_longest_is_the_largest_however_slow() -> None:
    attempts = [
        Attempt(900, 3, Outcome(True, 9.0)),
        Attempt(1000, 4, Outcome(True, 5.0)),
        Attempt(1100, 5, Outcome(False)),
    ]
    fastest, longest = best_of(attempts), best_of(attempts, lambda size: size)
    assert fastest is not None
    assert longest is not None
    assert (fastest.configuration, longest.configuration) == (3, 4)


@pytest.mark.parametrize("program", ["fsdp2-packed", "lora", "trainer", "experts", "captured", "rollout", "long"])
def test_toy_programs_train(program: str) -> None:
    if program == "trainer":
        pytest.importorskip("transformers")
    words = [program, "--size", "toy", "--micro-batch", "2", "--steps", "2", "--device", "cpu"]
    done = run_with_torch(str(WORTH / "train.py"), *words).good()
    result = json.loads(done.out.splitlines()[-1].removeprefix("RESULT "))
    assert len(result["seconds"]) == 2
    assert all(count > 0 for count in result["tokens"])


def test_offloading_is_measured_on_a_cpu() -> None:
    words = ["--device", "cpu", "--tiny", "--only", "every second"]
    done = run_with_torch(str(WORTH / "offload_overlap.py"), *words).good()
    plain, offloaded = json.loads(done.out.splitlines()[-1])["rows"]
    assert plain["sent_bytes"] == 0 < offloaded["sent_bytes"] == offloaded["fetched_bytes"] <= offloaded["host_bytes"]
    assert offloaded["equal"]
    assert offloaded["offloaded"] == [0, 2]


def test_a_compiled_block_is_one_graph() -> None:
    done = run_with_torch(str(ROOT / "tests" / "python" / "scripts" / "compiled_block.py")).good()
    found = json.loads(done.out.splitlines()[-1])
    assert found["breaks"] == []
    assert found["graphs"] >= 1


def measured(program: str, ours: int = 4, theirs: int = 3, longest: bool = False) -> dict[str, Any]:
    """A row: micro-batches of stalloc and of expandable_segments, whose third step gave memory back."""
    own = {"best": str(ours), "micro_batch": ours, "held_bytes": 1 << 30, "live_bytes": 1000, "attempts": []}
    own |= {"tokens_per_second": {"mean": 100.0}, "seconds": [1.0, 1.0, 1.0], "tokens": [100.0] * 3}
    own |= {"predicted": {"live_bytes": 1010, "step_seconds": 0.99}, "step_seconds": 1.0, "recomputed": []}
    own["counted"] = {"arena_move_seconds": [5.0, 0.0, 0.03, 0.0], "arena_map_seconds": [1.0, 0.0, 0.0, 0.03]}
    own["counted"]["arena_wait_seconds"] = [0.0, 0.0, 0.02, 0.0]  # of the 0.03 that moves took
    peers = {**own, "best": str(theirs), "micro_batch": theirs, "tokens_per_second": {"mean": 80.0}}
    peers |= {"seconds": [1.0, 1.0, 1.75], "counted": {"num_alloc_retries": [3, 0, 0, 2]}}
    found = {"native": {"attempts": [{"fits": False}], "best": None}, "expandable": peers, "stalloc": own}
    return {"program": program, "longest": longest, "allocators": found}


def test_the_table_has_a_row_for_each_program_and_says_what_bound_it() -> None:
    from worth_table import table

    rows = [measured("lora"), measured("long", longest=True), {"program": "trainer", "error": "no transformers"}]
    lines = table(rows).splitlines()
    assert len(lines) == 5
    assert "no attempt fits" in lines[2]
    rows[0]["allocators"]["native"]["attempts"] = []
    assert "| not tried |" in table(rows), "there was no time left for it"
    assert "| 1.250 (1.000 to 1.750) | +1.0 %, -1.0 % |" in lines[2], "the step with retries is in it"
    assert "gave memory back 2 times in 3 steps" in lines[2]
    assert "2.0 % of stalloc's steps went" in lines[2], "the first step does not count"
    assert "by the prediction +0.0 %" in lines[2]
    rows[0]["allocators"]["stalloc"]["counted"] = {}
    assert "of stalloc's steps" not in table(rows[:1]), "a run that ended before it was counted"
    rows[0]["allocators"]["stalloc"]["tokens"] = [150.0] * 3
    assert "by the prediction +50.0 %" in table(rows), "steps as long, with more tokens in each"
    assert "| 1.333 (length) |" in lines[3]
    assert "256 tokens more" in lines[3]
    assert "no transformers" in lines[4]


def test_the_figure_is_of_all_rows_and_the_last_file_counts(tmp_path: Path) -> None:
    import figure
    from worth_table import PROGRAMS

    (tmp_path / "one.json").write_text(json.dumps({"rows": [measured("lora"), measured("trainer")]}))
    (tmp_path / "two.json").write_text(json.dumps({"rows": [measured("lora", 9), {"program": "long", "error": "x"}]}))
    rows = figure.rows_of([tmp_path / "one.json", tmp_path / "two.json"], ["trainer"])
    assert [row["program"] for row in rows] == list(PROGRAMS)
    lora = rows[1]
    assert lora["allocators"]["stalloc"]["best"] == "9", "the last file counts"
    assert [row.get("error") for row in rows if row is not lora] == ["not measured"] * 7


def test_megatron_s_row_is_the_fastest_that_trained() -> None:
    from worth_table import megatron_row, table

    def ran(mode: str, layers: int, trained: bool, speed: float) -> dict[str, object]:
        figures = {"tokens_per_second": speed, "held_bytes": [1 << 30, 2 << 30]}
        return {"mode": mode, "recomputed_layers_of_a_chunk": layers, "trained": trained, **figures}

    runs: list[dict[str, object]] = [
        ran("alloc", 0, True, 10.0),
        ran("expandable", 0, False, 0.0),
        ran("expandable", 1, True, 8.0),
    ]
    told = {"live_bytes": [5, 1010], "step_seconds": 0.99}
    runs[0] |= {"live_bytes": [10, 1000], "predicted": told, "step_ms": 1000.0}
    row = megatron_row({"workload": "pp2-vpp4", "runs": runs})
    assert row["allocators"]["native"]["best"] is None
    assert row["allocators"]["stalloc"]["best"] == "nothing recomputed"
    assert row["allocators"]["expandable"]["best"] == "1 layers of a chunk recomputed"
    assert "| 1.250 | +1.0 %, -1.0 % |" in table([row])


def test_ranks_are_traced_and_count_what_each_step_took(build: Path, tmp_path: Path) -> None:
    """FSDP2 on two processes with gloo."""
    from launch import Launcher, outcome_of

    chosen = SimpleNamespace(size="toy", device="cpu", card=1 << 30, time_limit=100.0)
    environment = {**os.environ, "STALLOC_LIB_PATH": str(build), "PYTHONPATH": str(PACKAGE)}
    environment |= {"STALLOC_MODE": "Trace", "STALLOC_MODEL_INFO_PATH": str(tmp_path / "run")}
    words = ["--micro-batch", "2", "--steps", "2"]
    code, results, said = Launcher(chosen, tmp_path).run("fsdp2-packed", words, environment)  # type: ignore[arg-type]
    assert code == 0, said
    assert [rank["rank"] for rank in results] == [0, 1]
    assert sorted(path.name for path in (tmp_path / "run" / "trace").glob("*.trace")) == [
        "rank00000.trace",
        "rank00001.trace",
    ]
    assert [len(rank["counted"]["requests"]) for rank in results] == [2, 2]
    assert min(results[0]["counted"]["requests"]) > 0
    figures = outcome_of(results, 2).figures
    assert figures is not None
    assert [len(figures["seconds"]), len(figures["first_seconds"])] == [1, 1]


def test_what_takes_too_long_is_ended_and_what_has_no_memory_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import launch

    program = tmp_path / "train.py"
    monkeypatch.setattr(launch, "__file__", str(tmp_path / "launch.py"))
    chosen = SimpleNamespace(size="toy", device="cpu", card=1 << 30, time_limit=5.0)
    launcher = launch.Launcher(chosen, tmp_path)  # type: ignore[arg-type]
    program.write_text('print(\'RESULT {"out_of_memory": "none left", "rank": 0}\')\nraise SystemExit(1)\n')
    assert launcher.run("lora", [], {})[0] == launch.EXIT_OUT_OF_MEMORY
    program.write_text("import time\ntime.sleep(60)\n")
    assert launcher.run("lora", [], {})[0] == 124


def test_traces_that_are_there_are_not_made_again(tmp_path: Path) -> None:
    from traces import Traces

    ran: list[list[str]] = []

    def run(words: list[str], mode: dict[str, str]) -> tuple[int, list[dict[str, object]], str]:
        ran.append(words)
        trace = Path(mode["STALLOC_MODEL_INFO_PATH"]) / "trace" / "rank00000.trace"
        trace.parent.mkdir(parents=True)
        trace.touch()
        trace.with_suffix(".tokens.json").write_text(json.dumps({"most": [len(ran) * 100]}))
        return 0, [{"outside_bytes": len(ran), "seconds": [1.0], "tokens": [8]}], ""

    first = Traces("lora", tmp_path, run)
    assert (first.outside, first.traced_run().ratio) == (2, 2.0)
    again = Traces("lora", tmp_path, run)
    assert again.measured == first.measured
    assert len(ran) == 2
    (tmp_path / "beside.json").write_text(json.dumps({**first.measured[1], "words": ["other"]}))
    with pytest.raises(FileExistsError):
        Traces("lora", tmp_path, run)


def test_a_row_that_fails_stops_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import worth
    from known import Known

    class MadeUp:
        def __init__(self, chosen: object, program: str, directory: Path, known: Known, launcher: object) -> None:
            self.program = program

        def measure(self) -> dict[str, object]:
            if self.program == "trainer":
                raise RuntimeError("no transformers")
            return {"program": self.program, "longest": False, "allocators": {}}

    monkeypatch.setattr(worth, "Row", MadeUp)
    known = Known(tmp_path / "worth.json", {})
    chosen = SimpleNamespace(programs=["lora", "trainer", "long"])
    assert worth.make_rows(chosen, known, tmp_path)  # type: ignore[arg-type]
    assert [row.get("error") for row in known.rows()] == [None, "no transformers", None]


def test_a_row_has_the_steps_of_all_runs_of_its_best() -> None:
    from known import Configuration
    from row import summary

    document = {"predicted": {"peak_live_bytes": 9, "held_bytes": {}, "step_seconds": 1.0, "step_at_least": False}}
    best = Configuration(2, (), (), json.dumps({**document, "bound": ""}))
    runs = [
        Outcome(True, 4.0, 10, {"seconds": [second], "tokens": [8.0], "counted": {"arena_times_moved": [5, moves]}})
        for second, moves in ((1.0, 2), (3.0, 1))
    ]
    attempt = Attempt(10, best, runs[0])
    row = summary("stalloc", [attempt], attempt, runs)
    assert (row["seconds"], row["tokens"], row["step_seconds"]) == ([1.0, 3.0], [8.0, 8.0], 2.0)
    assert row["tokens_per_second"]["mean"] == 4.0
    assert row["counted"] == {"arena_times_moved": [2, 1]}, "not of the steps before those that count"
    assert summary("stalloc", [attempt], None, [])["best"] is None


def test_by_hand_a_micro_batch_is_halved_or_doubled() -> None:
    from by_hand import BUDGET, NATIVE, search_by_hand

    def sizes(contender: str, program: str, most: int) -> list[tuple[int, tuple[str, ...]]]:
        found = search_by_hand(contender, program, "real", lambda one: Outcome(one.micro_batch <= most, 1.0))
        return [(each.configuration.micro_batch, each.configuration.by_hand[-1:]) for each in found]

    everything = ("--recompute-all",)
    assert sizes(NATIVE, "lora", 2) == [(4, everything), (2, everything)], "rows of a step, until it runs"
    assert sizes(NATIVE, "lora", 0) == [(4, everything), (2, everything), (1, everything)], "nothing is less than a row"
    assert sizes(NATIVE, "experts", 100) == [(24, everything), (48, everything), (96, everything), (192, everything)]
    assert sizes(BUDGET, "lora", 4) == [(4, ("0.5",))]
    assert sizes(BUDGET, "lora", 2) == [(4, ("0.5",)), (4, ("0.0",)), (2, ("0.0",))]
    assert sizes(BUDGET, "rollout", 40) == [(32, ("0.5",)), (64, ("0.5",))]
    assert search_by_hand(NATIVE, "lora", "real", lambda one: None) == [], "there is no time left"


def test_the_table_of_what_is_done_by_hand_is_over_the_faster_one_of_ours() -> None:
    from worth_table import hand_table

    row = measured("lora")
    assert hand_table([row]) == "", "nobody did it by hand"
    ours, peers = row["allocators"]["stalloc"], row["allocators"]["expandable"]
    ours["predicted"] |= {"step_bound": "device", "host_share": 0.03}
    faster = {**ours, "best": "4, 2 offloaded", "offloaded": ["a", "b"], "tokens_per_second": {"mean": 120.0}}
    row["allocators"] |= {"stalloc-offload": faster, "budget": {"attempts": [], "best": None}}
    row["allocators"]["hand-expandable"] = {**peers, "tokens_per_second": {"mean": 60.0}, "predicted": None}
    (line,) = hand_table([row]).splitlines()[2:]
    assert "| not tried | 100: 4, 1.0 GiB | 120: 4, 2 offloaded, 1.0 GiB |  | 2.000 | 1.500 |" in line
    assert "the device (the host 3 % of the step)" in line
    assert "micro-batches of 3 by hand, 4 chosen; 0 parts recomputed, 2 offloaded" in line


def test_what_was_chosen_is_applied_before_there_is_an_optimizer(tmp_path: Path) -> None:
    chosen = {"recompute": ["blocks.0"], "offload": ["blocks.1"], "offload_state": True}
    (tmp_path / "fit.json").write_text(json.dumps({"version": 1, "chosen": chosen}))
    words = ["lora", "--size", "toy", "--micro-batch", "2", "--steps", "3", "--device", "cpu"]
    done = run_with_torch(str(WORTH / "train.py"), *words, "--fit", str(tmp_path / "fit.json")).good()
    assert len(json.loads(done.out.splitlines()[-1].removeprefix("RESULT "))["seconds"]) == 3


def test_all_layers_are_recomputed_by_hand() -> None:
    words = ["lora", "--size", "toy", "--micro-batch", "2", "--steps", "2", "--device", "cpu"]
    done = run_with_torch(str(WORTH / "train.py"), *words, "--recompute-all").good()
    assert len(json.loads(done.out.splitlines()[-1].removeprefix("RESULT "))["seconds"]) == 2


def toy_row(build: Path, directory: Path, program: str, *words: str) -> tuple[dict[str, Any], str]:
    """The row that worth.py makes of a toy program on the CPU, and what it prints."""
    result = directory / "worth.json"
    toy = ["--size", "toy", "--device", "cpu", "--attempts", "1", "--json", str(result)]
    environment = {"STALLOC_LIB_PATH": str(build)}
    done = run_python(str(WORTH / "worth.py"), program, *toy, *words, environment=environment).good()
    (row,) = json.loads(result.read_text())["rows"]
    return row, done.out


@pytest.mark.slow
def test_a_program_that_captures_nothing_has_no_row_with_graphs(build: Path, tmp_path: Path) -> None:
    """As on a CPU: both of its traces are of the same way."""
    contenders = ["stalloc", "stalloc-graphs"]
    row, out = toy_row(build, tmp_path, "captured", "--card", "80M", "--steps", "4", "--allocators", *contenders)
    assert row["allocators"]["stalloc"]["best"]
    assert row["allocators"]["stalloc-graphs"] == {"attempts": [], "best": None}
    assert "neither has a captured graph" in out


def test_a_choice_with_graphs_is_another_configuration(tmp_path: Path) -> None:
    from attempts import Attempts
    from known import Configuration, Known

    eager, graphs = (Configuration(4, (), (), "{}", graphs=captured) for captured in (False, True))
    assert eager.key() != graphs.key()
    assert graphs.worded() == "4, graphs"
    ran: list[list[str]] = []

    def run(program: str, words: list[str], mode: dict[str, str]) -> tuple[int, list[dict[str, Any]], str]:
        ran.append(words)
        return 3, [], ""

    chosen = SimpleNamespace(row_seconds=100, until=1e12, steps=4, device="cpu")
    attempts = Attempts(chosen, "captured", tmp_path, Known(None, {}), SimpleNamespace(run=run))  # type: ignore[arg-type]
    for each in (eager, graphs):
        outcome = attempts.in_time(each, "stalloc-graphs")
        assert outcome is not None
        assert not outcome.fits
    assert ["--graphs" in words for words in ran] == [False, True]


@pytest.mark.slow
def test_a_toy_row_is_made_by_hand_on_a_cpu(build: Path, tmp_path: Path) -> None:
    contenders = ["hand-native", "hand-expandable", "budget", "stalloc", "stalloc-offload"]
    words = ["--card", "80M", "--steps", "4", "--budget-s", "500", "--allocators", *contenders]
    row, out = toy_row(build, tmp_path, "lora", *words)
    found = row["allocators"]
    assert {name: one["micro_batch"] for name, one in found.items() if name != "stalloc-offload"} | {"stalloc": 4} == {
        **dict.fromkeys(contenders[:4], 4)
    }, "all rows of a step run"
    assert found["budget"]["best"] == "4, activation budget 0.5"
    assert "| over by hand |" in out


@pytest.mark.slow
def test_a_toy_row_is_made_on_a_cpu(build: Path, tmp_path: Path) -> None:
    row, _ = toy_row(build, tmp_path, "rollout", "--card", "8M", "--rounds", "1")
    assert all(found["best"] for found in row["allocators"].values())
    ours = row["allocators"]["stalloc"]
    assert len(ours["seconds"]) == 16, "two runs of eight steps that count"
    assert {len(counts) for counts in ours["counted"].values()} == {16}
    assert ours["predicted"]["live_bytes"] == pytest.approx(ours["live_bytes"], 0.1), "lengths vary"


def test_rows_of_a_step_are_the_same_whatever_the_micro_batch() -> None:
    from rows import ROWS

    for rows in (ROWS["lora"]["real"], ROWS["fsdp2-packed"]["real"]):
        for number in range(4):
            flat = [length for each in rows.micro_batches(number, 3) for length in each]
            assert flat == rows.step(number) == [length for each in rows.micro_batches(number, 2) for length in each]
            assert all(rows.least <= length <= rows.most for length in flat)
        for number in (0, 1):  # without the optimizer's state, and with it
            assert rows.step(number)[0] == rows.step(number)[-1] == rows.most
        assert rows.step(0) == rows.step(1) != rows.step(2), "the largest micro-batch finds the optimizer's state"
        once, half = rows.alike(3, 4, 1.0), rows.alike(3, 4, 0.5)
        assert [len(each) for each in once] == [4, 4]
        assert all(abs(2 * b[0] - a[0]) <= 1 for a, b in zip(once, half))
    assert len(ROWS["experts"]["real"].step(1, 7)) == 4 * 7


def test_what_was_found_is_not_made_again(tmp_path: Path) -> None:
    from known import Configuration, Known

    conditions = {"card_bytes": 1000}
    known = Known(tmp_path / "worth.json", conditions)
    fits, fails, broke = (Configuration(size, ("blocks.0",), (), "{}") for size in (1, 2, 3))
    known.add("lora", "native", fits, Outcome(True, 10.0, 900, {"tokens": [1.0]}))
    known.add("lora", "native", fails, Outcome(False, figures={"exit_code": 3}))
    known.add("lora", "native", broke, Outcome(False, figures={"exit_code": -9}))
    known.add_row({"program": "experts", "error": "no memory"})
    known.add_row({"program": "experts", "allocators": {}})
    again = Known(tmp_path / "worth.json", conditions)
    assert again.get("lora", "native", fits) == Outcome(True, 10.0, 900)
    assert again.get("lora", "native", fails) == Outcome(False)
    assert again.get("lora", "native", broke) is None, "what was killed is tried again"
    assert again.get("lora", "stalloc", fits) is None
    assert again.row("experts") == {"program": "experts", "allocators": {}}
    assert len(again.rows()) == 1
    with pytest.raises(SystemExit, match="was made under"):
        Known(tmp_path / "worth.json", {"card_bytes": 2000})


@pytest.mark.slow
def test_parts_of_layers_on_fake_tensors_have_the_peak_that_was_predicted(build: Path, tmp_path: Path) -> None:
    parts = ["blocks.*.attention", "blocks.*.feed_forward.experts.*"]
    words = ["experts", "--size", "toy", "--micro-batch", "96", "--assume", "nonzero=1/4", "--directory", str(tmp_path)]
    result = tmp_path / "peaks.json"
    run_python(
        *(str(WORTH / "peaks.py"), *words, "--recompute", *parts, "--json", str(result)),
        environment={"STALLOC_LIB_PATH": str(build), "STALLOC_DEVICE": ""},
    ).good()
    found = json.loads(result.read_text())
    assert found["modules"] == 10
    assert found["predicted_live_bytes"] == pytest.approx(found["live_bytes"], 0.02)
    assert found["predicted_live_bytes"] >= found["live_bytes"] * 0.999
