"""Layers and names of tensors in snapshots: from ranges, words and stacks, and back from an export."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import memory_snapshot_format
from exports import exported, trace_of_text
from histories import OPTIMIZER, History, imported
from processes import view_of
from stalloc import cli
from stalloc.tools.commands.export import dump_lines
from stalloc.tools.snapshot import metadata
from stalloc.tools.snapshot.phases import find_marks
from stalloc.tools.snapshot.read import parse

pytestmark = pytest.mark.usefixtures("real_libraries")

STEP = "Optimizer.step#AdamW.step"
NAMED = """stalloc-events 1
t Model.up.weight
t Model.up.bias
t Model.up.weight:exp_avg
m init begin - 0 0 500000
a 0 4096 0 0 1000000
n 0 0 parameter 0
n 0 2048 parameter 1
m init end - 0 0 1500000
m iteration begin - 0 0 2000000
m microbatch begin F 0 0 2100000
m layer begin F 0 0 2200000 Model.up
a 1 8192 0 0 3000000
m layer end F 0 0 3100000 Model.up
m microbatch begin B 0 0 3200000
m layer begin B 0 0 3300000 Model.up
a 2 1024 0 0 3400000
f 1 3500000
m layer end B 0 0 3600000 Model.up
m optimizer begin - 0 0 4000000
a 3 512 0 0 4100000
n 3 0 optimizer_state 2
f 2 4200000
m fence begin - 0 0 5000000 eval
a 4 2048 0 0 5100000
f 4 5200000
m fence end - 0 0 5300000 eval
a 5 1536 0 0 5400000
"""


def report(build: Path, trace: Path) -> Any:
    return view_of(build, trace, every_block=True)


def layers_of(history: History) -> list[tuple[str, str, str]]:
    found = find_marks(parse(history.snapshot()))
    return [(mark.name, mark.which, mark.edge) for mark in found.marks if mark.kind == "layer"]


def test_names_layers_and_fences_come_back_from_a_snapshot(build: Path, tmp_path: Path, capsys: Any) -> None:
    def told(trace: Path) -> list[Any]:
        view = report(build, trace)
        device = view["devices"][0]
        blocks = device["blocks"]
        layers = [device["layers"][layer] for layer in blocks["layer"]]
        classes = [view["classes"][of] for of in blocks["class"]]
        table = device["layer_table"]
        rows = [(device["layers"][at], which) for at, which in zip(table["layer"], table["pass"])]
        names = [name for name, busy in zip(device["phases"]["name"], device["phases"]["requests"]) if busy]
        return [*zip(blocks["name"], blocks["names"], blocks["tensor"], layers, classes), rows, names]

    trace = trace_of_text(build, NAMED, tmp_path / "named.trace")
    file = exported(trace, "snapshot", tmp_path)
    memory_snapshot_format.check(file.read_bytes())
    assert cli.main(["import", str(file), "-o", str(tmp_path / "again")]) == 0
    again = told(tmp_path / "again" / "trace" / "rank00000.trace")
    assert again == told(trace)
    weight = ("Model.up.weight and 1 more", "Model.up.weight\nModel.up.bias", "parameter", "Model.up", "weights")
    assert again[0] == weight
    assert [row[3] for row in again[1:3]] == ["Model.up", "Model.up"]
    assert [row[1] for row in again[-2]] == ["F", "B"]
    assert "iter 0, fence" in again[-1]


def test_ranges_of_the_program_are_layers_and_torch_s_own_are_not(tmp_path: Path, capsys: Any) -> None:
    history = History()
    for at, name in enumerate(("enumerate(DataLoader)#_MultiProcessing", "tower of \n two", "Optimizer.zero_grad#SGD")):
        history.annotate(name, "START")
        history.alloc(10 * at, 4096)
        history.free(10 * at)
        history.annotate(name, "END")
    history.annotate("nothing inside", "START")
    history.annotate("nothing inside", "END")
    history.annotate(STEP, "START")
    history.annotate(STEP, "END")
    assert layers_of(history) == [("tower of two", "-", "begin"), ("tower of two", "-", "end")]
    assert imported(history.snapshot(), tmp_path, capsys)["iterations"] == 1
    lines = [line for line in dump_lines(tmp_path / "run" / "trace" / "rank00000.trace") if line["event"] == "mark"]
    assert [line["name"] for line in lines if line["kind"] == "layer"] == ["tower of two"] * 2


def test_words_on_blocks_are_layers_as_long_as_they_are_the_same() -> None:
    history = History()
    for block, words in enumerate(("", "encoder", "encoder", "decoder", "", "parameter: a.weight")):
        history.alloc(block, 512)
        history.entries[-1]["user_metadata"] = words
    assert layers_of(history) == [
        ("encoder", "-", "begin"),
        ("encoder", "-", "end"),
        ("decoder", "-", "begin"),
        ("decoder", "-", "end"),
    ]


def call(file: str, line: int, name: str = "forward") -> dict[str, Any]:
    return {"filename": file, "line": line, "name": name}


def forward(*lines: int, of: str = "") -> list[dict[str, Any]]:
    """A stack inside a model: the loop over its layers, a layer's parts, a linear layer of torch's."""
    files = ("/m/my.model.py", "/m/block.py", "/site/torch/nn/modules/linear.py")
    calls = [call(file, line, of + "forward") for file, line in zip(files, lines)]
    return [*reversed(calls), call("/site/torch/nn/modules/module.py", 1, "_call_impl"), call("/train.py", 5, "main")]


@pytest.mark.parametrize(("of", "outer", "inner"), [("", "my_model", "block"), ("A.<locals>.Net.", "Net", "Net")])
def test_calls_of_forward_in_stacks_are_layers_and_counted(of: str, outer: str, inner: str) -> None:
    history = History()
    place = 0
    for _ in range(2):
        for stack in (forward(20, 7, 125, of=of), forward(20, 9, 125, of=of)):
            history.alloc(place, 4096, stack)
            place += 10
    history.alloc(place, 512, forward(30, of=of))
    history.alloc(place + 10, 512, OPTIMIZER)
    names = [name for name, which, edge in layers_of(history) if edge == "begin" and which == "F"]
    linear = f"{of.split('.')[-2]}" if of else "linear"
    loop = f"{outer}:20"
    assert names == [
        loop,
        f"{loop}.0",
        *(f"{loop}.0.{inner}:7{more}" for more in ("", f".{linear}")),
        *(f"{loop}.0.{inner}:9{more}" for more in ("", f".{linear}")),
        f"{loop}.1",
        *(f"{loop}.1.{inner}:7{more}" for more in ("", f".{linear}")),
        *(f"{loop}.1.{inner}:9{more}" for more in ("", f".{linear}")),
        f"{outer}:30",
    ]
    ends = [edge for _, _, edge in layers_of(history)]
    assert ends.count("begin") == ends.count("end")


def test_metadata_that_is_no_name_of_stalloc_s_names_nothing() -> None:
    assert metadata.read("parameter: a, b") == ("parameter", ["a", "b"])
    assert metadata.read(metadata.written("", ("a",))) == ("", ["a"])
    assert metadata.read("stage: forward") == ("", [])
    assert metadata.written("gradient", ()) == ""
