"""CUDA graphs on a GPU, in every mode, while our memory is in use: results are right, errors are torch's.

The cases are functions of programs/graph_cases.py, which assert what each is about.
"""

from __future__ import annotations

from typing import Any

import pytest
from gpu_process import MODES, ModedAdapter

pytestmark = pytest.mark.gpu

PROGRAM = "graph_cases.py"
GRAPHS = ["shared", "apart", "poison"]  # of STALLOC_GRAPHS
CASES = ["graphed_callables", "shared_pool", "input_of_a_mempool", "capture_fails", "out_of_memory_in_capture"]


@pytest.mark.parametrize("case", CASES)
def test_graphs_are_right_beside_blocks_of_ours(moded: ModedAdapter, case: str) -> None:
    result = moded.case(case, PROGRAM)
    assert result["served"] == (moded.name != "fast"), "the case must have met our memory"


def test_the_arena_makes_room_before_a_capture(moded: ModedAdapter) -> None:
    assert moded.case("makes_room", PROGRAM)["made_room"] == (moded.name == "alloc")


def run_with(moded: ModedAdapter, graphs: str, case: str) -> dict[str, Any]:
    """A case's result under STALLOC_GRAPHS=`graphs`. Poison fills, and nothing else does."""
    result = moded.case(case, PROGRAM, STALLOC_GRAPHS=graphs)
    assert (result["filled_bytes"] > 0) == (graphs == "poison")
    return result


@pytest.mark.parametrize("graphs", GRAPHS)
def test_a_graphs_dead_bytes_serve_other_tensors(moded: ModedAdapter, graphs: str) -> None:
    result = run_with(moded, graphs, "lends")
    lends = graphs != "apart" and moded.name == "alloc"
    assert result["lent"] == lends
    assert result["surprises"] == (1 if lends else 0)
    assert result["served"] == (moded.name != "fast")


@pytest.mark.parametrize("graphs", GRAPHS)
def test_what_a_graph_leaves_to_another_is_never_lost(moded: ModedAdapter, graphs: str) -> None:
    result = run_with(moded, graphs, "carries")
    if graphs == "apart" or moded.name != "alloc":
        assert result["refused"] == ""
    if result["refused"] or (graphs == "poison" and moded.name == "alloc"):
        assert "did not launch CUDA graph 2 of pool" in result["refused"]
        assert "what graph 1 of the pool leaves to it" in result["refused"]


@pytest.mark.parametrize("case", [*CASES, "followed"])
def test_graphs_are_right_under_poison(moded: ModedAdapter, case: str) -> None:
    assert moded.case(case, PROGRAM, STALLOC_GRAPHS="poison")


@pytest.mark.parametrize("graphs", GRAPHS)
def test_a_read_of_idle_bytes_shows_under_poison(moded: ModedAdapter, graphs: str) -> None:
    result = run_with(moded, graphs, "reads_idle")
    assert result["filled"] == [graphs == "poison"] * 4


def test_captures_and_launches_are_followed(moded: ModedAdapter) -> None:
    result = moded.run("graph_cases.py", "followed", **MODES[moded.name]).result
    assert result["followed"]
    (figures,) = result["figures"]
    assert (figures["captures"], figures["requests"]) == (2, 4)
    assert figures["lendable_bytes"] == 4 << 20, "what is carried; the second's result lies where the dead block did"
    assert (figures["open"], figures["not_followed"]) == (False, None)
    assert result["gone"] == "all of its graphs are gone"


def test_graphs_that_can_be_launched_unseen_are_not_followed(moded: ModedAdapter) -> None:
    result = moded.run("graph_cases.py", "not_followed", **MODES[moded.name]).result
    assert result["why"] == ["the program has the handle of a graph of it", None], (
        "a state that is taken changes nothing"
    )
