"""What `whatif` and `fit` say of micro-batches that were not traced, against what comes: real training on the CPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Callable

import pytest

from event_runs import answer, text
from processes import SCRIPTS, Training, view_of
from stalloc import cli
from stalloc.tools.report import findings

pytest.importorskip("torch")

WITHIN = 0.02
MIB = 1 << 20

Traced = Callable[[str, int], Path]


@pytest.fixture(autouse=True)
def _libraries(build: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STALLOC_LIB_PATH", str(build))


@pytest.fixture(scope="module")
def traced(build: Path, tmp_path_factory: pytest.TempPathFactory) -> Traced:
    """The trace of sized_batches.py with so many rows."""
    known: dict[tuple[str, int], Path] = {}

    def trace(kind: str, rows: int) -> Path:
        if (kind, rows) not in known:
            training = Training(build, tmp_path_factory.mktemp(f"{kind}{rows}-"))
            words = ("-m", "stalloc", "run", str(SCRIPTS / "sized_batches.py"), kind, str(rows))
            training.start_plain("Trace", *words).good()
            known[kind, rows] = training.info / "trace" / "rank00000.trace"
        return known[kind, rows]

    return trace


def peak_of(build: Path, trace: Path) -> int:
    peak: int = view_of(build, trace)["devices"][0]["peak"]["live_bytes"]
    return peak


def asked(capsys: Any, trace: Path, rows: int, *words: str) -> dict[str, Any]:
    device: dict[str, Any] = answer(capsys, "whatif", str(trace), f"--micro-batch={rows}", *words)["devices"][0]
    return device


def test_a_loss_over_pairs_is_seen_from_two_traces(build: Path, capsys: Any, traced: Traced) -> None:
    """The largest micro-batch that is said to fit, more than four times as large as any traced, fills the room."""
    one, other = traced("pairs", 128), traced("pairs", 192)
    device = asked(capsys, one, 128, "--memory=48M", "--beside", str(other), "192")
    assert device["certainty"]["peak"] == device["certainty"]["micro_batch"] == "estimate"
    assert device["certainty"]["note"] == ""
    assert device["fit"]["fitted_peak_bytes"] == pytest.approx(device["fit"]["other_peak_bytes"], 0.005)
    assert device["fit"]["square_bytes"] > 0.3 * device["peak_live_bytes"]
    native = device["allocators"][0]
    rows = native["largest_micro_batch"]
    assert rows > 4 * 192
    room = 48 * MIB * device["peak_live_bytes"] / native["held_bytes"]
    assert peak_of(build, traced("pairs", rows)) == pytest.approx(room, WITHIN)


def test_one_trace_says_what_it_assumes(build: Path, capsys: Any, traced: Traced) -> None:
    one = str(traced("pairs", 128))
    device = asked(capsys, Path(one), 128, "--memory=24M")
    assert device["certainty"]["off"] is None
    note = "activations grow in proportion to the micro-batch. What grows with its square (a loss over all pairs"
    assert note in device["certainty"]["note"]
    shown = " ".join(text(capsys, "whatif", one, "--memory=24M", "--micro-batch=128").split())
    assert note in shown
    assert "--beside DIR N" in shown


def test_a_fit_that_is_off_is_a_bound(build: Path, capsys: Any, traced: Traced) -> None:
    """Triples of rows: neither trace tells how they grow."""
    one, other = traced("triples", 24), traced("triples", 40)
    words = ("--memory=64M", "--beside", str(other), "40")
    device = asked(capsys, one, 24, *words)
    assert device["certainty"]["off"] < -0.05
    assert (device["certainty"]["peak"], device["certainty"]["micro_batch"]) == ("at least", "at most")
    assert peak_of(build, traced("triples", 48)) > device["peak_of_twice"]
    shown = text(capsys, "whatif", str(one), "--micro-batch=24", *words)
    assert "at least" in shown.splitlines()[0]
    assert "largest that fits, at most" in shown
    assert "bounds alone" in shown


def test_fit_takes_squares_for_what_they_are(build: Path, tmp_path: Path, capsys: Any, traced: Traced) -> None:
    one, other = str(traced("pairs", 128)), str(traced("pairs", 192))
    words = ["fit", one, "--memory=24M", "--micro-batch=128", "--longest", "--allocator=expandable"]
    assert cli.main([*words, "--beside", other, "192"]) == 0
    shown = capsys.readouterr().out
    document = answer(capsys, *words, "--beside", other, "192")
    assert document["certainty"]["peak"] == "estimate"
    rows = document["chosen"]["micro_batch"]
    assert f"chosen: micro-batches of {rows}," in shown
    assert peak_of(build, traced("pairs", rows)) == pytest.approx(document["predicted"]["peak_live_bytes"], WITHIN)
    assert cli.main(words) == 0
    assert "assumed, for there is one trace" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("kind", "traced_rows", "rows"), [("autocast", 128, 1024), ("apart", 128, 1024), ("layers", 256, 512)]
)
def test_casts_of_weights_do_not_grow(build: Path, traced: Traced, kind: str, traced_rows: int, rows: int) -> None:
    """One trace is enough: the casts of the weights and their gradients are as large with eight times the rows.

    With 128 rows what the layers make is as large as casts are.
    """
    view = view_of(build, traced(kind, traced_rows))
    promised = findings.peak_at_scale(view["devices"][0]["scaling"], rows / traced_rows)
    assert peak_of(build, traced(kind, rows)) == pytest.approx(promised, WITHIN)


def test_casts_of_weights_have_a_class(build: Path, traced: Traced) -> None:
    """Half of the weights' bytes, and as much for their gradients where a second micro-batch ends."""
    weights = 4 * 2 * 4 * 128 * 128 * 2
    view = view_of(build, traced("autocast", 32))
    by_class = view["rank"]["devices"][0]["peak"]["by_class"]
    assert weights <= by_class["casts of weights"] <= 3.2 * weights
    assert by_class["activations"] + by_class["temporaries"] < 0.2 * weights
    assert "casts of weights" in view["classes"]
    with_pairs = view_of(build, traced("pairs", 128))["rank"]["devices"][0]["peak"]["by_class"]
    assert with_pairs["casts of weights"] == 0
