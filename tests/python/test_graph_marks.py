"""Marks around captures and replays of CUDA graphs, on a stand-in for torch's class, which needs a GPU."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from stalloc.train.marking.graphs import GraphMarks


class Graph:
    def __init__(self, fails: bool = False) -> None:
        self.fails = fails
        self.called: list[str] = []

    def capture_begin(self, pool: Any = None, capture_error_mode: str = "global") -> None:
        if self.fails:
            raise RuntimeError("a capture is under way")
        self.called.append(f"begin {pool} {capture_error_mode}")

    def capture_end(self) -> None:
        self.called.append("end")

    def replay(self) -> str:
        self.called.append("replay")
        return "launched"


@pytest.fixture
def told() -> list[str]:
    return []


@pytest.fixture
def graph_class(told: list[str]) -> type[Graph]:
    class Marked(Graph):
        capture_begin, capture_end, replay = Graph.capture_begin, Graph.capture_end, Graph.replay

    marks = GraphMarks(lambda name, begins: told.append(f"{'+' if begins else '-'}{name}"))
    marks.install(SimpleNamespace(cuda=SimpleNamespace(CUDAGraph=Marked)))
    return Marked


def test_captures_and_replays_have_begins_and_ends(graph_class: type[Graph], told: list[str]) -> None:
    first, second = graph_class(), graph_class()
    for graph in (first, second):
        graph.capture_begin("pool", capture_error_mode="relaxed")
        graph.capture_end()
    assert second.replay() == "launched"
    assert first.called == ["begin pool relaxed", "end"]
    assert told == [
        *("+CUDA graph 0 capture", "-CUDA graph 0 capture", "+CUDA graph 1 capture", "-CUDA graph 1 capture"),
        *("+CUDA graph 1 replay", "-CUDA graph 1 replay"),
    ]


def test_a_capture_that_fails_to_begin_has_ended(graph_class: type[Graph], told: list[str]) -> None:
    with pytest.raises(RuntimeError, match="under way"):
        graph_class(fails=True).capture_begin()
    assert told == ["+CUDA graph 0 capture", "-CUDA graph 0 capture"]


def test_a_torch_without_graphs_is_left_alone() -> None:
    GraphMarks(lambda *_: None).install(SimpleNamespace(cuda=SimpleNamespace()))
