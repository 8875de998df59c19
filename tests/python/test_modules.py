"""Module paths in a trace (STALLOC_TRACE_MODULES=1), and marks as NVTX ranges."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from processes import Training, run_python, view_of
from stalloc.train.marking.marks import BEGIN, END, FENCE, ITERATION, LAYER, MICROBATCH, OPTIMIZER
from stalloc.train.marking.modules import ModuleMarks
from stalloc.train.marking.nvtx import Ranges

torch = pytest.importorskip("torch")


class Marks:
    """What the sink was told: "+a.b" begins, "-a.b" ends."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self._modules = ModuleMarks(
            lambda path, kind, begins, *_: self.told.append(f"{kind}{'+' if begins else '-'}{path}")
        )

    def __enter__(self) -> Marks:
        self._modules.install(torch)
        return self

    def __exit__(self, *_: object) -> None:
        self._modules.remove()

    def of(self, kind: str) -> list[str]:
        return [text[1:] for text in self.told if text[0] == kind]


class Pair(torch.nn.Module):  # type: ignore[misc, name-defined]
    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)

    def forward(self, x: Any) -> dict[str, Any]:
        return {"y": self.two(torch.relu(self.one(x)))}


def test_paths_are_nested_in_the_forward_pass() -> None:
    with Marks() as marks:
        Pair()(torch.ones(2, 4))
    assert marks.told == ["F+Pair", "F+Pair.one", "F-Pair.one", "F+Pair.two", "F-Pair.two", "F-Pair"]


def test_the_backward_pass_goes_the_other_way() -> None:
    model = Pair()
    with Marks() as marks:
        for _ in range(2):
            model(torch.ones(2, 4))["y"].sum().backward()
    once = ["+Pair", "+Pair.two", "-Pair.two", "+Pair.one", "-Pair.one", "-Pair"]
    assert marks.of("B") == [*once, *once]


def test_a_compiled_graph_has_no_hooks_and_is_whole() -> None:
    """Where a hook would break the graph, fullgraph=True is an error."""
    told: list[str] = []
    marks = ModuleMarks(lambda path, *_: told.append(path), None, torch.compiler.is_compiling)
    marks.install(torch)
    try:
        compiled = torch.compile(Pair(), fullgraph=True, backend="eager")
        for _ in range(2):
            compiled(torch.ones(2, 4))["y"].sum().backward()
        assert set(told) <= {"OptimizedModule", "OptimizedModule._orig_mod"}, "nothing inside of the graph"
        Pair()(torch.ones(2, 4))
        assert "Pair.one" in told
    finally:
        marks.remove()


def test_parts_that_are_compiled_in_place_are_seen_and_what_is_in_them_is_not() -> None:
    told: list[str] = []
    compile_it = torch.nn.Module.compile
    marks = ModuleMarks(
        lambda path, kind, begins, *_: told.append(f"{kind}{'+' if begins else '-'}{path}"),
        None,
        torch.compiler.is_compiling,
    )
    marks.install(torch)
    try:
        model = torch.nn.Sequential(torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU()), torch.nn.Linear(4, 4))
        model[0].compile(backend="eager")
        model(torch.ones(2, 4)).sum().backward()
        told.clear()  # the first call compiles
        model(torch.ones(2, 4)).sum().backward()
        assert "F+Sequential.0" in told
        assert "F-Sequential.0" in told
        assert "B+Sequential.0" in told
        assert not [text for text in told if "Sequential.0." in text]
    finally:
        marks.remove()
    assert torch.nn.Module.compile is compile_it


def test_two_roots_of_a_kind_are_told_apart() -> None:
    first, second = Pair(), Pair()
    with Marks() as marks:
        for model in (first, second, first):
            model(torch.ones(1, 4))
    assert [text for text in marks.of("F") if text.startswith("+") and "." not in text] == ["+Pair", "+Pair#2", "+Pair"]


def test_an_exception_leaves_nothing_open() -> None:
    model = Pair()
    with Marks() as marks:
        with pytest.raises(RuntimeError):
            model(torch.ones(1, 5))
        model(torch.ones(1, 4))
    assert sum(text[0] == "+" for text in marks.of("F")) == sum(text[0] == "-" for text in marks.of("F"))
    assert marks.of("F")[-1] == "-Pair"


def test_gradients_are_what_they_are_without() -> None:
    def gradient() -> Any:
        torch.manual_seed(0)
        model = Pair()
        model(torch.ones(2, 4))["y"].sum().backward()
        return model.one.weight.grad

    plain = gradient()
    with Marks():
        assert torch.equal(gradient(), plain)


def test_a_traced_run_knows_its_layers_and_its_plan_serves_a_run_without(training: Training) -> None:
    plain = training.run("Trace", "--iterations", "4", STALLOC_MODEL_INFO_PATH=str(training.directory / "plain"))
    traced = training.run("Trace", "--iterations", "4", STALLOC_TRACE_MODULES="1")
    assert traced["losses"] == plain["losses"]
    trace = training.info / "trace" / "rank00000.trace"
    device = view_of(training.build, trace)["devices"][0]
    table = {
        (device["layers"][layer], which): (visits, net)
        for layer, which, visits, net in zip(
            *(device["layer_table"][key] for key in ("layer", "pass", "visits", "most_net"))
        )
    }
    assert table["Model.blocks.2.up", "F"][0] == 2 * 4, "micro-batches x iterations"
    assert table["Model.blocks.0.qkv", "B"][0] == 2 * 4
    assert table["Model.blocks.1", "F"][1] > 0, "activations stay behind"
    assert table["Model.blocks.1", "B"][1] <= 0, "and are gone after the backward pass, but for gradients of the first"
    training.plan()
    assert training.run("Alloc", "--iterations", "6")["losses"][:4] == plain["losses"]
    summary = training.summary()
    assert summary["steady"]["hits"] >= 0.99 * summary["steady"]["requests"]


def test_the_switch_is_checked(tmp_path: Path) -> None:
    done = run_python("-c", "import stalloc", environment={"STALLOC_MODE": "Torch", "STALLOC_TRACE_MODULES": "all"})
    assert done.code != 0
    assert "STALLOC_TRACE_MODULES must be 0 or 1: 'all'" in done.err


# NVTX ---------------------------------------------------------------------------------------------------------------


class Nvtx:
    def __init__(self) -> None:
        self.told: list[str] = []

    def range_push(self, text: str) -> None:
        self.told.append(f"+{text}")

    def range_pop(self) -> None:
        self.told.append("-")


def test_ranges_nest_though_marks_have_no_end() -> None:
    nvtx = Nvtx()
    ranges = Ranges(nvtx)
    ranges.mark(ITERATION, BEGIN, "iteration 0")
    ranges.mark(MICROBATCH, BEGIN, "F 0")
    ranges.mark(LAYER, BEGIN, "mlp")
    ranges.mark(MICROBATCH, BEGIN, "B 0")
    ranges.mark(OPTIMIZER, BEGIN, "optimizer")
    ranges.mark(ITERATION, BEGIN, "iteration 1")
    assert nvtx.told == ["+iteration 0", "+F 0", "+mlp", "-", "-", "+B 0", "-", "+optimizer", "-", "-", "+iteration 1"]


def test_an_end_closes_what_is_open_inside_and_nothing_else() -> None:
    nvtx = Nvtx()
    ranges = Ranges(nvtx)
    ranges.mark(FENCE, BEGIN, "eval")
    ranges.mark(LAYER, BEGIN, "a")
    ranges.mark(LAYER, BEGIN, "b")
    ranges.mark(LAYER, END, "c")
    ranges.mark(FENCE, END, "eval")
    ranges.mark(FENCE, END, "eval")
    assert nvtx.told == ["+eval", "+a", "+b", "-", "-", "-"]


RANGED = """
import torch
told = []
torch.cuda.nvtx.range_push = lambda text: told.append("+" + text)
torch.cuda.nvtx.range_pop = lambda: told.append("-")
import stalloc

for number in range(2):
    with stalloc.iteration(number), stalloc.microbatch("F", 3), stalloc.layer("mlp"):
        torch.ones(1000)
print(*told, sep=",")
"""


def test_marks_of_a_run_are_ranges(build: Path, tmp_path: Path) -> None:
    training = Training(build, tmp_path)
    (tmp_path / "ranged.py").write_text(RANGED)
    done = training.start_plain("Trace", str(tmp_path / "ranged.py"), STALLOC_NVTX="1").good()
    assert done.out.split(",")[:4] == ["+iteration 0", "+F 3", "+mlp", "-"]
    assert done.out.count("+iteration 1") == 1
