"""`stalloc report` on synthetic traces: what the forms say, that they agree, and that a browser draws the page."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from exports import trace_of_text
from processes import Training
from stalloc import cli
from stalloc.core import coordinates
from stalloc.tools.report import comparison, figures
from synthetic_runs import RANKS, planned_pipeline

pytestmark = pytest.mark.usefixtures("real_libraries")


@pytest.fixture(scope="module")
def run_directory(tmp_path_factory: pytest.TempPathFactory, build: Path) -> Path:
    return planned_pipeline(tmp_path_factory.mktemp("run"), build)


def report(directory: Path, capsys: pytest.CaptureFixture[str], *options: str) -> str:
    assert cli.main(["report", str(directory), *options]) == 0
    return capsys.readouterr().out


def payload(directory: Path, capsys: pytest.CaptureFixture[str], *options: str) -> dict[str, Any]:
    result: dict[str, Any] = json.loads(report(directory, capsys, "--json", *options))
    return result


def test_numbers_agree(run_directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = payload(run_directory, capsys, "--all")
    assert [view["rank"]["rank"] for view in found["views"]] == list(range(RANKS))
    for view in found["views"]:
        drawn, analysed = view["devices"][0], view["rank"]["devices"][0]
        peak = analysed["peak"]["live_bytes"]
        assert drawn["peak"]["live_bytes"] == peak
        assert sum(map(int.__mul__, drawn["peak"]["bytes"], drawn["peak"]["count"])) == peak
        assert sum(analysed["peak"]["by_class"].values()) == peak
        for series in ("timeline", "peak_timeline"):
            assert max(map(sum, zip(*drawn[series]["by_class"]))) == peak
        assert max(drawn["phases"]["peak_live"]) == peak
        assert drawn["plan"]["arena_bytes"] >= peak


def test_the_peak_is_the_engine_s_to_the_byte(training: Training, capsys: pytest.CaptureFixture[str]) -> None:
    training.run("Trace", "--iterations", "3")
    counted = json.loads((training.info / "log_output" / "rank00000.summary.json").read_text())
    (view,) = payload(training.info, capsys)["views"]
    (device,) = view["devices"]
    assert device["peak"]["live_bytes"] == counted["peak_live_bytes"]
    assert view["rank"]["devices"][0]["peak"]["live_bytes"] == counted["peak_live_bytes"]
    assert max(map(sum, zip(*device["timeline"]["by_class"]))) == counted["peak_live_bytes"]


def test_a_trace_has_a_report_of_its_own(
    run_directory: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("plotly")
    trace = tmp_path / "mine.trace"
    shutil.copy(run_directory / "trace" / "rank00001.trace", trace)
    (view,) = payload(trace, capsys)["views"]
    assert view["rank"]["rank"] == 1
    assert report(trace, capsys).strip() == str(tmp_path / "mine.html")
    assert "<title>Memory of mine</title>" in (tmp_path / "mine.html").read_text()
    report(trace, capsys, "--per-rank")
    assert (tmp_path / "rank00001" / "memory.log").is_file()


def test_details_are_of_the_rank_with_the_highest_peak(run_directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = payload(run_directory, capsys)
    highest = max(found["ranks"], key=lambda row: row["peak_live_bytes"])
    assert [view["rank"]["rank"] for view in found["views"]] == [highest["rank"]]
    assert [view["rank"]["rank"] for view in payload(run_directory, capsys, "--rank", "1")["views"]] == [1]


def test_allocators_are_compared(run_directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    of_device = payload(run_directory, capsys)["views"][0]["figures"][0]
    held = {row["name"]: row["held_bytes"] for row in of_device["allocators"]}
    assert list(held) == ["PyTorch native", "expandable_segments", "stalloc, planned"]
    assert all(count >= of_device["peak_live_bytes"] for count in held.values())


def test_a_run_with_the_plan_is_measured(
    run_directory: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = tmp_path / "copy"
    shutil.copytree(run_directory, directory)
    (directory / "log_output").mkdir()
    device = payload(directory, capsys, "--rank", "0")["views"][0]["devices"][0]["device"]
    summary = {"mode": "Alloc", "devices": [{"device": device, "held_peak_bytes": 200, "peak_live_bytes": 150}]}
    (directory / "log_output" / "rank00000.summary.json").write_text(json.dumps(summary))
    rows = payload(directory, capsys, "--rank", "0")["views"][0]["figures"][0]["allocators"]
    assert rows[-1]["name"] == "stalloc, last run (Alloc)"
    assert (rows[-1]["held_bytes"], rows[-1]["efficiency"]) == (200, 0.75)


def test_a_heap_that_holds_less_than_is_live_is_no_allocator(
    build: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exact traces on a CPU: requests are not rounded up there."""
    (tmp_path / "trace").mkdir()

    def names(held: int) -> list[str]:
        events = f"stalloc-events 1\na 0 100 -1 0 0\nh -1 {held} 1\nm iteration begin - 0 0 2\n"
        trace_of_text(build, events, tmp_path / "trace" / "rank00000.trace")
        return [row["name"] for row in payload(tmp_path, capsys)["views"][0]["figures"][0]["allocators"]]

    assert names(100) == ["PyTorch native", "expandable_segments"]
    assert names(512) == ["PyTorch native", "expandable_segments", "as traced"]


def test_markdown_has_its_tables(run_directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = report(run_directory, capsys, "--md")
    assert "Imbalance of the peak: greatest / mean " in text
    for wanted in (
        "| rank |",
        "| class |",
        "| PyTorch native |",
        "### What is live at the peak",
        "### What costs most",
        "| set-up |",
    ):
        assert wanted in text
    for line in text.splitlines():
        assert not line.startswith("|") or line.endswith("|")


def test_each_rank_has_its_files(run_directory: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report(run_directory, capsys, "--per-rank", "--output", str(tmp_path))
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["rank00000", "rank00001"]
    view = json.loads((tmp_path / "rank00001" / "runtime_report.json").read_text())
    assert view["rank"]["rank"] == 1
    assert "Rank 1" in (tmp_path / "rank00001" / "runtime_report.md").read_text()
    log = (tmp_path / "rank00001" / "memory.log").read_text()
    states = re.findall(r"^total_memory: ([\d.]+) MB$", log, re.M)
    assert len(states) == len(view["devices"][0]["phases"]["name"])
    lines = re.findall(
        r"params_memory: ([\d.]+) MB, grads_memory: ([\d.]+) MB, os_params_memory: ([\d.]+) MB, "
        r"os_state_memory: ([\d.]+) MB, activation_memory: ([\d.]+) MB",
        log,
    )
    for total, parts in zip(states, lines):
        assert float(total) == pytest.approx(sum(map(float, parts)), abs=0.03)
    most = max(map(float, states)) * 2**20
    assert most <= view["rank"]["devices"][0]["peak"]["live_bytes"] + 2**20


def test_the_estimate_needs_megatron_s_arguments(run_directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    view = payload(run_directory, capsys)["views"][0]
    assert view["estimate"] is None
    words = (
        "--num-layers 2 --hidden-size 64 --num-attention-heads 4 --seq-length 64 --micro-batch-size 1 --vocab-size 99"
    )
    added = payload(run_directory, capsys, "--", *words.split())["views"][0]["estimate"]
    view["rank"]["fingerprint"]["command_line"] = ["pretrain.py", *words.split()]
    assert added == comparison.of_view(view)
    rows = {row["name"]: row for row in comparison.of_view(view) or []}
    assert rows["peak"]["measured"] == view["rank"]["devices"][0]["peak"]["live_bytes"]
    assert rows["peak"]["estimate"] > 0


def test_imbalance_is_of_the_mean() -> None:
    assert figures.imbalance([1, 3]) == {"greatest": 3, "least": 1, "mean": 2.0, "greatest_over_mean": 1.5}
    assert figures.imbalance([])["greatest_over_mean"] == 0


@pytest.mark.parametrize(
    ("options", "told"),
    [(["--rank", "7"], "rank 7 has no trace"), ([], "has no rank00000.trace")],
    ids=["rank", "empty"],
)
def test_what_is_missing_is_said(
    run_directory: Path, tmp_path: Path, options: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["report", str(run_directory if options else tmp_path), *options]) == 1
    assert told in capsys.readouterr().err


def test_a_broken_trace_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "trace").mkdir()
    (tmp_path / "trace" / "rank00000.trace").write_text("no trace")
    assert cli.main(["report", str(tmp_path), "--json"]) == 1
    assert "rank00000.trace" in capsys.readouterr().err


def test_state_is_shared_among_replicas_alone(
    run_directory: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = tmp_path / "trace" / "rank00000.trace"
    trace.parent.mkdir()
    shutil.copy(run_directory / "trace" / "rank00000.trace", trace)

    def shared() -> list[str]:
        rows = payload(tmp_path, capsys)["views"][0]["advice"][0]
        return [row["what"] for row in rows if "share" in row["what"]]

    def split(pipeline: int, data: int) -> None:
        sizes = (1, pipeline, 1, 1, data)
        coordinates.write(tmp_path, 0, coordinates.Coordinates(0, 0, 0, 0, 0, sizes))

    split(pipeline=2, data=1)
    assert shared() == []
    assert payload(tmp_path, capsys)["ranks"][0]["place"] == "pp 0"
    assert "| 0 (pp 0) |" in report(tmp_path, capsys, "--md")
    split(pipeline=1, data=4)
    assert any("among 4 ranks" in what for what in shared())
