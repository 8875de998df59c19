"""Which plan a start finds: what it requests tells, not its command line. `stalloc runs`, also with --remove."""

from __future__ import annotations

import concurrent.futures
import json
import os
import re
import shutil
import time
from pathlib import Path

import pytest

from known_runs import FOUND, TRACED, Started, Starts
from processes import Finished, Training, run_python
from schemas import expect_document
from stalloc.core import run_cache, run_files
from stalloc.core.run_cache import Program
from stalloc.core.run_files import Start
from stalloc.core.run_signature import Signature
from stalloc.train.auto import run_choice


@pytest.fixture
def starts(training: Training) -> Starts:
    return Starts(training)


# What changes, and which plan is found -------------------------------------------------------------------------------


def test_the_table_of_changes_and_plans(starts: Starts, tmp_path: Path) -> None:
    """One line after the other: what the table in docs/quickstart.md says."""
    config, out = tmp_path / "config", tmp_path / "out"
    config.write_text("64")
    moved = tmp_path / "elsewhere" / "known_run.py"
    moved.parent.mkdir()
    shutil.copy(starts.program, moved)
    beside = tmp_path / "other_program.py"
    beside.write_text(starts.program.read_text().replace("range(6)", "range(9)"))
    source = starts.program.read_text()
    edited = source.replace("4 * WIDTH", "3 * WIDTH")

    def in_file(rows: int) -> Started:
        config.write_text(str(rows))
        return starts.start("--config", config)

    def with_source(text: str) -> Started:
        starts.program.write_text(text)
        return starts.start("--out", out)

    table = [
        ("the first start", lambda: starts.start("--out", out), TRACED, 1),
        ("nothing", lambda: starts.start("--out", out), FOUND, 1),
        ("steps", lambda: starts.start("--out", out, "--steps", 14), FOUND, 1),
        ("output folder", lambda: starts.start("--out", tmp_path / "another"), FOUND, 1),
        ("resumed", lambda: starts.start("--resume", out / "checkpoint.pt"), FOUND, 1),
        ("batch in the arguments", lambda: starts.start("--out", out, "--batch", 24), TRACED, 2),
        ("back to the old batch", lambda: starts.start("--out", out), FOUND, 2),
        ("and again to the other", lambda: starts.start("--batch", 24, "--steps", 11), FOUND, 2),
        ("batch in a file, the first start", lambda: in_file(96), TRACED, 3),
        ("batch in a file, another", lambda: in_file(160), TRACED, 4),
        ("batch in a file, the first again", lambda: in_file(96), FOUND, 4),
        ("batch in a file, the other again", lambda: in_file(160), FOUND, 4),
        ("batch in a file, that of arguments", lambda: in_file(24), FOUND, 4),
        ("model edited", lambda: with_source(edited), TRACED, 5),
        ("model edited, and back", lambda: with_source(source), FOUND, 5),
        ("model edited, again", lambda: with_source(edited), FOUND, 5),
        ("script of the same name in another folder", lambda: starts.start(program=moved), TRACED, 6),
        ("another program in the folder", lambda: starts.start(program=beside), TRACED, 7),
        ("the program beside it", lambda: with_source(source), FOUND, 7),
    ]
    came_to = []
    for changed, start, *_ in table:
        started = start()
        assert started.hit_rate >= 0.97, (changed, started.result, started.err)
        came_to.append((changed, started.came_to, len(run_cache.by_use(starts.kept))))
    print("\n".join(f"{changed:45} {how:8} {runs} runs" for changed, how, runs in came_to))
    assert came_to == [(changed, how, runs) for changed, _, how, runs in table]


def test_losses_are_the_same_whichever_plan_serves_first(starts: Starts, tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text("64")
    arguments = ("--config", config)
    starts.start(*arguments)
    config.write_text("200")
    plain = starts.plain(*arguments)
    for started in (starts.start(*arguments), starts.start(*arguments)):
        assert all(started.result[key] == plain[key] for key in ("losses", "weights"))
    config.write_text("64")
    plain = starts.plain(*arguments)
    back = starts.start(*arguments)
    assert back.came_to == FOUND
    assert "of an earlier start that requested the same, from iteration 1 on" in back.err
    assert all(back.result[key] == plain[key] for key in ("losses", "weights"))
    assert back.result["held"] <= back.result["live"] + (16 << 20), "in three arenas, each by the chunk of 2 MiB"


def test_lengths_that_vary_find_their_plan_with_other_data(starts: Starts) -> None:
    assert starts.start("--lengths", 1, "--steps", 30).came_to == TRACED
    assert starts.start("--lengths", 2, "--steps", 30).came_to == FOUND
    assert starts.start("--lengths", 1, "--steps", 30, "--batch", 640).came_to == TRACED


def test_a_directory_that_is_named_has_one_plan_which_another_run_replaces(starts: Starts, tmp_path: Path) -> None:
    named = {"STALLOC_MODEL_INFO_PATH": str(tmp_path / "named")}
    assert starts.start("--batch", 64, **named).came_to == TRACED
    assert starts.start("--batch", 64, "--steps", 12, **named).came_to == FOUND
    assert starts.start("--batch", 24, **named).came_to == TRACED
    assert starts.start("--batch", 24, **named).came_to == FOUND
    assert starts.start("--batch", 64, **named).came_to == TRACED
    assert starts.runs() == []


@pytest.mark.slow
def test_ranks_of_a_job_find_their_plans_each(starts: Starts) -> None:
    """Ranks but 0 say which plan they have at the level debug alone."""

    def job(*arguments: object) -> list[str]:
        places = [
            {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2", "STALLOC_LOG_LEVEL": "debug"}
            for rank in range(2)
        ]
        return [
            starts.start("--batch", 64 + 96 * rank, *arguments, **place).came_to for rank, place in enumerate(places)
        ]

    assert job() == [TRACED, TRACED]
    assert job("--steps", 12) == [FOUND, FOUND]


def test_starts_at_the_same_time_that_differ_by_the_environment_each_keep_a_plan(starts: Starts) -> None:
    """As in a sweep: which is which, no command line tells."""
    sweep = starts.program.read_text().replace("options.batch\n", 'int(os.environ["ROWS"])\n')
    starts.program.write_text(sweep.replace("import json\n", "import json\nimport os\n"))

    def all_at_once() -> list[str]:
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            return [one.came_to for one in pool.map(lambda rows: starts.start(ROWS=str(rows)), (32, 80, 144, 240))]

    assert all_at_once() == [TRACED] * 4
    assert len(starts.runs()) == 4
    assert all_at_once() == [FOUND] * 4
    assert len(starts.runs()) == 4


# Which run is guessed, and where a new one goes ----------------------------------------------------------------------


def program(*arguments: str, path: str = "/x/train.py", torch: str = "2.11.0", **environ: str) -> Program:
    return Program.of(environ, [path, *arguments], torch)


def test_a_program_is_its_file_the_number_of_ranks_and_torch() -> None:
    keys = {
        one.key
        for one in (
            program("--rows", "4"),
            program("--rows", "5"),
            program(path="/y/train.py"),
            program(torch="2.12.0"),
            program(WORLD_SIZE="2"),
            Program.of({}, ["-m", "--rows", "4"], "2.11.0", "a.train"),
            Program.of({}, ["-m", "--rows", "4"], "2.11.0", "b.train"),
        )
    }
    assert len(keys) == 6
    assert all(re.fullmatch(r"train-[0-9a-f]{8}", key) for key in keys)


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        ((), ""),
        (("--batch", "6", "--steps=12"), "batch-6-steps=12"),
        (("--out", "/scratch/user/a run/", "--data=/d/e.bin"), "out-a-run-data=e.bin"),
        (("--wandb-api-key", "abc", "x"), "wandb-api-key-x"),
        (("--token=abc", "--no-secret", "--rows", "4"), "token=-no-secret-rows-4"),
        (("../../..", "\udcff"), "..-"),
        (("x" * 300,), "x" * 40),
    ],
)
def test_a_run_is_named_by_its_arguments(arguments: tuple[str, ...], hint: str) -> None:
    assert run_cache.hint_of(arguments) == hint.strip("-.")
    assert "abc" not in " ".join(run_cache.without_secrets(arguments))


def known(cache: Path, one: Program, name: str, *, used: int = 0, rank: int = 0) -> Path:
    directory = cache / f"{one.key}{name}"
    plan = directory / "output" / "plan" / f"rank{rank:05d}.plan"
    plan.parent.mkdir(parents=True)
    plan.write_bytes(b"plan")
    run_cache.describe(directory, one, fits=True)
    os.utime(directory / "run.json", (1_000_000 + used, 1_000_000 + used))
    return directory


def begin(cache: Path, *arguments: str, rank: int = 0) -> run_choice.Choice:
    environ = {"XDG_CACHE_HOME": str(cache.parent.parent)}
    return run_choice.begin(environ, ["/x/train.py", *arguments], "2.11.0", rank)


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    directory = tmp_path / "stalloc" / "runs"
    directory.mkdir(parents=True)
    return directory


def test_the_run_with_the_nearest_arguments_is_guessed(cache: Path) -> None:
    six = known(cache, program("--batch", "6", "--steps", "10"), "-6", used=1)
    two = known(cache, program("--batch", "2", "--steps", "10"), "-2", used=2)
    for arguments, run, trust in (
        (("--batch", "6", "--steps", "10"), six, run_choice.CHECKED),
        (("--batch", "6", "--steps", "99"), six, run_choice.GUESSED),
        (("--steps", "99", "--batch", "2"), two, run_choice.GUESSED),
        (("--lr", "1"), two, run_choice.GUESSED),
    ):
        choice = begin(cache, *arguments)
        assert (choice.start.run, choice.trust) == (run, trust)
        choice.start.leave()
    known(cache, program("--batch", "6", "--steps", "10"), "-file", used=3)
    choice = begin(cache, "--batch", "6", "--steps", "10")
    assert choice.start.run == cache / f"{program().key}-file", "the one that was used last"
    assert choice.trust == run_choice.GUESSED, "another one had the same arguments"


def test_a_rank_is_not_sent_where_it_has_no_plan(cache: Path) -> None:
    known(cache, program("--batch", "6"), "-6", rank=1)
    choice = begin(cache, "--batch", "6", rank=0)
    assert choice.start.run.name == f"{program().key}-batch-6"
    assert not choice.open
    other = begin(cache, "--batch", "6", rank=1)
    assert other.start.run == cache / f"{program().key}-6"
    assert other.open


def test_what_the_cache_has_of_others_is_not_touched(cache: Path) -> None:
    (cache / f"{program().key}-batch-6" / "output" / "plan").mkdir(parents=True)
    foreign = cache / f"{program().key}-batch-6" / "output" / "plan" / "rank00000.plan"
    foreign.write_bytes(b"of whoever")
    known(cache, program(path="/y/train.py"), "")
    (cache / f"{program().key}-broken").mkdir()
    (cache / f"{program().key}-broken" / "run.json").write_text('{"key": 1}')
    choice = begin(cache, "--batch", "6")
    assert choice.start.run.name == f"{program().key}-batch-6-2"
    assert foreign.read_bytes() == b"of whoever"


def test_a_run_remembers_the_arguments_of_its_last_starts(cache: Path) -> None:
    run = known(cache, program("--steps", "0"), "")
    for steps in range(1, 40):
        run_cache.describe(run, program("--steps", str(steps)), fits=True)
    run_cache.describe(run, program("--steps", "30"), fits=True)
    run_cache.describe(run, program("--other"), fits=False)
    found = run_cache.read_run(run)
    assert found is not None
    steps_of = [int(arguments[1]) for arguments in found.arguments]
    assert steps_of[:3] == [30, 39, 38]
    assert len(steps_of) == len(set(steps_of)) == 16


def test_a_program_keeps_so_many_runs(cache: Path) -> None:
    for number in range(20):
        known(cache, program("--batch", str(number)), f"-{number}", used=number)
    held = Start.begin(cache / f"{program().key}-0")
    begin(cache, "--batch", "19")
    names = {run.directory.name for run in run_cache.runs_of(program(), cache)}
    assert names == {f"{program().key}-{number}" for number in (0, *range(4, 20))}, "what is in use stays"
    held.leave()


def test_a_signature_that_cannot_be_read_is_named_and_its_plan_is_not_trusted(
    cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = known(cache, program("--batch", "6"), "")
    broken = run / "output" / "plan" / "rank00000.signature.json"
    broken.write_text("{")
    choice = begin(cache, "--batch", "6")
    assert str(broken) in capsys.readouterr().err
    assert choice.look(signature(4), 2) == run_choice.Found(None)


def signature(rows: int) -> Signature:
    size = rows << 20
    phase = {"requests": 4, "bytes": 4 * size, "growth": size, "order": "0", "others": [0, 0], "sizes": [size, 4]}
    found = Signature.of_run({"set_up": phase, "iterations": [phase] * 6}, 6, "cpu")
    assert found is not None
    return found


def publish(choice: run_choice.Choice) -> None:
    """What the planner does."""
    target = choice.start.run / "output" / "plan"
    target.mkdir(parents=True, exist_ok=True)
    (target / "rank00000.plan").write_bytes(b"plan")
    (target / "rank00000.running.plan").write_bytes(b"plan")
    name = "rank00000.signature.json"
    os.replace(choice.start.folder / "output" / "plan" / name, target / name)
    choice.start.leave()


def test_traced_runs_do_not_take_each_others_places(cache: Path) -> None:
    at_once = [begin(cache, "--x") for _ in range(3)]
    assert len({choice.start.run for choice in at_once}) == 1
    for rows, choice in zip((4, 4, 8), at_once):
        choice.claim(signature(rows))
    assert [choice.start.run.name for choice in at_once] == [f"{program().key}-x"] * 2 + [f"{program().key}-x-2"]
    for choice in at_once:
        publish(choice)
    again = begin(cache, "--x")
    assert again.start.run.name == f"{program().key}-x-2"
    found = again.look(signature(4), 1)
    assert found is not None
    assert found.candidate is not None
    assert found.candidate.directory.name == f"{program().key}-x"
    back = again.look(signature(8), 2)
    assert back is not None
    assert back.candidate is not None
    assert back.candidate.directory == again.start.run, "the second iteration has told otherwise"
    third = begin(cache, "--x")
    assert third.look(signature(16), 2) == run_choice.Found(None)
    assert third.claim(signature(16))
    assert third.start.run.name == f"{program().key}-x-3"
    assert not begin(cache, "--y").claim(signature(8)), "it is in the run of the one before"


def test_a_start_moves_with_what_is_open(tmp_path: Path) -> None:
    start = Start.begin(tmp_path / "a")
    with (start.folder / "trace").open("w") as trace:
        assert not start.move_to(tmp_path / "b", lambda: False)
        assert start.run == tmp_path / "a"
        assert start.move_to(tmp_path / "b", lambda: True)
        trace.write("goes on")
    assert (tmp_path / "b" / "starts" / start.folder.name / "trace").read_text() == "goes on"
    assert run_files.in_use(tmp_path / "b")
    assert not run_files.in_use(tmp_path / "a")
    assert not (tmp_path / "a" / "starts").exists()
    assert not run_files.remove_run(tmp_path / "b")
    start.leave()
    assert run_files.remove_run(tmp_path / "b")


# stalloc runs, and its --remove --------------------------------------------------------------------------------------


def command(cache: Path, *words: str) -> Finished:
    return run_python("-m", "stalloc", *words, environment={"XDG_CACHE_HOME": str(cache.parent.parent)})


def test_runs_lists_programs_arguments_and_what_an_iteration_requests(cache: Path) -> None:
    assert command(cache, "runs").out == f"no runs in {cache}\n"
    run = known(cache, program("--batch", "6", "--api-key", "abc"), "-six", used=2)
    path = run / "output" / "plan" / "rank00000.signature.json"
    path.write_text(json.dumps(signature(4).written()))
    known(cache, program(path="/y/eval.py"), "", used=1)
    (cache / "train-2e3678b6a5899bdf").mkdir()
    os.utime(cache / "train-2e3678b6a5899bdf", (1_000_000, 1_000_000))
    held = Start.begin(run)
    lines = command(cache, "runs").out.splitlines()
    assert lines[0] == "/x/train.py"
    assert run.name in lines[1]
    assert "plan for 4 requests an iteration, which grows by 4.00 MiB" in lines[1]
    assert "in use" in lines[1]
    assert lines[2].strip() == "--batch 6 --api-key '***'"
    assert lines[3] == "/y/eval.py"
    assert lines[5].strip() == "no arguments"
    assert lines[6] == "of an earlier version"
    assert "no plan yet" in lines[7]
    told = json.loads(command(cache, "runs", "train.py", "--json").out)
    expect_document("runs", told)
    found = told["runs"]
    assert [one["name"] for one in found] == [run.name]
    assert found[0]["signatures"][0]["requested_bytes"] == 16 << 20
    assert found[0]["used"] == "1970-01-12T13:46:42+00:00"
    held.leave()


def test_clean_removes_what_is_named_or_old_and_nothing_in_use(cache: Path) -> None:
    new = known(cache, program("--a"), "-a", used=int(time.time()) - 1_000_000)
    old, older = (known(cache, program(name), name[1:], used=number) for number, name in enumerate(("--b", "--c")))
    held = Start.begin(old)
    left = cache / ".removed-train-1"
    left.mkdir()
    os.utime(left, (1, 1))
    assert command(cache, "runs", "--remove").code == 2
    wrong = command(cache, "runs", "--remove", "nothing")
    assert (wrong.code, "no run has the name 'nothing'" in wrong.err) == (1, True)
    assert command(cache, "runs", "--remove", "--older", "x").code == 2
    assert command(cache, "runs", "--all").code == 2
    assert command(cache, "runs", "--remove", "--all", "--json").code == 2
    dry = command(cache, "runs", "--remove", "--older", "30", "--dry-run")
    assert command(cache, "clean", "--older", "30", "--dry-run").out == dry.out
    assert f"would remove {older.name}" in dry.out
    assert older.is_dir()
    done = command(cache, "runs", "--remove", "--older", "30")
    assert done.code == 0
    assert f"removed {older.name}" in done.out
    assert f"{old.name}: in use, it stays" in done.err
    assert [new.is_dir(), old.is_dir(), older.is_dir(), left.exists()] == [True, True, False, False]
    assert command(cache, "runs", "--remove", old.name).code == 1
    held.leave()
    assert command(cache, "runs", "--remove", str(old)).code == 0
    assert command(cache, "runs", "--remove", "--all").code == 0
    assert run_cache.by_use(cache) == []
    assert command(cache, "runs", "--remove", "--all").out == "nothing to remove\n"
