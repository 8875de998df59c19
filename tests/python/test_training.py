"""Real training on the CPU through Trace, plan and Alloc: the same losses to the last bit, served from the plan."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import pytest

from processes import PACKAGE, SCRIPTS, Training, write_dist_info
from stalloc.core import interface as _interface

TRAIN = str(SCRIPTS / "train.py")


def steady_hit_rate(figures: dict[str, Any]) -> float:
    """Of the requests over 512 B from the second iteration on."""
    steady = figures["devices"][0]["steady"]
    assert steady["requests"] > 100
    return float(steady["hits"] / steady["requests"])


def hit_rate_of_iteration(result: dict[str, Any], number: int) -> float:
    before, after = (result["figures"][number + i]["devices"][0]["steady"] for i in (0, 1))
    return float((after["hits"] - before["hits"]) / (after["requests"] - before["requests"]))


def expect_same_training(result: dict[str, Any], plain: dict[str, Any]) -> None:
    for key in ("losses", "evaluations", "weights"):
        assert result[key] == plain[key], key


@pytest.fixture(scope="module")
def plain(build: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Twenty iterations under torch's own allocator."""
    result = Training(build, tmp_path_factory.mktemp("plain")).run(None, "--iterations", "20")
    assert result["mode"] is None
    assert len(set(result["losses"])) == 20
    return result


def test_a_plan_made_from_four_marked_iterations_serves_twenty(planned: Training, plain: dict[str, Any]) -> None:
    result = planned.run("Alloc", "--iterations", "20")
    expect_same_training(result, plain)
    figures = result["figures"][-1]
    assert figures["mode"] == "Alloc"
    assert figures["degraded"] is None
    assert steady_hit_rate(figures) >= 0.999
    summary = planned.summary()
    assert summary["planned_hits"] > 0
    assert summary["requests"] == summary["planned_hits"] + summary["dynamic_hits"] + summary["upstream"]
    assert summary["arena_bytes"] > 0
    assert 0 < summary["efficiency"] <= 1


@pytest.mark.slow  # a script that knows nothing has none, below
@pytest.mark.parametrize("marks", ["none", "iteration"])
def test_fewer_marks_or_none_serve_as_well(training: Training, plain: dict[str, Any], marks: str) -> None:
    training.run("Trace", "--iterations", "4", "--marks", marks)
    training.plan()
    result = training.run("Alloc", "--iterations", "20", "--marks", marks)
    expect_same_training(result, plain)
    assert steady_hit_rate(result["figures"][-1]) >= 0.999


@pytest.mark.slow  # bench/run.py, which is a step of the gate, asks for as much
def test_recomputation_trains_the_same(training: Training) -> None:
    expected = training.run(None, "--iterations", "20", "--recompute")
    traced = training.run("Trace", "--iterations", "4", "--recompute")
    assert traced["losses"] == expected["losses"][:4]
    training.plan()
    result = training.run("Alloc", "--iterations", "20", "--recompute")
    expect_same_training(result, expected)
    assert steady_hit_rate(result["figures"][-1]) >= 0.999


@pytest.mark.slow  # as above
def test_the_fast_trace_gives_as_good_a_plan(training: Training, plain: dict[str, Any]) -> None:
    training.run("Trace", "--iterations", "4", STALLOC_TRACE_FAST_MODE="1")
    training.plan()
    result = training.run("Alloc", "--iterations", "20")
    expect_same_training(result, plain)
    assert steady_hit_rate(result["figures"][-1]) >= 0.999


@pytest.mark.slow  # the entry point below imports it, too, and tests/python/test_install.py has every order
def test_importing_stalloc_first_is_as_good_as_stalloc_run(planned: Training, plain: dict[str, Any]) -> None:
    script = planned.directory / "first.py"
    script.write_text(
        f"import stalloc\nimport runpy\nassert stalloc.installed()\nrunpy.run_path({TRAIN!r}, run_name='__main__')\n"
    )
    output = planned.directory / "out.json"
    planned.start_plain("Alloc", str(script), "--iterations", "20", "--json", str(output)).good()
    result = json.loads(output.read_text())
    expect_same_training(result, plain)
    assert steady_hit_rate(result["figures"][-1]) >= 0.999


def test_the_entry_point_alone_serves_a_script_that_knows_nothing(training: Training, plain: dict[str, Any]) -> None:
    path = f"{PACKAGE}:{write_dist_info(training.directory / 'site')}"
    output = training.directory / "out.json"
    for mode, iterations in (("Trace", 4), ("Alloc", 20)):
        arguments = (TRAIN, "--no-api", "--iterations", str(iterations), "--json", str(output))
        done = training.start_plain(mode, *arguments, PYTHONPATH=path)
        assert (done.code, len(done.err.splitlines())) == (0, 1), done.err  # how it ended
        if mode == "Trace":
            training.plan()
    expect_same_training(json.loads(output.read_text()), plain)
    assert steady_hit_rate(training.summary()) >= 0.999


def test_mode_torch_prints_a_line_per_iteration_and_changes_nothing(training: Training, plain: dict[str, Any]) -> None:
    result = training.run("Torch", "--iterations", "20")
    expect_same_training(result, plain)
    assert result["mode"] == "Torch"
    lines = result["stderr"].splitlines()
    assert [line.split(":")[0] for line in lines] == [f"[stalloc] rank 0 iteration {i}" for i in range(20)]
    assert not training.info.exists()


# A run that is not the one that was traced ---------------------------------------------------------------------------


CHANGES = {
    "an extra tensor": ["--extra-from", "3"],
    "longer from an iteration on": ["--rows-from", "3", "7"],
    "longer throughout": ["--rows", "5"],
    "evaluations": ["--eval-at", "2", "4"],
    "evaluations without a fence": ["--eval-at", "2", "4", "--no-fence"],
}


@pytest.fixture(scope="module")
def plainly_changed(build: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """Those of CHANGES under torch's own allocator, in one process."""
    directory = tmp_path_factory.mktemp("changed")
    outputs = [directory / f"{number}.json" for number in range(len(CHANGES))]
    runs = [[*ITERATIONS, *change, "--json", str(path)] for change, path in zip(CHANGES.values(), outputs)]
    Training(build, directory).start_plain(None, str(SCRIPTS / "train_each.py"), *map(json.dumps, runs)).good()
    return {name: json.loads(path.read_text()) for name, path in zip(CHANGES, outputs)}


ITERATIONS = ("--iterations", "10")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name == "longer throughout" else ()) for name in CHANGES]
)
def test_a_diverging_run_trains_the_same(
    planned: Training, plainly_changed: dict[str, dict[str, Any]], name: str
) -> None:
    result = planned.run("Alloc", *ITERATIONS, *CHANGES[name])
    expect_same_training(result, plainly_changed[name])
    if name == "an extra tensor":  # costs no more than itself and the result of its comparison
        before, after = (result["figures"][i]["devices"][0]["steady"] for i in (5, 10))
        assert (after["requests"] - before["requests"]) - (after["hits"] - before["hits"]) <= 2 * 5
    if name.startswith("evaluations"):  # the iteration after next is served again
        assert hit_rate_of_iteration(result, 6) >= 0.999
        assert hit_rate_of_iteration(result, 8) >= 0.999


def claim_this_torch(library: Path, copy: Path) -> None:
    """A copy that says of itself that it was compiled for the torch that is here."""
    torch = importlib.import_module("torch")
    interface = _interface.fingerprint(Path(torch.__file__).parent / "include")
    other = library.read_bytes().replace(b"stalloc adapter for", b"no more adapter for")
    copy.write_bytes(other + f"stalloc adapter for torch {torch.__version__}, interface {interface}".encode())


def test_an_adapter_without_cuda_leaves_cuda_to_the_library_without_an_adapter(
    build: Path, fake_libraries: Path, tmp_path: Path
) -> None:
    """torch itself, an adapter that says it has no CUDA, and the real libstalloc.so. No GPU is touched."""
    claim_this_torch(fake_libraries / "libstalloc_torch.so", tmp_path / "libstalloc_torch.so")
    (tmp_path / "libstalloc.so").symlink_to(build / "libstalloc.so")
    training = Training(tmp_path, tmp_path)
    program = (
        "import stalloc, torch; stalloc.iteration(0); stalloc.flush()\n"
        "print(stalloc.stats()['mode'], stalloc.stats()['degraded'], torch.cuda.memory.get_allocator_backend())"
    )
    claim = {"FAKE_HAS_CUDA": "0", "STALLOC_DEVICE": "cuda"}
    done = training.start_plain("Trace", "-c", program, **claim)
    assert (done.code, done.out) == (0, "Trace None pluggable\n")
    assert "was built without CUDA; using libstalloc.so" in done.err
    assert (training.info / "trace" / "rank00000.trace").stat().st_size > 0


# Other processes -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["fork", pytest.param("spawn", marks=pytest.mark.slow)])
def test_data_loader_workers_leave_trace_and_plan_alone(training: Training, plain: dict[str, Any], method: str) -> None:
    traced = training.run("Trace", "--iterations", "4", "--workers", method)
    assert len(traced["stderr"].splitlines()) == 1  # how it ended
    assert traced["losses"] == plain["losses"][:4]
    assert [path.name for path in (training.info / "trace").iterdir()] == ["rank00000.trace"]
    training.plan()
    result = training.run("Alloc", "--iterations", "20", "--workers", method)
    assert len(result["stderr"].splitlines()) == 1
    expect_same_training(result, plain)
    assert steady_hit_rate(result["figures"][-1]) >= 0.99


def test_workers_of_a_launcher_write_one_trace_each(training: Training) -> None:
    """torchrun itself, under whose two workers the entry point installs."""
    path = f"{PACKAGE}:{write_dist_info(training.directory / 'site')}"
    launcher = ("-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", "29611", TRAIN)
    training.start_plain("Trace", *launcher, "--no-api", "--iterations", "3", PYTHONPATH=path).good()
    assert sorted(path.name for path in (training.info / "trace").iterdir()) == ["rank00000.trace", "rank00001.trace"]
    training.plan()
    plans = sorted(path.name for path in (training.info / "output" / "plan").iterdir())
    assert plans == ["rank00000.plan", "rank00001.plan"]


@pytest.mark.parametrize(
    ("mode", "end", "code"),
    [
        ("Trace", "exit3", 3),
        ("Alloc", "raise", 1),
        pytest.param("Trace", "raise", 1, marks=pytest.mark.slow),
        pytest.param("Alloc", "exit3", 3, marks=pytest.mark.slow),
    ],
)
def test_a_script_that_ends_badly_keeps_its_code_and_leaves_its_files(
    planned: Training, training: Training, mode: str, end: str, code: int
) -> None:
    run = planned if mode == "Alloc" else training
    done = run.try_run(mode, "--iterations", "3", "--end", end)
    assert done.code == code
    assert ("the script's own error" in done.err) is (end == "raise")
    assert run.summary()["requests"] > 0
    if mode == "Trace":
        training.plan()
