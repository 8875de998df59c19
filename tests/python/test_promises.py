"""`stalloc advise` and `whatif` against what comes: what they name is done in real training on the CPU.

Models of three families are trained and traced as a user would. The lines of each row are then run as they stand, in
one process for all, and the peaks that come are held against those that were promised.
"""

from __future__ import annotations

import copy
import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import pytest

from processes import SCRIPTS, Training
from stalloc.tools.report import advice, collect, figures, findings, how_to

pytest.importorskip("torch")

SCRIPT = str(SCRIPTS / "promised_training.py")
MARKED = 2  # iterations of each change
WITHIN = 0.02
MOST = 5  # rows of layers that are recomputed, of a family
FAMILIES = {"decoder": 4, "encoder": 4, "convnet": 4, "wide": 1}
LOOPS = {"untidy": 4, "clearing": 4, "logging": 4, "leaking": 7}  # iterations
LATE_IN = {"after the backward": "logging", "after the optimizer": "clearing"}  # others: untidy
# What has no row, since it saves nothing: outputs that others keep, and modules that keep their own.
SAVES_NOTHING = {
    "decoder": ["layers.*.mlp.gate", "layers.*.mlp.act", "layers.*.mlp.down", "layers.*.attention.q"],
    "encoder": ["layers.*.act", "layers.*.drop", "layers.*.after_mlp", "layers.*.attention.softmax"],
    "convnet": ["blocks.*.relu", "blocks.*.conv1", "stem.2"],
}


@dataclasses.dataclass
class Promise:
    """What is done, as promised_training.py reads it, and the peak in bytes that is to come."""

    entry: dict[str, Any]
    peak: int
    what: str
    at_least: bool = False
    useless: bool = False  # it has no row: the peak stays, or is higher


@dataclasses.dataclass
class Traced:
    view: dict[str, Any]
    peak: int
    rows: list[dict[str, Any]]


def trace(training: Training, *words: str) -> Traced:
    training.start_plain("Trace", "-m", "stalloc", "run", SCRIPT, *words, STALLOC_TRACE_MODULES="1").good()
    view = collect.view(collect.find_ranks(training.info)[0])
    device = figures.device_figures(view, 0)
    return Traced(view, device["peak_live_bytes"], advice.advise(view, 0, device))


@pytest.fixture(scope="module")
def traced(build: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Traced]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STALLOC_LIB_PATH", str(build))
        words = {family: [family, str(batch), "3"] for family, batch in FAMILIES.items()}
        words |= {name: ["--loop", name, str(iterations)] for name, iterations in LOOPS.items()}
        return {name: trace(Training(build, tmp_path_factory.mktemp(name)), *each) for name, each in words.items()}


def code_of(row: dict[str, Any]) -> str:
    line: str = row["how_to"]
    return line.removeprefix("transformers: gradient_checkpointing=True; else: ")


def of_rows(family: str, traced: Traced) -> list[Promise]:
    """The rows of a family, done as they say."""
    base = {"family": family, "batch": FAMILIES[family]}
    found = []
    recomputed = 0
    for row in traced.rows:
        if row["what"].startswith("recompute"):
            recomputed += 1
            if recomputed > MOST:
                continue
            done = {**base, "change": code_of(row)}
        elif row["what"].startswith("compute logits and loss in"):
            done = {**base, "loss": row["how_to"].partition("; transformers")[0]}
        elif row["what"].startswith("use a fused optimizer"):
            assert "fused=True" in row["how_to"]
            done = {**base, "optimizer": {"foreach": False, "fused": True}}
        else:
            continue
        found.append(Promise(done, row["peak_bytes"], f"{family}: {row['what']}", row["at_least"]))
    return found


def of_offloading(family: str, traced: Traced) -> list[Promise]:
    """What is advised on a GPU, where other memory is the host's."""
    view = copy.deepcopy(traced.view)
    view["devices"][0]["device"] = 0
    found = []
    for row in advice.advise(view, 0, figures.device_figures(view, 0)):
        if row["what"].startswith("offload the activations of each of"):
            pattern = re.search(r'fullmatch\(r"(.*?)"', row["how_to"])
            assert pattern is not None
            assert "save_on_cpu" in row["how_to"]
            done: dict[str, Any] = {"offloaded": pattern[1]}
        elif row["what"] == "offload the optimizer state":
            done = {"offloaded_state": True}
        else:
            continue
        entry = {"family": family, "batch": FAMILIES[family], **done}
        found.append(Promise(entry, row["peak_bytes"], f"{family}: {row['what']}", row["at_least"]))
    return found


def of_loops(traced: dict[str, Traced]) -> list[Promise]:
    """Every kind of late free, each mended by itself; and a leak."""
    found = []
    for kind, line in how_to.LATE.items():
        if kind == "without a backward":  # test_patterns.py
            continue
        loop = LATE_IN.get(kind, "untidy")
        rows = [row for row in traced[loop].rows if row["how_to"] == line]
        assert len(rows) == 1, f"nothing is said of what is freed late {kind}"
        found.append(Promise({"loop": loop, "mended": kind}, rows[0]["peak_bytes"], rows[0]["what"]))
    (row,) = (row for row in traced["leaking"].rows if row["what"].startswith("stop leaving 256.00 KiB more live"))
    return [*found, Promise({"loop": "leaking", "mended": "leak"}, row["peak_bytes"], row["what"])]


def of_twice(family: str, traced: Traced) -> Promise:
    points = traced.view["devices"][0]["scaling"]
    twice = {"family": family, "batch": 2 * FAMILIES[family]}
    return Promise(twice, findings.peak_at_scale(points, 2), f"{family}: twice the micro-batch")


def of_nothing(family: str, traced: Traced) -> list[Promise]:
    rows = " ".join(row["what"] for row in traced.rows)
    found = []
    for path in SAVES_NOTHING.get(family, []):
        line = how_to.recompute(path, [], False)
        entry = {"family": family, "batch": FAMILIES[family], "change": line}
        assert f".{path}" not in rows, f"{family}: {path} saves nothing, and is advised"
        found.append(Promise(entry, traced.peak, f"{family}: recompute {path}, which is not advised", useless=True))
    return found


@pytest.fixture(scope="module")
def kept(traced: dict[str, Traced], build: Path, tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Promise, int]]:
    """Every promise with the peak that came."""
    promises = []
    for family in FAMILIES:
        promises += [*of_rows(family, traced[family]), *of_nothing(family, traced[family])]
    promises += [*of_offloading("decoder", traced["decoder"]), *of_offloading("wide", traced["wide"])]
    promises += of_loops(traced)
    promises += [of_twice(family, traced[family]) for family in ("decoder", "encoder", "convnet")]
    directory = tmp_path_factory.mktemp("changes")
    changes = directory / "changes.json"
    changes.write_text(json.dumps([promise.entry for promise in promises]))
    training = Training(build, directory)
    training.start_plain("Trace", "-m", "stalloc", "run", SCRIPT, "--changes", str(changes)).good()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STALLOC_LIB_PATH", str(build))
        view = collect.view(collect.find_ranks(training.info)[0])
    peaks = view["devices"][0]["iterations"]["peak_live"][1:]  # the first is the set-up
    assert len(peaks) == (MARKED + 1) * len(promises)
    return [(each, max(peaks[(MARKED + 1) * i :][:MARKED])) for i, each in enumerate(promises)]


def test_every_promise_is_kept(kept: list[tuple[Promise, int]]) -> None:
    broken = []
    for promise, came in kept:
        off = came / promise.peak - 1
        if (off > WITHIN and not promise.useless) or (off < -WITHIN and not promise.at_least):
            broken.append(f"{promise.what}: {promise.peak} promised, {came} came ({100 * off:+.1f} %)")
    assert not broken, "\n".join(broken)


@pytest.mark.parametrize("family", ["decoder", "encoder", "convnet"])
def test_each_family_is_promised_what_it_can_have(family: str, kept: list[tuple[Promise, int]]) -> None:
    """Layers each by itself save at least a third of the peak, and parts of them something, too."""
    what = [promise.what for promise, _ in kept if promise.what.startswith(family)]
    layers = {"decoder": "Decoder.layers.*", "encoder": "Encoder.layers.*", "convnet": "ConvNet.blocks.*"}[family]
    promise, came = next((p, c) for p, c in kept if p.what == f"{family}: recompute each of {layers}")
    twice = next(c for p, c in kept if p.what == f"{family}: twice the micro-batch")
    assert came < promise.peak * (1 + WITHIN) < twice
    assert len(what) >= 4
