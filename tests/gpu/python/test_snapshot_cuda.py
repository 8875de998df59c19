"""PyTorch's own history of a training run, imported: nothing is lost, and stalloc's trace of the run says the same.

STALLOC_KEEP_SNAPSHOT=DIR keeps the history there (toy_history.pickle.xz, and what PyTorch counted in toy_history.json),
as data for tests/python/test_snapshot_import.py.
"""

from __future__ import annotations

import dataclasses
import json
import lzma
import os
from pathlib import Path
from typing import Any

import pytest

from lifetimes import count_events, lifetimes, most_requested
from processes import run, run_python
from stalloc import cli

pytestmark = pytest.mark.gpu

TRAIN = Path(__file__).resolve().parents[3] / "bench" / "train_gpt.py"
ITERATIONS, MICRO_BATCHES = 4, 2
SIZES = [
    "--preset=toy",
    "--layers=2",
    "--deterministic",
    f"--accumulation={MICRO_BATCHES}",
    f"--iterations={ITERATIONS}",
]


@dataclasses.dataclass(frozen=True)
class Recorded:
    """A training run whose history PyTorch has kept."""

    history: Path
    told: dict[str, Any]  # by train_gpt.py, of PyTorch's statistics

    @property
    def most_requested(self) -> int:
        return max(peak["live"] for peak in self.told["iteration_peaks"])


def train(directory: Path, library: Path, *launcher: str, marks: str = "full", **variables: str) -> Recorded:
    files = {"--memory-history": directory / "toy_history.pickle", "--json": directory / "toy_history.json"}
    options = [*SIZES, f"--marks={marks}", *(f"{option}={file}" for option, file in files.items())]
    environment = {"STALLOC_LIB_PATH": str(library.parent), "TORCH_DEVICE_BACKEND_AUTOLOAD": "0", **variables}
    done = run_python(*launcher, str(TRAIN), *options, environment=environment, cwd=directory)
    assert done.code == 0, f"{done.out}\n{done.err}"
    return Recorded(files["--memory-history"], json.loads(files["--json"].read_text()))


def imported(history: Path, directory: Path, capsys: pytest.CaptureFixture[str]) -> tuple[dict[str, Any], Path]:
    capsys.readouterr()
    assert cli.main(["import", str(history), "--output", str(directory), "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found, Path(found["trace"])


@pytest.fixture(scope="module")
def native(library: Path, tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """Without stalloc."""
    recorded = train(tmp_path_factory.mktemp("native"), library, marks="none")
    keep = os.environ.get("STALLOC_KEEP_SNAPSHOT")
    if keep:
        Path(keep).mkdir(parents=True, exist_ok=True)
        packed = lzma.compress(recorded.history.read_bytes(), preset=9 | lzma.PRESET_EXTREME)
        (Path(keep) / "toy_history.pickle.xz").write_bytes(packed)
        kept = {"memory": recorded.told["memory"], "most_requested": recorded.most_requested}
        kept |= {"iterations": ITERATIONS, "micro_batches": MICRO_BATCHES, "torch": recorded.told["torch"]}
        (Path(keep) / "toy_history.json").write_text(json.dumps(kept, indent=1) + "\n")
    return recorded


@pytest.fixture(autouse=True)
def _planner(library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STALLOC_LIB_PATH", str(library.parent))


def test_nothing_of_a_history_is_lost(native: Recorded, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found, trace = imported(native.history, tmp_path / "run", capsys)
    assert (found["allocations"], found["earlier_blocks"]) == (native.told["memory"]["allocations"], 0)
    assert most_requested(lifetimes(trace)) == native.most_requested
    assert found["source"].startswith('annotations "Optimizer.step#"'), "which the profiler's hook leaves in a history"
    # The first iteration makes the optimizer's state, and may count as set-up for that.
    assert found["iterations"] in (ITERATIONS - 1, ITERATIONS)


def test_a_history_can_be_planned(native: Recorded, library: Path, tmp_path: Path, capsys: Any) -> None:
    iterations = imported(native.history, tmp_path, capsys)[0]["iterations"]
    planned = run([str(library.with_name("stalloc-planner")), "plan", str(tmp_path), "--json"])
    assert planned.code == 0, planned.err
    report = json.loads(planned.out)["ranks"][0]["report"]
    device = report["devices"][0]
    assert device["traced_held_peak_bytes"] == native.told["memory"]["held_peak"]
    assert device["plan"]["arena_bytes"] >= device["plan"]["lower_bound_bytes"] > 0
    # Iterations end with the optimizer's step here, so that what comes before the first such end is set-up.
    whole = report["marks"]["optimizers"]
    assert whole in (iterations - 1, iterations)
    assert report["marks"]["microbatches"] == 2 * whole * MICRO_BATCHES, "from Python stacks"


def test_pytorch_and_stalloc_record_the_same_run(library: Path, tmp_path: Path, capsys: Any) -> None:
    modes = {"STALLOC_MODE": "Trace", "STALLOC_TRACE_FAST_MODE": "1", "STALLOC_MODEL_INFO_PATH": str(tmp_path / "own")}
    recorded = train(tmp_path, library, "-m", "stalloc", "run", **modes)
    own = tmp_path / "own" / "trace" / "rank00000.trace"
    of_history = lifetimes(imported(recorded.history, tmp_path / "history", capsys)[1])
    # The history ends before the process does.
    assert lifetimes(own, count_events(of_history)) == of_history

    exported = tmp_path / "exported.pickle"
    assert cli.main(["export", str(own), "--format", "snapshot", "--output", str(exported)]) == 0
    assert lifetimes(imported(exported, tmp_path / "again", capsys)[1]) == lifetimes(own)
