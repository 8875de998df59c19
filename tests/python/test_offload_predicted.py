"""Where offloaded layers leave and come back is predicted as it comes: peaks of runs with them, and without."""

from __future__ import annotations

from pathlib import Path

import pytest

from processes import SCRIPTS, Training
from stalloc.tools.fitting.replayed import Change, Planner, TracedRun

torch = pytest.importorskip("torch")
pytest.importorskip("numpy")

from applied_models import write  # noqa: E402

SCRIPT = str(SCRIPTS / "offloaded_training.py")
WITHIN = 0.02
CHOICES = {"apart": [0, 3, 6], "first": [0, 1, 2, 3], "all": list(range(8)), "part": [1, 4]}


def traced(build: Path, directory: Path, *words: str) -> tuple[Path, str]:
    directory.mkdir()
    training = Training(build, directory)
    done = training.start_plain("Trace", "-m", "stalloc", "run", SCRIPT, "3", *words, STALLOC_TRACE_MODULES="1")
    return training.info / "trace" / "rank00000.trace", done.good().out


def path_of(choice: str, layer: int) -> str:
    return f"layers.{layer}{'.mlp' if choice == 'part' else ''}"


def test_peaks_with_offloaded_layers_are_those_that_were_predicted(
    build: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STALLOC_LIB_PATH", str(build))
    plain, loss = traced(build, tmp_path / "plain")
    predicted = {}
    with Planner(TracedRun(plain)) as planner:
        (device,) = planner.traced()["devices"]
        for name, layers in CHOICES.items():
            change = Change(offload=tuple(f"Network.{path_of(name, layer)}" for layer in layers))
            predicted[name] = planner.outcome(change, device["device"], plans=False).live
    came = {}
    for name, layers in CHOICES.items():
        choice = write(tmp_path / f"{name}.json", offload=[path_of(name, layer) for layer in layers])
        trace, its_loss = traced(build, tmp_path / name, str(choice))
        assert its_loss == loss, name
        with Planner(TracedRun(trace)) as planner:
            came[name] = planner.traced()["devices"][0]["peak"]
    assert all(peak < device["peak"] for peak in came.values()), (came, device["peak"])
    off = {name: came[name] / predicted[name] - 1 for name in CHOICES}
    assert not {name: share for name, share in off.items() if abs(share) > WITHIN}, (came, predicted, device["peak"])
