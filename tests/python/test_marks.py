"""The marks' numbering, counting and edges, and the optimizer hooks that stand in for them."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, Optional

import pytest

import stalloc
from processes import run_python
from stalloc.train import session
from stalloc.train.marking.hooks import _PATIENCE, OptimizerHooks
from stalloc.train.marking.marks import BEGIN, END, FENCE, ITERATION, LAYER, MICROBATCH, OPTIMIZER, Marker

MarkTuple = tuple[int, int, int, int, int, Optional[bytes], int]


class Recording:
    """A marker, with what reached its sink and which iterations it said were over."""

    def __init__(self) -> None:
        self.marks: list[MarkTuple] = []
        self.finished: list[int] = []
        self.marker = Marker(lambda *mark: self.marks.append(mark), self.finished.append)

    def iterations(self) -> list[tuple[int, int, int]]:
        return [(mark[1], mark[4], mark[6]) for mark in self.marks if mark[0] == ITERATION]


@pytest.fixture
def recording() -> Recording:
    return Recording()


@pytest.fixture
def active(recording: Recording, monkeypatch: pytest.MonkeyPatch) -> Recording:
    """The public functions with a session behind them."""
    monkeypatch.setattr(session, "current", session.Session("Torch", None, recording.marker))
    return recording


def test_every_public_mark_reaches_the_sink_with_its_numbers(active: Recording) -> None:
    stalloc.iteration(5)
    stalloc.microbatch("F")
    stalloc.microbatch("F", chunk=1)
    stalloc.microbatch("F")
    stalloc.microbatch("B", 7)
    stalloc.microbatch("W", 7, chunk=2)
    stalloc.microbatch("FB", 8)
    stalloc.microbatch("O", 9)
    stalloc.layer("experts.3", "B")
    stalloc.optimizer()
    stalloc.fence("save")
    assert active.marks == [
        (ITERATION, BEGIN, 0, 0, 5, None, 0),
        (MICROBATCH, BEGIN, 1, 0, 0, None, 0),
        (MICROBATCH, BEGIN, 1, 1, 0, None, 0),
        (MICROBATCH, BEGIN, 1, 0, 1, None, 0),
        (MICROBATCH, BEGIN, 2, 0, 7, None, 0),
        (MICROBATCH, BEGIN, 3, 2, 7, None, 0),
        (MICROBATCH, BEGIN, 4, 0, 8, None, 0),
        (MICROBATCH, BEGIN, 5, 0, 9, None, 0),
        (LAYER, BEGIN, 2, 0, 0, b"experts.3", 0),
        (OPTIMIZER, BEGIN, 0, 0, 0, None, 0),
        (FENCE, BEGIN, 0, 0, 0, b"save", 0),
    ]


def test_numbers_agree_with_the_trace_format() -> None:
    text = (Path(__file__).parents[2] / "proto" / "trace.proto").read_text()
    names = {"ITERATION": ITERATION, "MICROBATCH": MICROBATCH, "OPTIMIZER": OPTIMIZER, "LAYER": LAYER, "FENCE": FENCE}
    for name, number in names.items():
        assert f"MARK_{name} = {number};" in text
    for name, number in {"FORWARD": 1, "BACKWARD": 2, "WEIGHT": 3, "FORWARD_BACKWARD": 4, "OTHER": 5}.items():
        assert f"PASS_{name} = {number};" in text
    assert f"EDGE_BEGIN = {BEGIN};" in text
    assert f"EDGE_END = {END};" in text


def test_a_context_manager_ends_its_mark_also_when_its_body_raises(active: Recording) -> None:
    with stalloc.layer("a"), pytest.raises(KeyError), stalloc.fence("eval"):
        raise KeyError
    edges = [(mark[0], mark[1], mark[5]) for mark in active.marks]
    assert edges == [(LAYER, BEGIN, b"a"), (FENCE, BEGIN, b"eval"), (FENCE, END, b"eval"), (LAYER, END, b"a")]


def test_iterations_count_on_from_the_last_index(active: Recording) -> None:
    stalloc.iteration()
    stalloc.iteration()
    stalloc.iteration(100)
    with stalloc.iteration():
        pass
    assert active.iterations() == [(BEGIN, 0, 0), (BEGIN, 1, 0), (BEGIN, 100, 0), (BEGIN, 101, 0), (END, 101, 0)]
    assert active.finished == [0, 1, 100, 101]


def test_the_iteration_that_runs_at_exit_is_reported_once(recording: Recording) -> None:
    recording.marker.iteration(3)
    recording.marker.finish()
    recording.marker.finish()
    assert recording.finished == [3]


def test_an_end_that_comes_late_does_not_finish_the_next_iteration(recording: Recording) -> None:
    first = recording.marker.iteration(0)
    recording.marker.iteration(1)
    first.__exit__(None, None, None)
    assert recording.finished == [0]


@pytest.mark.parametrize("kind", ["", "f", "forward", "X"])
def test_an_unknown_pass_is_an_error_with_and_without_a_session(kind: str, recording: Recording) -> None:
    with pytest.raises(ValueError, match="must be one of F, B, W, FB, O"):
        stalloc.microbatch(kind)
    with pytest.raises(ValueError, match="must be one of F, B, W, FB, O"):
        stalloc.layer("a", kind)


def test_without_a_session_nothing_happens() -> None:
    assert stalloc.mode() is None
    assert not stalloc.installed()
    assert stalloc.stats() == {"mode": None, "degraded": None, "devices": []}
    stalloc.flush()
    with stalloc.iteration(), stalloc.microbatch("F"), stalloc.layer("x"), stalloc.optimizer(), stalloc.fence("eval"):
        pass


def test_without_a_session_a_mark_costs_less_than_a_microsecond() -> None:
    def best(repetitions: int = 20000) -> float:
        begin = time.perf_counter()
        for _ in range(repetitions):
            stalloc.microbatch("F", 1)
        return (time.perf_counter() - begin) / repetitions

    assert min(best() for _ in range(5)) < 1e-6


# Hooks --------------------------------------------------------------------------------------------------------------


class Optimizer:
    """Stands for any optimizer: only its identity matters."""


class Hooks:
    def __init__(self, recording: Recording) -> None:
        self.hooks = OptimizerHooks(recording.marker)

    def step(self, *optimizers: Any) -> None:
        """Steps of the optimizers, each inside the one before."""
        for optimizer in optimizers:
            self.hooks.before_step(optimizer, (), {})
        for optimizer in reversed(optimizers):
            self.hooks.after_step(optimizer, (), {})


@pytest.fixture
def hooks(recording: Recording) -> Hooks:
    return Hooks(recording)


# An optimizer's part, as hooks mark it, and as a script does.
STEP = [(OPTIMIZER, BEGIN, 0, 1), (OPTIMIZER, END, 0, 1)]
OWN_BEGIN, OWN_END = (OPTIMIZER, BEGIN, 0, 0), (OPTIMIZER, END, 0, 0)


def kinds(recording: Recording) -> list[tuple[int, int, int, int]]:
    return [(mark[0], mark[1], mark[4], mark[6]) for mark in recording.marks]


def test_each_step_is_the_boundary_to_the_next_iteration(hooks: Hooks, recording: Recording) -> None:
    optimizer = Optimizer()
    hooks.step(optimizer)
    hooks.step(optimizer)
    assert kinds(recording) == [*STEP, (ITERATION, BEGIN, 1, 1), *STEP, (ITERATION, BEGIN, 2, 1)]
    assert recording.finished == [0, 1]


def test_one_of_several_optimizers_marks_the_boundary(hooks: Hooks, recording: Recording) -> None:
    generator, discriminator = Optimizer(), Optimizer()
    for _ in range(3):
        hooks.step(discriminator)
        hooks.step(generator)
    assert recording.finished == [0, 1, 2]


def test_an_optimizer_inside_another_makes_one_boundary(hooks: Hooks, recording: Recording) -> None:
    outer, inner = Optimizer(), Optimizer()
    for _ in range(3):
        hooks.step(outer, inner)
    assert kinds(recording) == [mark for i in (1, 2, 3) for mark in [*STEP, (ITERATION, BEGIN, i, 1)]]


def test_an_optimizer_that_is_gone_hands_its_part_to_the_next(hooks: Hooks, recording: Recording) -> None:
    first = Optimizer()
    hooks.step(first)
    del first
    second = Optimizer()
    hooks.step(second)
    hooks.step(second)
    assert recording.finished == [0, 1, 2]


def test_an_optimizer_out_of_use_hands_its_part_over_after_a_while(hooks: Hooks, recording: Recording) -> None:
    kept, used = Optimizer(), Optimizer()
    hooks.step(kept)
    for _ in range(_PATIENCE + 10):
        hooks.step(used)
    assert recording.finished == list(range(12))  # one, then those after the patience ran out


def test_explicit_iterations_end_the_automatic_ones(hooks: Hooks, recording: Recording) -> None:
    optimizer = Optimizer()
    hooks.step(optimizer)
    recording.marker.iteration(None)
    hooks.step(optimizer)
    recording.marker.iteration(None)
    assert recording.iterations() == [(BEGIN, 1, 1), (BEGIN, 0, 0), (BEGIN, 1, 0)]
    assert recording.finished == [0, 0]


def test_explicit_optimizer_marks_end_the_automatic_ones(hooks: Hooks, recording: Recording) -> None:
    optimizer = Optimizer()
    recording.marker.iteration(None)
    hooks.step(optimizer)
    recording.marker.optimizer()
    hooks.step(optimizer)
    assert kinds(recording) == [(ITERATION, BEGIN, 0, 0), *STEP, OWN_BEGIN, OWN_END]


def test_a_plain_optimizer_mark_ends_where_the_step_returns(hooks: Hooks, recording: Recording) -> None:
    recording.marker.iteration(None)
    outer, inner, second = Optimizer(), Optimizer(), Optimizer()
    recording.marker.optimizer()
    hooks.step(outer, inner)
    assert kinds(recording)[1:] == [OWN_BEGIN, OWN_END], "the outer one's"
    hooks.step(second)
    assert kinds(recording)[3:] == [OWN_BEGIN, OWN_END], "one part for each of several optimizers"
    recording.marker.microbatch("F", None, 0)
    hooks.step(second)
    assert len(kinds(recording)) == 6, "none that was not marked"


def test_a_context_manager_ends_the_optimizer_s_part_itself(hooks: Hooks, recording: Recording) -> None:
    recording.marker.iteration(None)
    with recording.marker.optimizer():
        hooks.step(Optimizer())
        hooks.step(Optimizer())
        assert kinds(recording)[1:] == [OWN_BEGIN]
    assert kinds(recording)[1:] == [OWN_BEGIN, OWN_END]


def test_a_step_that_an_exception_ended_is_over_at_the_next(hooks: Hooks, recording: Recording) -> None:
    optimizer = Optimizer()
    recording.marker.iteration(None)
    recording.marker.optimizer()
    hooks.hooks.before_step(optimizer, (), {})
    hooks.step(optimizer)
    assert kinds(recording)[1:] == [OWN_BEGIN, OWN_END]


@pytest.mark.parametrize("by_name", [False, True])
def test_what_a_closure_allocates_is_no_optimizer_state(hooks: Hooks, recording: Recording, by_name: bool) -> None:
    torch = pytest.importorskip("torch")
    parameter = torch.nn.Parameter(torch.ones(3))
    optimizer = torch.optim.LBFGS([parameter], max_iter=4, lr=0.1)
    inside = []  # of the mark, at each call

    def edges() -> list[int]:
        return [mark[1] for mark in recording.marks if mark[0] == LAYER]

    def closure() -> Any:
        inside.append(edges().count(BEGIN) > edges().count(END))
        optimizer.zero_grad()
        loss = (parameter**4).sum()
        loss.backward()
        return loss

    hooks.hooks.install(torch)
    try:
        for _ in range(2):
            optimizer.step(closure=closure) if by_name else optimizer.step(closure)
    finally:
        hooks.hooks.remove()
    assert len(inside) > 3
    assert not any(inside)
    assert edges() == [BEGIN, END], "one mark, of the first step's own"


def test_hooks_see_the_steps_of_a_real_optimizer_until_they_are_removed(hooks: Hooks, recording: Recording) -> None:
    torch = pytest.importorskip("torch")
    parameter = torch.nn.Parameter(torch.ones(3))
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    hooks.hooks.install(torch)
    try:
        parameter.grad = torch.ones(3)
        optimizer.step()
    finally:
        hooks.hooks.remove()
    optimizer.step()
    assert recording.finished == [0]


COMPILED = """
import torch
parameter = torch.nn.Parameter(torch.ones(3))
optimizer = torch.optim.AdamW([parameter], lr=0.1)
parameter.grad = torch.ones(3)
step = torch.compile(lambda: optimizer.step(), backend="eager")
for _ in range(4): step()
"""


def test_a_compiled_step_is_an_iteration_too(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "compiled.py").write_text(COMPILED)
    done = run_python("-m", "stalloc", "run", "compiled.py", cwd=tmp_path)
    lines = [line.split(":")[0] for line in done.err.splitlines() if line.startswith("[stalloc]")]
    assert lines == [f"[stalloc] rank 0 iteration {number}" for number in range(4)]
