"""Small training runs and the C++ tests under compute-sanitizer, the benches under torch's CUDA sanitizer: clean.

A finding is ours if torch's own allocators do not have it. Each checker has to find a planted fault first.
"""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Callable

import checkers
import pytest
from adapter_process import PROGRAMS as TORCH_PROGRAMS
from adapter_process import ROOT, Adapter
from checkers import Findings
from gpu_process import MODES, PROGRAMS

pytestmark = pytest.mark.gpu

DETERMINISTIC = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
TRAININGS = {
    "side_stream": (PROGRAMS, "side_stream_training.py", "6", "--varying"),
    "transformer": (TORCH_PROGRAMS, "train.py", "transformer", "--device", "cuda", "--steps", "5"),
}
ALLOCATORS: dict[str, dict[str, Any]] = {
    "native": {"mode": None},
    "expandable": {"mode": None, "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"},
    "alloc": MODES["alloc"],
}
SMALL = "--layers 3 --hidden 512 --heads 8 --ffn 1408 --vocab 4000 --sequence 512"
BENCHES = {"toy": "", "toy-bf16": "", "toy-recompute": "", "toy-moe": "", "toy-varlen": "", "dense-1b": SMALL}
DATA_DEPENDENT = ("toy-moe", "toy-varlen")
# These take nearly all of the device, or a quarter of it for each checker. The tests beside them need some, too.
GREEDY = "-*MostOfTheDevice*:*AFullDevice*:*ManyChunks*"
CPP_TESTS = ("cuda_driver_test", "cuda_events_test", "cuda_arena_test", "cuda_stream_reuse_test")

Property = Callable[[str, Any], None]


@dataclasses.dataclass(frozen=True)
class Checker:
    """A tool of compute-sanitizer."""

    sanitizer: str
    tool: str
    directory: Path

    def under(self, name: str) -> list[str]:
        return checkers.command(self.sanitizer, self.tool, self.directory / f"{name}.log")

    def findings(self, name: str) -> Findings:
        return checkers.findings(self.tool, self.directory / f"{name}.log")


@pytest.fixture(params=checkers.TOOLS)
def checker(request: pytest.FixtureRequest, library: Path, tmp_path: Path) -> Checker:
    found = checkers.compute_sanitizer()
    if found is None:
        pytest.skip(f"no compute-sanitizer to run {library.name} under")
    return Checker(found, request.param, tmp_path)


def test_the_tool_finds_a_planted_fault_in_our_memory(adapter: Adapter, checker: Checker) -> None:
    adapter.run("planted_faults.py", checker.tool, under=checker.under("fault"), **MODES["exact"])
    found = checker.findings("fault")
    assert found.count > 0
    assert found.kinds, "findings must be told apart"


@pytest.mark.parametrize("name", TRAININGS)
def test_training_is_clean(adapter: Adapter, checker: Checker, name: str, record_property: Property) -> None:
    adapter.programs, program, *arguments = TRAININGS[name]
    traced = adapter.run(program, *arguments, "--install", **MODES["fast"], **DETERMINISTIC).result
    adapter.plan()

    def run(allocator: str) -> Any:
        install = ["--install"] if allocator == "alloc" else []
        settings = ALLOCATORS[allocator] | DETERMINISTIC
        return adapter.run(program, *arguments, *install, under=checker.under(allocator), **settings).result

    with ThreadPoolExecutor(len(ALLOCATORS)) as pool:
        results = dict(zip(ALLOCATORS, pool.map(run, ALLOCATORS)))
    found = {allocator: checker.findings(allocator) for allocator in ALLOCATORS}
    for allocator in ALLOCATORS:
        record_property(f"{allocator}_findings", found[allocator].count)
        assert results[allocator]["losses"] == traced["losses"], allocator
    stats = results["alloc"]["stats"]
    for figure in ("requests", "planned_hits", "upstream", "stream_waits"):
        record_property(figure, stats[figure])
    assert stats["planned_hits"] > 0
    if found["alloc"].count > 0:
        assert found["alloc"].kinds, "findings that nobody can tell from the baseline's"
        assert found["alloc"].kinds <= found["native"].kinds | found["expandable"].kinds


@pytest.mark.parametrize("test", CPP_TESTS)
def test_the_engines_own_tests_are_clean(library: Path, checker: Checker, test: str, record_property: Property) -> None:
    """What they assert is not asked here: the tool changes the timing that controls without a fence depend on."""
    binary = library.parent / "tests" / test
    if not binary.exists():
        pytest.skip(f"not built: {binary}")
    output = checker.directory / "tests.json"
    command = [*checker.under(test), str(binary), f"--gtest_filter={GREEDY}", f"--gtest_output=json:{output}"]
    subprocess.run(command, capture_output=True, timeout=300, check=False)
    report = json.loads(output.read_text())
    found = checker.findings(test)
    record_property("findings", found.count)
    record_property("tests", report["tests"])
    record_property("failures", report["failures"])
    assert report["tests"] > 0
    assert found.count == 0, found.kinds


def test_torchs_sanitizer_finds_a_planted_fault_in_our_memory(adapter: Adapter) -> None:
    finished = adapter.run("planted_faults.py", "csan", **MODES["exact"], TORCH_CUDA_SANITIZER="1")
    assert "CSAN detected a possible data race" in finished.out + finished.err


@pytest.mark.parametrize("preset", BENCHES)
def test_benches_are_clean_under_torchs_sanitizer(
    library: Path, tmp_path: Path, preset: str, record_property: Property
) -> None:
    """bench/run.py says itself which allocator's run failed, should one."""
    command = [sys.executable, str(ROOT / "bench" / "run.py"), "--device", "cuda", "--check"]
    command += ["--modes", "native", "trace-fast", "alloc"]
    command += ["--min-hits", "0" if preset in DATA_DEPENDENT else "99.9"]
    command += ["--directory", str(tmp_path), "--json", str(tmp_path / "results.json")]
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("STALLOC_", "PYTHON"))}
    environment |= {"TORCH_CUDA_SANITIZER": "1", "STALLOC_LIB_PATH": str(library.parent), "OMP_NUM_THREADS": "2"}
    environment["PYTHONPATH"] = str(ROOT / "patches")
    options = ["--deterministic", "--device", "cuda", *BENCHES[preset].split()]
    done = subprocess.run(
        [*command, "--", str(ROOT / "bench" / "train_gpt.py"), "--preset", preset, "--iterations", "8", *options],
        env=environment | DETERMINISTIC,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert "CSAN detected" not in done.stdout + done.stderr, done.stdout + done.stderr
    assert done.returncode == 0, done.stdout + done.stderr
    summary = json.loads((tmp_path / "results.json").read_text())["runs"]["alloc"][0]["summary"]
    for figure in ("requests", "planned_hits", "upstream"):
        record_property(figure, summary[figure])
