"""What goes wrong between two iterations under Auto costs the plan, never the run; and any thread may end one."""

from __future__ import annotations

import json
import signal
import threading
import time
from pathlib import Path
from typing import Any, Callable, cast

import pytest

from stalloc.core.files import write_whole
from stalloc.core.library import Library
from stalloc.core.run_files import Paths, Start, identity
from stalloc.train.auto import auto as _auto
from stalloc.train.auto.run_choice import Candidate, Choice


class TracingLibrary:
    """Traces; `fault` is called with the name of each function."""

    def __init__(self, fault: Callable[[str], object] = lambda _: None) -> None:
        self.fault = fault
        self.write_error = ""
        self.stopped = 0
        self.taken = 0

    def stats(self) -> dict[str, Any]:
        self.fault("stats")
        trace = {"begun": True, "write_error": self.write_error or None}
        return {"peak_live_bytes": 1 << 20, "held_peak_bytes": 1 << 20, "trace": trace}

    def stop_trace(self) -> None:
        self.fault("stop_trace")
        self.stopped += 1

    def signature(self) -> dict[str, Any]:
        self.fault("signature")
        return {}

    def prepare_plan(self, path: Path) -> None:
        self.fault("prepare_plan")

    def take_plan(self, path: Path) -> None:
        self.fault("take_plan")
        self.taken += 1


class CountedPlanner:
    """Its plan is there at once."""

    made: list[CountedPlanner]
    began = 0.0
    code = 0

    def __init__(self, paths: Paths, *_: Any) -> None:
        type(self).made.append(self)
        report = {"devices": [{"plan": {"arena_bytes": 1, "predicted": {"efficiency": 1.0}}}]}
        write_whole(paths.report, json.dumps(report).encode())

    def poll(self) -> int:
        return 0

    def let_go(self) -> bool:
        return True

    def await_end(self) -> None:
        pass


@pytest.fixture(autouse=True)
def planners(monkeypatch: pytest.MonkeyPatch) -> list[CountedPlanner]:
    CountedPlanner.made = []
    monkeypatch.setattr(_auto, "Planner", CountedPlanner)
    return CountedPlanner.made


def auto_of(library: TracingLibrary, run: Path, steps: int = 2) -> _auto.Auto:
    start = Start.begin(run)
    return _auto.Auto(cast(Library, library), Paths(start, 0, 0), Choice(start, None, 0), steps=steps)


@pytest.mark.parametrize("where", ["stats", "signature", "take_plan"])
@pytest.mark.parametrize("error", [ValueError("no JSON"), KeyError("trace"), MemoryError(), OSError(28, "full")])
def test_no_error_reaches_the_loop(
    where: str, error: Exception, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    library = TracingLibrary()
    auto = auto_of(library, tmp_path)

    def raises(name: str) -> None:
        if name == where:
            raise error

    library.fault = raises
    for iteration in range(20):
        auto.iteration_finished(iteration)
    assert auto.stage == _auto.UNPLANNED
    assert capsys.readouterr().err.count("this run has no plan") == 1
    library.fault = lambda _: None
    auto.finish()


def test_a_trace_that_a_full_disk_has_ended_is_named_as_the_cause(
    tmp_path: Path, planners: list[CountedPlanner], capsys: pytest.CaptureFixture[str]
) -> None:
    library = TracingLibrary()
    library.write_error = "rank00000.trace: cannot write the trace after byte 8: No space left on device"
    auto = auto_of(library, tmp_path)
    for iteration in range(3):
        auto.iteration_finished(iteration)
    assert auto.stage == _auto.UNPLANNED
    assert "the trace is not whole: rank00000.trace: cannot write" in capsys.readouterr().err
    assert not planners


def test_a_planner_that_cannot_be_started_costs_the_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(*_: Any) -> None:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(_auto, "Planner", refuses)
    auto = auto_of(TracingLibrary(), tmp_path)
    for iteration in range(5):
        auto.iteration_finished(iteration)
    assert auto.stage == _auto.UNPLANNED
    auto.finish()
    assert not (tmp_path / "starts").exists()


def test_any_thread_may_end_an_iteration(tmp_path: Path, planners: list[CountedPlanner]) -> None:
    library = TracingLibrary(lambda _: time.sleep(0.001))
    auto = auto_of(library, tmp_path, steps=8)
    threads = [
        threading.Thread(target=lambda: [auto.iteration_finished(iteration) for iteration in range(10)])
        for _ in range(6)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert auto.stage == _auto.PLANNED
    assert (len(planners), library.stopped, library.taken) == (1, 1, 1)


def test_a_signals_handler_may_end_an_iteration_within_an_iterations_end(
    tmp_path: Path, planners: list[CountedPlanner]
) -> None:
    library = TracingLibrary()
    auto = auto_of(library, tmp_path)
    before = signal.signal(signal.SIGUSR1, lambda *_: auto.iteration_finished(0))
    try:
        library.fault = lambda _: signal.raise_signal(signal.SIGUSR1)
        for iteration in range(4):
            auto.iteration_finished(iteration)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert auto.stage == _auto.PLANNED
    assert (len(planners), library.taken) == (1, 1)


def test_the_end_does_not_wait_for_another_threads_iteration(tmp_path: Path) -> None:
    waits, library = threading.Event(), TracingLibrary()
    auto = auto_of(library, tmp_path, steps=1)
    library.fault = lambda name: name == "stop_trace" and waits.wait(60)
    thread = threading.Thread(target=auto.iteration_finished, args=(0,))
    thread.start()
    time.sleep(0.05)
    library.fault = lambda _: None
    began = time.monotonic()
    auto.finish()
    assert time.monotonic() - began < 5
    waits.set()
    thread.join()
    auto.iteration_finished(1)
    assert auto.stage != _auto.PLANNED, "nothing is begun after the end"


def test_a_plan_that_was_of_another_device_is_traced_anew(tmp_path: Path, planners: list[CountedPlanner]) -> None:
    """Which the library knows when the device is used for the first time: within the first iteration."""

    class LateLibrary(TracingLibrary):
        loaded = True

        def stats(self) -> dict[str, Any]:
            return {**super().stats(), "plan_loaded": self.loaded}

    library = LateLibrary()
    auto = auto_of(library, tmp_path, steps=6)
    assert auto.stage == _auto.PLANNED
    library.loaded = False
    auto.iteration_finished(0)
    assert auto.stage == _auto.TRACING
    for iteration in range(1, 7):
        auto.iteration_finished(iteration)
    assert auto.stage == _auto.PLANNED
    assert len(planners) == library.taken == 1


# Which plan stays ---------------------------------------------------------------------------------------------------


class RefusingLibrary(TracingLibrary):
    """As while somebody captures a graph: plans are taken up from the `willing`-th try on."""

    def __init__(self, willing: int) -> None:
        super().__init__()
        self.willing = willing
        self.tries = 0

    def take_plan(self, path: Path) -> None:
        self.tries += 1
        if self.tries < self.willing:
            raise RuntimeError("a graph is being captured")


@pytest.mark.parametrize(("willing", "stage"), [(3, _auto.PLANNED), (100, _auto.UNPLANNED)])
def test_a_plan_that_is_refused_is_tried_again(willing: int, stage: str, tmp_path: Path) -> None:
    library = RefusingLibrary(willing)
    auto = auto_of(library, tmp_path, steps=1)
    for iteration in range(20):
        auto.iteration_finished(iteration)
    assert auto.stage == stage
    assert library.tries == min(willing, 5)


class DepartingLibrary(RefusingLibrary):
    """The plan that it began with is given up at an iteration."""

    def __init__(self) -> None:
        super().__init__(willing=0)
        self.given_up = False

    def stats(self) -> dict[str, Any]:
        return {"departed": self.given_up, "gave_up": self.given_up, "plan_loaded": True}

    def trace_again(self, path: Path) -> None:
        pass


@pytest.mark.parametrize(("departs_at", "kept"), [(3, False), (20, True)])
def test_a_plan_that_fitted_at_first_serves_the_next_start_too(departs_at: int, kept: bool, tmp_path: Path) -> None:
    assert remains(DepartingLibrary(), tmp_path, departs_at) == kept


def test_a_plan_that_another_start_has_left_meanwhile_stays(tmp_path: Path) -> None:
    assert remains(DepartingLibrary(), tmp_path, 3, left_meanwhile=True)


class DegradedLibrary(DepartingLibrary):
    """It found no room for its arena, or could not trace."""

    def stats(self) -> dict[str, Any]:
        return {**super().stats(), "degraded": "no room"}


def test_a_start_that_is_served_from_no_plan_leaves_the_one_that_there_is(tmp_path: Path) -> None:
    assert remains(DegradedLibrary(), tmp_path, 3)


def remains(library: DepartingLibrary, directory: Path, departs_at: int, left_meanwhile: bool = False) -> bool:
    """Whether the plan does that a start found, when it has ended."""
    start = Start.begin(directory)
    paths = Paths(start, 0, 0)
    write_whole(paths.plan, b"of an earlier start")
    choice = Choice(start, None, 0, guess=Candidate(directory, 0))
    auto = _auto.Auto(cast(Library, library), paths, choice, steps=6, taken=identity(paths.plan))
    for iteration in range(departs_at + 5):
        library.given_up = iteration >= departs_at
        auto.iteration_finished(iteration)
    assert auto.stage == (_auto.UNPLANNED if library.stats().get("degraded") else _auto.TRACING)
    if left_meanwhile:
        write_whole(paths.plan, b"of another start")
    auto.finish()
    return paths.plan.exists()
