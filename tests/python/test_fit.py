"""`stalloc fit` against what comes: a run is traced, fitted into less and into more memory, changed by `stalloc.apply`,
and traced again. Peaks of live bytes must be those that were predicted."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from processes import ROOT, SCRIPTS, Training, run_python, run_with_torch
from schemas import expect_document
from stalloc.tools.fitting import choose
from stalloc.tools.report import collect

pytest.importorskip("torch")

SCRIPT = str(SCRIPTS / "fitted_training.py")
UNSEEN = str(ROOT / "bench" / "unseen" / "train.py")
MARKED = 2
WITHIN = 0.02
CHUNK = 2 << 20  # bytes: what is held comes in such units
FAMILIES = {"decoder": 8, "encoder": 8, "convnet": 16, "gpt": 8, "llama": 8, "llama-alike": 8}


def made(directory: Path) -> Path:
    directory.mkdir()
    return directory


def trace(training: Training, *words: str, script: str = SCRIPT) -> Path:
    return traced(training, *words, script=script)[0]


def traced(training: Training, *words: str, script: str = SCRIPT) -> tuple[Path, str]:
    """The trace, and what the program printed."""
    done = training.start_plain("Trace", "-m", "stalloc", "run", script, *words, STALLOC_TRACE_MODULES="1")
    assert done.code == 0, done.err
    return training.info / "trace" / "rank00000.trace", done.out


def fit(build: Path, path: Path, *words: str, code: int = 0) -> dict[str, Any]:
    done = run_python("-m", "stalloc", "fit", str(path), "--json", *words, environment={"STALLOC_LIB_PATH": str(build)})
    assert done.code == code, done.err or done.out
    document: dict[str, Any] = json.loads(done.out)
    expect_document("fit", document)
    return document


def view_of(build: Path, path: Path) -> dict[str, Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STALLOC_LIB_PATH", str(build))
        return collect.view(collect.RankFiles(0, path, None, None))


@pytest.fixture(scope="module")
def decoder(build: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trace(Training(build, tmp_path_factory.mktemp("decoder")), "decoder", "8", "3")


def fit_all(build: Path, directory: Path, families: list[str]) -> dict[str, dict[str, Any]]:
    """Each family for less memory and for more, by name. `directory` gets what is to be trained: each.json."""
    documents: dict[str, dict[str, Any]] = {}
    entries = []
    for family in families:
        batch = FAMILIES[family]
        path = trace(Training(build, made(directory / family)), family, str(batch), "3")
        peak = view_of(build, path)["devices"][0]["peak"]["live_bytes"]
        wishes = {
            "less": [f"--memory={int(0.8 * peak)}", "--keep-micro-batch"],
            "less, accumulated": [f"--memory={int(0.8 * peak)}"],
            "more": [f"--memory={int(2.3 * peak)}"],
        }
        for name, words in wishes.items():
            file = directory / f"{len(entries)}.json"
            document = fit(build, path, "--micro-batch", str(batch), "--output", str(file), *words)
            documents[f"{family}: {name}"] = document
            numbers = {key: document["chosen"][key] for key in ("micro_batch", "accumulation")}
            entries.append({"family": family, "fit": str(file), **numbers})
    (directory / "each.json").write_text(json.dumps(entries))
    return documents


def check_choice(name: str, document: dict[str, Any]) -> None:
    """Less memory recomputes, or has smaller batches; more takes larger ones."""
    chosen, traced_with = document["chosen"], FAMILIES[name.partition(":")[0]]
    assert document["fits"], name
    if name.endswith("less"):
        assert chosen["recompute"], name
        assert chosen["micro_batch"] == traced_with, name
    elif name.endswith("more"):
        assert chosen["micro_batch"] > traced_with, name
        assert document["predicted"]["tokens_per_second"] > 1, name
    else:
        assert chosen["micro_batch"] * chosen["accumulation"] >= traced_with // 2, name


@pytest.mark.parametrize(
    "families",
    [["gpt", "decoder"], pytest.param(["encoder", "convnet"], marks=pytest.mark.slow), ["llama-alike"], ["llama"]],
    ids=" ".join,
)
def test_peaks_are_those_that_were_predicted(build: Path, tmp_path: Path, families: list[str]) -> None:
    if families == ["llama"]:
        pytest.importorskip("transformers")
    documents = fit_all(build, tmp_path, families)
    again = trace(Training(build, made(tmp_path / "again")), "--each", str(tmp_path / "each.json"))
    peaks = view_of(build, again)["devices"][0]["iterations"]["peak_live"][1:]  # the first is the set-up
    assert len(peaks) == (MARKED + 1) * len(documents)
    off = {}
    for i, (name, document) in enumerate(documents.items()):
        check_choice(name, document)
        came = max(peaks[(MARKED + 1) * i :][:MARKED])
        off[name] = came / document["predicted"]["peak_live_bytes"] - 1
        assert came <= document["memory_bytes"] * (1 + WITHIN), name
    assert not {name: share for name, share in off.items() if abs(share) > WITHIN}


@pytest.mark.parametrize(
    "name",
    ["vit", *(pytest.param(name, marks=pytest.mark.slow) for name in ("moe8-collapse-acc1", "var-bucket"))],
)
def test_what_varies_comes_as_it_was_predicted(build: Path, tmp_path: Path, name: str) -> None:
    """Programs of bench/unseen, whose data is drawn alike in both runs."""
    words = [name, "--iterations", "4"]
    first = trace(Training(build, made(tmp_path / "first")), *words, script=UNSEEN)
    peak = view_of(build, first)["devices"][0]["peak"]["live_bytes"]
    file = str(tmp_path / "fit.json")
    document = fit(build, first, f"--memory={int(0.85 * peak)}", "--keep-micro-batch", "--output", file)
    again = trace(Training(build, made(tmp_path / "again")), *words, "--fit", file, script=UNSEEN)
    came = view_of(build, again)["devices"][0]["peak"]["live_bytes"]
    assert document["chosen"]["recompute"]
    assert came == pytest.approx(document["predicted"]["peak_live_bytes"], WITHIN)


def test_the_plan_holds_what_was_predicted_and_the_step_takes_as_long(build: Path, tmp_path: Path) -> None:
    """Of layers whose time is their own: this machine's does not matter."""
    first = trace(Training(build, made(tmp_path / "first")), "sleeping", "4", "4")
    file = tmp_path / "fit.json"
    peak = view_of(build, first)["devices"][0]["peak"]["live_bytes"]
    memory = ["--memory", str(int(0.9 * peak)), "--micro-batch", "4", "--keep-micro-batch"]
    document = fit(build, first, *memory, "--output", str(file))
    entries = tmp_path / "each.json"
    entries.write_text(json.dumps([{"family": "sleeping", "micro_batch": 4, "fit": str(file), "iterations": 4}]))
    again, printed = traced(Training(build, made(tmp_path / "again")), "--each", str(entries))
    measured = fit(build, again, "--memory=1T", "--keep-micro-batch")
    assert len(document["chosen"]["recompute"]) in (1, 2, 3)
    assert measured["predicted"]["peak_live_bytes"] == pytest.approx(document["predicted"]["peak_live_bytes"], WITHIN)
    held = document["predicted"]["held_bytes"]["stalloc"]
    assert measured["predicted"]["held_bytes"]["stalloc"] == pytest.approx(held, WITHIN, CHUNK)
    assert float(printed) == pytest.approx(document["predicted"]["step_seconds"], 0.05)


def test_a_run_that_cannot_fit_says_what_binds_it(build: Path, decoder: Path) -> None:
    document = fit(build, decoder, "--memory=1M", code=1)
    assert not document["fits"]
    assert document["bound"]


@pytest.mark.parametrize("kind", ["torch", "megatron", "trainer", "lightning"])
def test_each_framework_has_its_settings(build: Path, decoder: Path, kind: str) -> None:
    peak = view_of(build, decoder)["devices"][0]["peak"]["live_bytes"]
    words = ["--micro-batch=8", "--keep-micro-batch", "--for", kind]
    set_by = fit(build, decoder, f"--memory={int(0.9 * peak)}", *words)["settings"]
    if kind == "trainer":
        assert set_by["arguments"]["per_device_train_batch_size"] == 8
        assert "stalloc.apply" in set_by["python"], "some layers, not all"
    elif kind == "megatron":
        assert set_by["arguments"][:2] == ["--micro-batch-size", "8"]
    elif kind == "lightning":
        assert set_by["dataloader"] == {"batch_size": 8}
    else:
        assert "stalloc.apply" in set_by["python"]


def test_rows_that_are_longer_than_those_traced_leave_room_for_fewer(
    build: Path, decoder: Path, tmp_path: Path
) -> None:
    peak = view_of(build, decoder)["devices"][0]["peak"]["live_bytes"]
    trace = made(tmp_path / "trace") / decoder.name
    shutil.copy(decoder, trace)
    words = [f"--memory={int(1.5 * peak)}", "--micro-batch=8", "--rows=64"]
    lengths = tmp_path / "lengths.txt"
    lengths.write_text("16\n" * 64)
    error = run_python(
        *("-m", "stalloc", "fit", str(trace), *words, "--lengths", str(lengths)),
        environment={"STALLOC_LIB_PATH": str(build)},
    ).err
    assert "stalloc.tokens(n)" in error, "the trace does not tell how many tokens its micro-batches had"
    trace.with_suffix(".tokens.json").write_text(json.dumps({"least": [128], "most": [128]}))
    alike = fit(build, trace, *words, "--lengths", str(lengths), "--keep-micro-batch")
    without = fit(build, trace, *words, "--keep-micro-batch")
    assert alike["predicted"]["peak_live_bytes"] == without["predicted"]["peak_live_bytes"]
    lengths.write_text("16\n" * 63 + "32\n")
    longer = fit(build, trace, *words, "--lengths", str(lengths), "--keep-micro-batch")
    assert longer["chosen"]["recompute"], "one row in the whole run is twice as long: a micro-batch may have it"
    assert longer["predicted"]["held_bytes"]["stalloc"] <= longer["memory_bytes"]
    lengths.write_text("none\n")
    wrong = run_python(
        *("-m", "stalloc", "fit", str(trace), *words, "--lengths", str(lengths)),
        environment={"STALLOC_LIB_PATH": str(build)},
    )
    assert wrong.code == 1
    assert "found 'none'" in wrong.err


def test_any_rank_s_trace_is_fitted(build: Path, tmp_path: Path) -> None:
    training = Training(build, tmp_path)
    ranks = {"RANK": "1", "WORLD_SIZE": "2", "STALLOC_TRACE_MODULES": "1"}
    done = training.start_plain("Trace", "-m", "stalloc", "run", SCRIPT, "decoder", "4", "2", **ranks)
    assert done.code == 0, done.err
    path = training.info / "trace" / "rank00001.trace"
    document = fit(build, path, "--memory=1G", "--micro-batch=4", "--keep-micro-batch")
    assert document["predicted"]["held_bytes"]["stalloc"] >= document["predicted"]["peak_live_bytes"] > 0


def test_errors_are_one_line(build: Path, tmp_path: Path) -> None:
    environment = {"STALLOC_LIB_PATH": str(build)}
    done = run_python("-m", "stalloc", "fit", str(tmp_path), "--memory", "1G", environment=environment)
    assert done.code == 1
    assert done.err.startswith("stalloc fit: ")
    assert done.err.count("\n") == 1


def test_a_run_that_took_no_memory_of_the_device_is_an_error(training: Training) -> None:
    script = training.directory / "elsewhere.py"
    script.write_text("import torch, stalloc\nfor _ in range(4):\n    stalloc.iteration()\n")
    run_with_torch(str(script), environment=training.environment("Trace"), cwd=training.directory).good()
    words = ["fit", str(training.info), "--memory", "1G", "--micro-batch", "4"]
    done = run_python("-m", "stalloc", *words, environment=training.environment(None))
    assert done.code == 1
    assert done.err == "stalloc fit: the traced run took no memory of the device: it has to train there\n"


def test_the_longest_is_larger_than_the_fastest_and_its_plan_fits(build: Path, decoder: Path) -> None:
    peak = view_of(build, decoder)["devices"][0]["peak"]["live_bytes"]
    words = [f"--memory={int(1.5 * peak)}", "--micro-batch=8"]
    fastest, longest = fit(build, decoder, *words), fit(build, decoder, *words, "--longest")
    assert longest["chosen"]["micro_batch"] > fastest["chosen"]["micro_batch"] > 8
    assert longest["chosen"]["recompute"]
    for document in (fastest, longest):
        assert document["predicted"]["held_bytes"]["stalloc"] <= document["memory_bytes"]


@pytest.mark.parametrize("guess", [1, 5, 7, 8, 40])
def test_the_longest_is_found_from_a_guess_that_is_too_large_or_too_small(guess: int) -> None:
    """In proportion to the traced one, the largest may have a few bytes more than there are."""
    chooser = object.__new__(choose._Chooser)
    asked: list[int] = []

    def search(sizes: list[int]) -> list[Any]:
        asked.extend(sizes)
        return [SimpleNamespace(micro_batch=size, fits=size <= 7) for size in sizes]

    chooser.__dict__.update(_largest_untouched=lambda: guess, _reported_search=search)
    found = {each.micro_batch: each.fits for each in chooser._longest()}
    assert (found[7], found[8]) == (True, False)
    assert sorted(asked) == sorted(set(asked)) == list(found)


def test_the_longest_rows_are_found_and_set_in_each_framework_s_words(build: Path, decoder: Path) -> None:
    peak = view_of(build, decoder)["devices"][0]["peak"]["live_bytes"]
    words = [f"--memory={int(1.5 * peak)}", "--micro-batch=8", "--sequence=64"]
    for kind in ("torch", "trainer", "lightning", "megatron"):
        document = fit(build, decoder, *words, "--for", kind)
        length = document["chosen"]["sequence_length"]
        assert length > 64
        assert length % 2 == 0
        assert document["chosen"]["micro_batch"] == 8
        written = document["settings"]
        if kind == "megatron":
            arguments = written["arguments"]
            assert arguments[arguments.index("--micro-batch-size") + 1] == "8"
            assert arguments[arguments.index("--seq-length") + 1] == str(length)
        else:
            rows = {"torch": written, "trainer": written.get("arguments"), "lightning": written.get("dataloader")}[kind]
            assert 8 in rows.values()
            assert written["sequence_length"] == length
    assert document["predicted"]["held_bytes"]["stalloc"] <= document["memory_bytes"]


def test_the_bus_is_as_measured_or_as_it_was_said(build: Path, decoder: Path) -> None:
    words = ["--memory=64M", "--keep-micro-batch"]
    assert fit(build, decoder, *words)["host"] == {"available_bytes": None, "needed_bytes": 0, "binds": False}
    assert fit(build, decoder, *words, "--host-memory=2M")["host"]["available_bytes"] == 2 << 20
    assert fit(build, decoder, *words)["bus"] == {"bytes_per_second": 25e9, "measured": False}
    file = decoder.with_suffix(".bus.json")
    file.write_text(json.dumps({"to_host": 5e10, "to_device": 6e10}))
    try:
        assert fit(build, decoder, *words)["bus"] == {"bytes_per_second": 5e10, "measured": True}
        assert fit(build, decoder, *words, "--bus-bandwidth=4")["bus"] == {"bytes_per_second": 4e9, "measured": False}
    finally:
        file.unlink()


def test_graphs_have_to_fit_where_they_are_asked_for(build: Path, decoder: Path) -> None:
    peak = view_of(build, decoder)["devices"][0]["peak"]["live_bytes"]
    eager = fit(build, decoder, f"--memory={int(1.1 * peak)}", "--micro-batch=8", "--keep-micro-batch")
    assert eager["predicted"]["graphs"]["traced"] is None, "nothing was captured"
    held = eager["predicted"]["graphs"]["held_bytes"]
    words = [f"--memory={held - 1}", "--micro-batch=8", "--keep-micro-batch"]
    without, within = fit(build, decoder, *words), fit(build, decoder, *words, "--graphs")
    assert not without["predicted"]["graphs"]["fit"]
    assert within["predicted"]["graphs"]["fit"]
    assert within["chosen"]["recompute"]
    assert not without["chosen"]["recompute"]


def test_a_fit_is_one_process_of_the_planner(build: Path, tmp_path: Path, decoder: Path) -> None:
    """Whatever it searches and plans."""
    counted, log = made(tmp_path / "counted"), tmp_path / "starts"
    program = counted / "stalloc-planner"
    program.write_text(f'#!/bin/sh\necho "$@" >> "{log}"\nexec "{build / program.name}" "$@"\n')
    program.chmod(0o755)
    document = fit(counted, decoder, "--memory=45M", "--micro-batch=8")
    assert len(document["tried"]) > 1
    assert log.read_text() == f"serve {decoder}\n"
    assert {**document, "tried": None} == {**fit(build, decoder, "--memory=45M", "--micro-batch=8"), "tried": None}
