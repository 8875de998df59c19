"""Real training on the CPU through Trace, plan and Alloc: the same losses to the last bit, served from the plan."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import pytest

from processes import PACKAGE, SCRIPTS, Training, write_dist_info
from stalloc import _interface

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


@pytest.mark.parametrize("marks", ["none", "iteration"])
def test_fewer_marks_or_none_serve_as_well(training: Training, plain: dict[str, Any], marks: str) -> None:
    training.run("Trace", "--iterations", "4", "--marks", marks)
    training.plan()
    result = training.run("Alloc", "--iterations", "20", "--marks", marks)
    expect_same_training(result, plain)
    assert steady_hit_rate(result["figures"][-1]) >= 0.999


def test_recomputation_trains_the_same(training: Training) -> None:
    expected = training.run(None, "--iterations", "20", "--recompute")
    traced = training.run("Trace", "--iterations", "4", "--recompute")
    assert traced["losses"] == expected["losses"][:4]
    training.plan()
    result = training.run("Alloc", "--iterations", "20", "--recompute")
    expect_same_training(result, expected)
    assert steady_hit_rate(result["figures"][-1]) >= 0.999


def test_the_fast_trace_gives_as_good_a_plan(training: Training, plain: dict[str, Any]) -> None:
    training.run("Trace", "--iterations", "4", STALLOC_TRACE_FAST_MODE="1")
    training.plan()
    result = training.run("Alloc", "--iterations", "20")
    expect_same_training(result, plain)
    assert steady_hit_rate(result["figures"][-1]) >= 0.999


def test_importing_stalloc_first_is_as_good_as_stalloc_run(training: Training, plain: dict[str, Any]) -> None:
    script = training.directory / "first.py"
    script.write_text(
        f"import stalloc\nimport runpy\nassert stalloc.installed()\nrunpy.run_path({TRAIN!r}, run_name='__main__')\n"
    )
    output = training.directory / "out.json"
    for mode, iterations in (("Trace", 4), ("Alloc", 20)):
        done = training.start_plain(mode, str(script), "--iterations", str(iterations), "--json", str(output))
        assert done.code == 0, done.err
        if mode == "Trace":
            training.plan()
    result = json.loads(output.read_text())
    expect_same_training(result, plain)
    assert steady_hit_rate(result["figures"][-1]) >= 0.999


def test_the_entry_point_alone_serves_a_script_that_knows_nothing(training: Training, plain: dict[str, Any]) -> None:
    path = f"{PACKAGE}:{write_dist_info(training.directory / 'site')}"
    output = training.directory / "out.json"
    for mode, iterations in (("Trace", 4), ("Alloc", 20)):
        arguments = (TRAIN, "--no-api", "--iterations", str(iterations), "--json", str(output))
        done = training.start_plain(mode, *arguments, PYTHONPATH=path)
        assert (done.code, done.err) == (0, "")
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


@pytest.mark.parametrize(
    "change",
    [
        ["--extra-from", "3"],
        ["--rows-from", "3", "7"],
        ["--rows", "5"],
        ["--eval-at", "2", "4"],
        ["--eval-at", "2", "4", "--no-fence"],
    ],
)
def test_a_diverging_run_trains_the_same(planned: Training, tmp_path: Path, change: list[str]) -> None:
    expected = Training(planned.build, tmp_path).run(None, "--iterations", "9", *change)
    result = planned.run("Alloc", "--iterations", "9", *change)
    expect_same_training(result, expected)


def test_one_extra_tensor_a_step_costs_no_more_than_itself(planned: Training) -> None:
    result = planned.run("Alloc", "--iterations", "12", "--extra-from", "3")
    before, after = (result["figures"][i]["devices"][0]["steady"] for i in (6, 12))
    missed = (after["requests"] - before["requests"]) - (after["hits"] - before["hits"])
    assert missed <= 2 * 6  # the tensor and the result of its comparison


@pytest.mark.parametrize("fence", [["--fence"], ["--no-fence"]])
def test_the_iteration_after_an_evaluation_is_served_again(planned: Training, fence: list[str]) -> None:
    result = planned.run("Alloc", "--iterations", "8", "--eval-at", "3", *fence)
    assert hit_rate_of_iteration(result, 5) >= 0.999
    assert hit_rate_of_iteration(result, 7) >= 0.999


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


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_data_loader_workers_leave_trace_and_plan_alone(training: Training, plain: dict[str, Any], method: str) -> None:
    traced = training.run("Trace", "--iterations", "4", "--workers", method)
    assert traced["stderr"] == ""
    assert traced["losses"] == plain["losses"][:4]
    assert [path.name for path in (training.info / "trace").iterdir()] == ["rank00000.trace"]
    training.plan()
    result = training.run("Alloc", "--iterations", "20", "--workers", method)
    assert result["stderr"] == ""
    expect_same_training(result, plain)
    assert steady_hit_rate(result["figures"][-1]) >= 0.99


def test_workers_of_a_launcher_write_one_trace_each(training: Training) -> None:
    """torchrun itself, under whose two workers the entry point installs."""
    path = f"{PACKAGE}:{write_dist_info(training.directory / 'site')}"
    launcher = ("-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", "29611", TRAIN)
    done = training.start_plain("Trace", *launcher, "--no-api", "--iterations", "3", PYTHONPATH=path)
    assert done.code == 0, done.err
    assert sorted(path.name for path in (training.info / "trace").iterdir()) == ["rank00000.trace", "rank00001.trace"]
    training.plan()
    plans = sorted(path.name for path in (training.info / "output" / "plan").iterdir())
    assert plans == ["rank00000.plan", "rank00001.plan"]


@pytest.mark.parametrize(("end", "code"), [("exit3", 3), ("raise", 1)])
@pytest.mark.parametrize("mode", ["Trace", "Alloc"])
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
