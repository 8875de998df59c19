"""What a program sees of a launch that stalloc refuses."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from stalloc.train import graph_errors

WORDS = "stalloc did not launch CUDA graph 3 of pool 2: it reads what graph 1 of the pool leaves to it"


class Library:
    def __init__(self, follows: bool = True) -> None:
        self.follows = follows
        self.refusals: list[str] = []

    def follows_graphs(self) -> bool:
        return self.follows

    def graph_error(self) -> str:
        return self.refusals.pop() if self.refusals else ""


def torch_with(library: Library) -> Any:
    class CUDAGraph:
        def replay(self) -> str:
            """Launches it."""
            if library.refusals:
                raise RuntimeError("CUDA error: an illegal state")
            return "launched"

    torch = SimpleNamespace(cuda=SimpleNamespace(CUDAGraph=CUDAGraph))
    graph_errors.install(torch, library)
    return torch


def test_a_refused_launch_says_why() -> None:
    library = Library()
    graph = torch_with(library).cuda.CUDAGraph()
    assert graph.replay() == "launched"
    assert graph.replay.__doc__ == "Launches it."
    library.refusals.append(WORDS)
    with pytest.raises(RuntimeError, match=r"^stalloc did not launch CUDA graph 3 of pool 2") as raised:
        graph.replay()
    assert "illegal state" in str(raised.value.__cause__)
    assert graph.replay() == "launched"


def test_other_errors_stay_as_they_are() -> None:
    library = Library()

    def broken(_graph: Any) -> None:
        raise RuntimeError("CUDA error: unspecified launch failure")

    torch = SimpleNamespace(cuda=SimpleNamespace(CUDAGraph=type("CUDAGraph", (), {"replay": broken})))
    graph_errors.install(torch, library)
    with pytest.raises(RuntimeError, match=r"^CUDA error: unspecified launch failure"):
        torch.cuda.CUDAGraph().replay()


@pytest.mark.parametrize("torch", [SimpleNamespace(cuda=SimpleNamespace()), None])
def test_where_no_launch_is_refused_nothing_is_replaced(torch: Any) -> None:
    if torch is not None:
        graph_errors.install(torch, Library())
        assert not vars(torch.cuda)
        return
    untouched = torch_with(Library(follows=False)).cuda.CUDAGraph
    assert not hasattr(untouched.replay, "__wrapped__")
