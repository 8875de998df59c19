"""Real training on the CPU: whatever the adapter does, losses and weights are those of plain torch, bit for bit."""

from __future__ import annotations

import dataclasses
import functools
import shutil
from pathlib import Path
from typing import Any, Optional

import pytest
from adapter_process import PROGRAMS, Adapter

# The demo with recomputation, a step of the gate, asks for as much.
KINDS = ["transformer", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("recompute", "mlp"))]
STEPS = ("--steps", "10")


def trained(adapter: Adapter, *arguments: str, mode: Optional[str] = "Trace", **variables: str) -> dict[str, Any]:
    result: dict[str, Any] = adapter.run("train.py", *STEPS, *arguments, mode=mode, **variables).result
    return result


def same(left: dict[str, Any], right: dict[str, Any]) -> bool:
    return bool(left["losses"] == right["losses"] and left["weights"] == right["weights"])


@dataclasses.dataclass(frozen=True)
class Traced:
    """A directory with the exact trace and the plan of one kind of training, and what the traced run printed."""

    adapter: Adapter
    result: dict[str, Any]


class Runs:
    """Runs that several tests compare with, each made once."""

    def __init__(self, library: Path, root: Path) -> None:
        self._library = library
        self._root = root

    @functools.cache  # noqa: B019 - lives as long as the session
    def plain(self, *arguments: str) -> dict[str, Any]:
        directory = self._root / f"plain-{'-'.join(arguments)}"
        directory.mkdir()
        return trained(Adapter(self._library, PROGRAMS, directory), *arguments, mode=None)

    @functools.cache  # noqa: B019
    def traced(self, kind: str) -> Traced:
        directory = self._root / f"traced-{kind}"
        directory.mkdir()
        adapter = Adapter(self._library, PROGRAMS, directory)
        return Traced(adapter, trained(adapter, kind, "--install"))

    def planned(self, kind: str, directory: Path) -> Adapter:
        """An adapter on `directory`, which gets the plan of that kind."""
        traced = self.traced(kind)
        if not (traced.adapter.directory / "output").exists():
            traced.adapter.plan()
        shutil.copytree(traced.adapter.directory / "output", directory / "output")
        return Adapter(self._library, PROGRAMS, directory)


@pytest.fixture(scope="session")
def runs(library: Path, tmp_path_factory: pytest.TempPathFactory) -> Runs:
    return Runs(library, tmp_path_factory.mktemp("training"))


def check_trace(adapter: Adapter, result: dict[str, Any], server: str) -> None:
    stats = result["stats"]
    assert stats["requests"] > 200
    assert stats[server] == stats["requests"]
    assert stats["unknown_frees"] == 0
    assert stats["trace"]["events"] > stats["requests"]
    summary = adapter.summary()
    assert summary["requests"] >= stats["requests"]
    assert summary["peak_live_bytes"] > 0


@pytest.mark.parametrize("kind", KINDS)
def test_exact_tracing_changes_no_bit_and_sees_every_request(runs: Runs, kind: str) -> None:
    traced = runs.traced(kind)
    assert same(runs.plain(kind), traced.result)
    check_trace(traced.adapter, traced.result, "heap_hits")


def test_fast_tracing_changes_no_bit_and_sees_every_request(runs: Runs, adapter: Adapter) -> None:
    traced = trained(adapter, "transformer", "--install", STALLOC_TRACE_FAST_MODE="1")
    assert same(runs.plain("transformer"), traced)
    check_trace(adapter, traced, "upstream")
    assert traced["stats"]["requests"] == runs.traced("transformer").result["stats"]["requests"]


def test_tracing_without_marks_changes_no_bit(runs: Runs, adapter: Adapter) -> None:
    assert same(runs.plain("transformer"), trained(adapter, "transformer", "--install", "--no-marks"))


@pytest.mark.every_torch
@pytest.mark.parametrize("kind", KINDS)
def test_a_planned_run_changes_no_bit_and_is_served_from_the_arena(runs: Runs, tmp_path: Path, kind: str) -> None:
    planned = trained(runs.planned(kind, tmp_path), kind, "--install", mode="Alloc")
    assert same(runs.plain(kind), planned)
    stats = planned["stats"]
    assert stats["degraded"] is None
    assert stats["steady"]["hits"] >= 0.999 * stats["steady"]["requests"] > 100
    assert stats["unknown_frees"] == 0


def test_what_a_validation_before_training_leaves_behind_is_in_no_slots_way(runs: Runs, adapter: Adapter) -> None:
    arguments = ("transformer", "--validate-first")
    traced = trained(adapter, *arguments, "--install")
    adapter.plan()
    planned = trained(adapter, *arguments, "--install", mode="Alloc")
    assert same(runs.plain(*arguments), planned)
    assert same(traced, planned)
    stats = planned["stats"]
    assert stats["steady"]["hits"] >= 0.999 * stats["steady"]["requests"] > 100
    summary = adapter.summary()
    assert not summary["gave_up"]
    assert summary["arena_bytes"] > 0


def test_a_run_that_diverges_from_its_plan_is_right_and_loses_little(runs: Runs, tmp_path: Path) -> None:
    extra = ("transformer", "--extra-from", "4")
    planned = trained(runs.planned("transformer", tmp_path), *extra, "--install", mode="Alloc")
    assert same(runs.plain(*extra), planned)
    stats = planned["stats"]
    assert stats["steady"]["hits"] >= 0.9 * stats["steady"]["requests"], "one extra request costs that request only"


@pytest.mark.every_torch
def test_a_child_forked_in_a_planned_run_has_the_weights_and_cannot_change_the_parents(
    runs: Runs, tmp_path: Path
) -> None:
    fork = ("transformer", "--fork-at", "5")
    planned = trained(runs.planned("transformer", tmp_path), *fork, "--install", mode="Alloc")
    assert planned["children"] == [0]
    assert same(runs.plain(*fork), planned)
    assert planned["stats"]["planned_hits"] > 0
    assert planned["stats"]["unknown_frees"] == 0
