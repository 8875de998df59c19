"""Iterations of programs that replay their optimizer's step, on a stand-in for torch's class, which needs a GPU."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest

from stalloc.train.marking.captured_steps import CapturedSteps


class Graph:
    def __init__(self, fails: bool = False) -> None:
        self.fails = fails

    def capture_begin(self, pool: object = None) -> None:
        if self.fails:
            raise RuntimeError("a capture is under way")

    def capture_end(self) -> None:
        pass

    def replay(self) -> str:
        return "launched"


@pytest.fixture
def ended() -> list[str]:
    return []


@pytest.fixture
def steps(ended: list[str]) -> CapturedSteps:
    return CapturedSteps(lambda: ended.append(threading.current_thread().name))


@pytest.fixture
def graph_class(steps: CapturedSteps) -> type[Graph]:
    class Seen(Graph):
        capture_begin, capture_end, replay = Graph.capture_begin, Graph.capture_end, Graph.replay

    steps.install(SimpleNamespace(cuda=SimpleNamespace(CUDAGraph=Seen)))
    return Seen


def test_a_replay_of_a_captured_step_is_an_iteration(
    graph_class: type[Graph], steps: CapturedSteps, ended: list[str]
) -> None:
    step, other = graph_class(), graph_class()
    step.capture_begin()
    assert steps.captures_step()
    step.capture_end()
    other.capture_begin()
    other.capture_end()
    assert ended == [], "nothing has run yet"
    assert step.replay() == "launched"
    other.replay()
    step.replay()
    assert ended == ["MainThread", "MainThread"]


def test_an_eager_step_is_none_of_a_capture(graph_class: type[Graph], steps: CapturedSteps) -> None:
    assert not steps.captures_step()
    graph = graph_class()
    graph.capture_begin()
    elsewhere: list[bool] = []
    thread = threading.Thread(target=lambda: elsewhere.append(steps.captures_step()))
    thread.start()
    thread.join()
    graph.capture_end()
    assert elsewhere == [False]
    assert not steps.captures_step()


def test_a_capture_that_does_not_begin_captures_nothing(graph_class: type[Graph], steps: CapturedSteps) -> None:
    with pytest.raises(RuntimeError, match="under way"):
        graph_class(fails=True).capture_begin()
    assert not steps.captures_step()


def test_a_torch_without_graphs_is_left_alone(steps: CapturedSteps) -> None:
    steps.install(SimpleNamespace(cuda=SimpleNamespace()))
