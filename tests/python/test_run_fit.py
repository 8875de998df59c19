"""`stalloc run --fit`: one command tries the program, chooses, trains under the choice, and keeps it."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import socket
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Callable

import pytest

from processes import HERE, PACKAGE, SCRIPTS, Finished, Training, run_with_torch
from schemas import expect_document
from stalloc.core import fit_files
from stalloc.tools.fitted.kept import cards

pytest.importorskip("torch")
pytestmark = pytest.mark.timeout(600)

SIZE = "24M"  # blocks.0 has to be recomputed for it
TRACES, TAKES, ANEW = "traces the program's first", "takes the choice of an earlier start", "a new one is made"


@dataclasses.dataclass
class Program:
    """A copy of scripts/fit_itself.py, whose choices are kept in one directory."""

    training: Training
    launch: Callable[..., Finished] = run_with_torch

    def __post_init__(self) -> None:
        for name in ("fit_itself.py", "fit_itself_blocks.py"):
            (self.directory / name).write_text((SCRIPTS / name).read_text())

    @property
    def directory(self) -> Path:
        return self.training.directory

    def start(self, *options: str, words: tuple[str, ...] = (), **variables: str) -> Finished:
        """Under `stalloc run` with these options; without any, in plain torch."""
        environment = self.training.environment(None, **variables)
        environment["PYTHONPATH"] = f"{PACKAGE}:{HERE / 'fake_trainer'}"
        script = str(self.directory / "fit_itself.py")
        command = ["-m", "stalloc", "run", *options, script] if options else [script]
        return self.launch(*command, *words, environment=environment, cwd=self.directory)

    def fit(self, size: str = SIZE, words: tuple[str, ...] = (), **variables: str) -> Finished:
        return self.start("--fit", size, words=words, **variables)

    def choices(self) -> list[Path]:
        return sorted((self.training.info / "fit").glob("*.json"))

    def choice(self) -> dict[str, Any]:
        (file,) = self.choices()
        document: dict[str, Any] = json.loads(file.read_text())
        expect_document("fit", document)
        return document


def losses(done: Finished) -> list[float]:
    found: list[float] = json.loads(done.good().out.splitlines()[-1])
    return found


def held(done: Finished) -> float:
    """MiB at the peak."""
    found = re.search(r"held (\S+) MiB for", done.good().err)
    assert found is not None, done.err
    return float(found[1])


@pytest.fixture
def program(training: Training) -> Program:
    return Program(training)


def test_what_does_not_fit_trains_and_the_next_start_knows_how(program: Program) -> None:
    """The limit is of the trial, too: where the program cannot run, its trace is of fake tensors."""
    plain = losses(program.start())
    limited = {"STALLOC_MEMORY_LIMIT": SIZE}
    assert "can't allocate memory" in program.start("--auto", **limited).err
    first = program.fit(**limited)
    assert losses(first) == plain
    assert TRACES in first.err
    assert "with fake tensors" in first.err
    assert "recompute blocks.*: 0" in first.err
    second = program.fit(**limited)
    assert losses(second) == plain
    assert TAKES in second.err
    assert TRACES not in second.err
    assert "1 modules are changed as chosen" in second.err
    model = program.directory / "fit_itself_blocks.py"
    model.write_text(model.read_text().replace(".relu()", ".sigmoid()"))
    changed = program.fit(**limited)
    assert f"{model} has changed; {ANEW}" in changed.err
    assert TRACES in changed.err
    assert losses(changed) != plain


def test_the_trial_ends_with_its_iterations_and_nothing_behind_the_loop_runs(program: Program) -> None:
    note = program.directory / "note"
    done = program.fit(words=("2048", "40"), NOTE=str(note))
    assert len(losses(done)) == 40
    assert note.read_text() == "ended\n", "the trial's loop has not come to its end"
    assert re.search(r"predicted: 2\d\.\d\d MiB live at the peak, 2\d\.\d\d MiB held; .*\d\.\d{3} s a step", done.err)
    assert "to undo, leave --fit out" in done.err
    document = program.choice()
    came = re.search(r"held \S+ MiB for (\S+) MiB live", done.err)
    assert came is not None
    assert float(came[1]) == pytest.approx(document["predicted"]["peak_live_bytes"] / 2**20, 0.02)
    assert document[fit_files.AUTOMATIC]["models"][0]["recompute"] == document["chosen"]["recompute"] == ["blocks.0"]


def test_a_program_shorter_than_a_trial_ends_by_itself(program: Program) -> None:
    """Its model is gone when it ends."""
    plain = losses(program.start(words=("2048", "5")))
    done = program.fit(words=("2048", "5"))
    assert losses(done) == plain
    assert "recompute blocks.*: 0" in done.err


def test_a_trainer_gets_smaller_micro_batches_of_the_same_step(program: Program) -> None:
    plain = losses(program.start(WAY="trainer"))
    done = program.fit("12M", WAY="trainer", STALLOC_MEMORY_LIMIT="16M")
    assert losses(done) == pytest.approx(plain, rel=0.05), "dropout draws other numbers"
    batch = program.choice()[fit_files.AUTOMATIC]["batch"]
    assert batch["micro_batch"] < 2048
    assert batch["micro_batch"] * batch["accumulation"] == 2048
    said = f"trainer: micro-batches of {batch['micro_batch']}, {batch['accumulation']} a step, as chosen"
    assert said in done.err
    assert said in program.fit("12M", WAY="trainer").err


def test_a_choice_of_another_model_is_an_error_and_goes(program: Program) -> None:
    program.fit().good()
    (file,) = program.choices()
    wrong = program.fit(WIDTH="48")
    assert wrong.code == 1
    assert f"{file}: expected Net with 199048 parameters, found Net with 112424 parameters" in wrong.err
    assert not file.exists()
    document = program.fit(WIDTH="48")
    assert TRACES in document.err


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("version", 7, "found 7"),
        pytest.param("chosen", None, "expected a choice of stalloc run --fit", marks=pytest.mark.slow),
    ],
)
def test_a_kept_choice_that_is_none_is_made_anew(program: Program, name: str, value: Any, said: str) -> None:
    program.fit().good()
    (file,) = program.choices()
    file.write_text(json.dumps({**program.choice(), name: value}))
    done = program.fit()
    assert said in done.err
    assert ANEW in done.err
    assert program.choice()["version"] == 1


@pytest.mark.slow
def test_another_size_is_another_choice(program: Program) -> None:
    program.fit().good()
    done = program.fit("20M").good()
    assert TRACES in done.err
    assert len(program.choices()) == 2


@pytest.mark.parametrize("place", ["directory", pytest.param("cache", marks=pytest.mark.slow)])
def test_a_plan_serves_starts_with_its_choice_alone(program: Program, place: str) -> None:
    """And is kept for the next one. A plan that is larger than the size would take more memory at once."""
    variables = {"STALLOC_AUTO_WAIT": "1", "XDG_CACHE_HOME": str(program.directory / "cache")}
    if place == "cache":
        variables["STALLOC_MODEL_INFO_PATH"] = ""
    first = {size: program.fit(size, **variables).good() for size in ("24M", "16M")}
    plain = program.start("--auto", **variables).good()
    for done in (*first.values(), plain):
        assert "is served from its plan" in done.err
        assert "of an earlier start" not in done.err.replace("choice of an earlier start", "")
    for size, before in first.items():
        again = program.fit(size, **variables)
        assert losses(again) == losses(before)
        assert "is served from the plan of an earlier start of this run" in again.err
        assert held(again) <= float(size[:-1])
    assert "is served from the plan of an earlier start" in program.start("--auto", **variables).good().err


def most_held(done: Finished) -> float:
    """MiB, of all iterations: those before the plan, and those in which its memory comes."""
    return max(float(each) for each in re.findall(r"peak held (\S+) MiB", done.good().err))


def test_the_first_start_holds_no_more_than_the_size(program: Program) -> None:
    """Memory for the plan comes while the run still has that of its iterations before."""
    variables = {"STALLOC_AUTO_WAIT": "1", "STALLOC_LOG_STEPS": "1"}
    words = ("4096", "12")
    first = program.fit("44M", words, **variables)
    assert losses(first) == losses(program.start(words=words))
    assert "is served from its plan" in first.err
    assert most_held(first) <= 44
    again = program.fit("44M", words, **variables)
    assert "is served from the plan of an earlier start" in again.err
    assert most_held(again) <= 44


def test_a_start_says_where_it_has_held_more_before_its_plan(program: Program) -> None:
    """Nothing can go back: what is more are parts of chunks."""
    done = program.fit("16M", STALLOC_AUTO_WAIT="1").good()
    more = re.search(r"has held (\S+) MiB before its plan, more than the 16.00 MiB of --fit; later starts", done.err)
    assert more is not None, done.err
    assert 16 < float(more[1]) < 18
    assert held(program.fit("16M")) <= 16


def test_where_nothing_fits_what_is_nearest_is_said(program: Program) -> None:
    done = program.fit("8M")
    assert done.code == 1
    assert re.search(
        r"nothing that is known here fits 8.00 MiB: at least 1\d\.\d\d MiB are live, 1\d\.\d\d MiB held", done.err
    )
    rows = re.search(r"set the program's micro-batch to (\d+) rows, (\d+) of them a step", done.err)
    assert rows is not None
    assert int(rows[1]) * int(rows[2]) == 2048
    assert not program.choices()
    assert "nothing that is known here fits 2.00 MiB" in program.fit("2M").err


def test_a_program_without_iterations_is_an_error(program: Program) -> None:
    done = program.fit(words=("2048", "0"))
    assert done.code == 1
    assert "no iteration was seen" in done.err
    failed = program.fit(words=("many",))
    assert failed.code == 1
    assert failed.err.endswith("ValueError: invalid literal for int() with base 10: 'many'\n"), "nothing of stalloc's"


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("--fit", "80X", "train.py"), 2, "expected a size as 80G or 40960M: '80X'"),
        (("--fit", "train.py"), 1, "--fit needs a size there, as --fit 24M"),
        (("--fit=1G", "missing.py"), 2, "no such script: 'missing.py'"),
        (("--fit", "1G", "--mode", "Trace", "train.py"), 2, "--fit is for --mode Auto, which it implies: Trace"),
        (("--fit", "1G", "--fake", "train.py"), 2, "--fit trains, and --fake does not"),
        (("--fit", "1G", "-m", "torch.distributed.run", "train.py"), 2, "--fit is for each of them"),
    ],
)
def test_bad_input_is_refused(training: Training, words: tuple[str, ...], code: int, said: str) -> None:
    (training.directory / "train.py").write_text("raise SystemExit('it ran')")
    done = run_with_torch(
        "-m", "stalloc", "run", *words, environment=training.environment(None), cwd=training.directory
    )
    assert (done.code, "it ran" in done.err) == (code, False), done.err
    assert said in done.err


def launched(program: Program, way: str, *options: str) -> Finished:
    """Two processes of torchrun on one machine."""
    script = [*options, str(program.directory / "fit_itself.py")]
    command = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    if options:
        command += ["--no-python", sys.executable, "-m", "stalloc", "run"]
    variables = program.training.environment(None, WAY=way)
    return run_with_torch(*command, *script, environment=variables, cwd=program.directory)


@pytest.mark.parametrize("way", ["fsdp", pytest.param("ddp", marks=pytest.mark.slow)])
def test_all_processes_of_a_launcher_take_one_choice(program: Program, way: str) -> None:
    """A sharded block stands for the model that holds it, which is changed before."""
    plain = losses(launched(program, way))
    done = launched(program, way, "--fit", "20M")
    assert losses(done) == plain
    assert TRACES in done.err
    assert program.choice()[fit_files.AUTOMATIC]["made_for"]["processes"] == 2
    again = launched(program, way, "--fit", "20M")
    assert losses(again) == plain
    assert TAKES in again.err
    assert TRACES not in again.err


def on_two_machines(program: Program, *options: str) -> list[Finished]:
    """Two processes, each of a machine of its own, as torchrun starts them there."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])

    def run(rank: int) -> Finished:
        variables = {"RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
        return program.start(*options, WAY="ddp", MASTER_ADDR="127.0.0.1", MASTER_PORT=port, **variables)

    with ThreadPoolExecutor(2) as machines:
        return list(machines.map(run, range(2)))


def test_processes_on_two_machines_take_one_choice(program: Program) -> None:
    plain = on_two_machines(program)
    done = on_two_machines(program, "--fit", "20M")
    assert [each.good().out for each in done] == [each.good().out for each in plain]
    assert TRACES in done[0].err
    (file,) = program.choices()
    chosen = file.stat().st_mtime_ns
    again = on_two_machines(program, "--fit", "20M")
    assert [each.good().out for each in again] == [each.good().out for each in plain]
    assert file.stat().st_mtime_ns == chosen
    assert TRACES not in again[0].err + again[1].err


def test_a_job_on_several_machines_names_where_it_meets(program: Program) -> None:
    done = program.fit(RANK="0", WORLD_SIZE="4", LOCAL_WORLD_SIZE="2")
    assert done.code == 1
    assert (
        "expected MASTER_ADDR for a job on several machines (WORLD_SIZE=4, LOCAL_WORLD_SIZE=2), found none" in done.err
    )


@pytest.mark.parametrize("name", ["SLURM_STEP_NUM_TASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE"])
def test_processes_that_do_not_know_each_other_are_refused(program: Program, name: str) -> None:
    """Each would try the program for itself, in the way of the others."""
    done = program.fit(**{name: "2"})
    assert done.code == 1
    assert f"expected RANK, WORLD_SIZE and LOCAL_WORLD_SIZE for each of 2 processes ({name})" in done.err
    assert TRACES not in done.err


def test_looking_at_the_card_is_no_run(build: Path, tmp_path: Path) -> None:
    variables = {"STALLOC_MODE": "Auto", "STALLOC_LIB_PATH": str(build), "XDG_CACHE_HOME": str(tmp_path)}
    environ = {**os.environ, **variables, "PYTHONPATH": str(PACKAGE), "STALLOC_DEVICE": "cpu"}
    assert isinstance(cards(environ), list)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_the_user_s_cache_keeps_choices_where_no_directory_is_named(program: Program) -> None:
    cache = program.directory / "cache"
    variables = {"XDG_CACHE_HOME": str(cache), "STALLOC_MODEL_INFO_PATH": ""}
    assert TRACES in program.fit(**variables).good().err
    assert TAKES in program.fit(**variables).good().err
    assert [path.suffix for path in (cache / "stalloc" / "fits").iterdir()] == [".json"], os.listdir(cache)
