"""STALLOC_MODE=Auto: a run traces its first iterations, has a plan made beside it, and takes it up between two others.

Until then weights and the optimizers' state lie together in an arena without a plan, and stay there; everything else is
PyTorch's own allocator's (allocator/runtime/set_up_window.h).

    tracing --N iterations--> planning --the planner ends--> planned
                                                   or else   unplanned: all stays as it is, which is said once
    tracing, planning --the program ends--> ended: a whole trace still becomes the next start's plan

A run that asks for other sizes than its plan has is traced anew, and takes another plan up; seldom, so that it costs
nothing.

The planner is a process of its own at the lowest priority. A second plan, of the run from its beginning, is made after
the first: it lies in the run's directory, and the next start of the same job is served from it at once.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import shutil
import subprocess
import threading
import time
from pathlib import Path
from typing import Any, Callable, Optional

from stalloc._core import _library, _log, _report
from stalloc._core._library import Library
from stalloc._core._outcome import outcome_of
from stalloc._marking._first_forward import FirstForward
from stalloc._marking._marks import Marker
from stalloc._run_status import RunStatus

TRACED_ITERATIONS = 6  # where STALLOC_TRACE_STEPS does not say
_MOST_REFUSALS = 5  # iterations in a row in which the plan cannot be taken up: somebody captures a graph
_SEARCH_SECONDS = 10  # for the next start
_SHORT_SEARCH_SECONDS = 4  # a run that waits for its plan gains more by an early one
_MOST_PLANS = 4  # in one run: the library has room for no more
_LOOK_EVERY = 4  # iterations, for whether the run still is what was planned; a further plan is given twice as many

_LEAST_TOLD_BYTES = 1 << 20  # a program that allocates less has nothing to plan, and is not told

_FITS_AFTER = 3 * _LOOK_EVERY  # a plan of another program is given up by then

TRACING, PLANNING, PLANNED, UNPLANNED = "tracing", "planning", "planned", "unplanned"
ENDED = "ended"  # before there was a plan


@dataclasses.dataclass(frozen=True)
class Paths:
    """One rank's files in the directory of the run."""

    directory: Path
    rank: int
    served_from: int  # the rank whose plan it begins with, where there is one: its own, or a replica's

    @property
    def plan(self) -> Path:
        return self._plan_of(self.rank)

    @property
    def first_plan(self) -> Path:
        return self._plan_of(self.served_from)

    def _plan_of(self, rank: int) -> Path:
        return self.directory / "output" / "plan" / f"rank{rank:05d}.plan"

    @property
    def running_plan(self) -> Path:
        return self.directory / "output" / "plan" / f"rank{self.rank:05d}.running.plan"

    @property
    def trace(self) -> Path:
        return self.directory / "trace" / f"rank{self.rank:05d}.trace"

    def again(self) -> Paths:
        """Of what is traced anew in the middle of the run; the next start has no use for it."""
        return dataclasses.replace(self, directory=self.directory / "again")

    @property
    def report(self) -> Path:
        """Of the plan that was made last."""
        return self.directory / "output" / "trace_analysis" / f"rank{self.rank:05d}.json"

    @property
    def status(self) -> Path:
        return self.directory / "log_output" / f"rank{self.rank:05d}.auto.json"

    @property
    def planner_log(self) -> Path:
        return self.directory / "log_output" / f"rank{self.rank:05d}.planner.log"


class Planner:
    """`stalloc-planner plan` for one rank, beside the run. What it prints goes to a file.

    `afterwards`, where the planner has made a plan, runs beside the run as well; only then it has ended.
    """

    def __init__(
        self, paths: Paths, search_seconds: int, *options: str, afterwards: Optional[Callable[[], None]] = None
    ) -> None:
        command = [str(_library.find_or_raise(_library.PLANNER_NAME)), "plan", str(paths.directory)]
        command += [f"--device={paths.rank}", "--threads=1", f"--time-limit={search_seconds}", "--json", *options]
        paths.planner_log.parent.mkdir(parents=True, exist_ok=True)
        self._log = paths.planner_log
        self.began = time.monotonic()
        with self._log.open("wb") as log:
            # posix_spawn: a process that holds CUDA is not forked.
            self._process = subprocess.Popen(
                [*_lowest_priority(), *command], stdin=subprocess.DEVNULL, stdout=log, stderr=log, close_fds=False
            )
        self._follower: Optional[threading.Thread] = None
        if afterwards is not None:
            self._follower = threading.Thread(target=self._follow, args=(afterwards,), name="stalloc", daemon=True)
            self._follower.start()

    def _follow(self, afterwards: Callable[[], None]) -> None:
        if self._process.wait() != 0:
            return
        with contextlib.suppress(OSError):  # of this thread alone, where the system knows such
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 19)
        with contextlib.suppress(RuntimeError):  # who takes the plan up is told the same
            afterwards()

    def poll(self) -> Optional[int]:
        if self._follower is not None and self._follower.is_alive():
            return None
        return self._process.poll()

    def wait(self) -> int:
        code = self._process.wait()
        if self._follower is not None:
            self._follower.join()
        return code

    def end(self, seconds: float) -> None:
        """It has so long to finish."""
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self._process.terminate()
        self.wait()

    def words(self) -> str:
        """The last of what it said."""
        lines = self._log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        said = [line for line in lines if "error" in line] or lines or ["it said nothing"]
        return said[-1].strip()


def _lowest_priority() -> list[str]:
    nice = shutil.which("nice")
    return [nice, "-n", "19"] if nice is not None else []


def _forecast(report: Path) -> tuple[int, float]:
    """Height of the arena and predicted E, as the planner's report has them; of the device that holds most.

    Raises:
        RuntimeError: it is no such report.
    """
    try:
        devices = json.loads(report.read_text(encoding="utf-8"))["devices"]
        plans = [device["plan"] for device in devices if device["plan"] is not None]
        plan = max(plans, key=lambda plan: int(plan["arena_bytes"]))
        return int(plan["arena_bytes"]), float(plan["predicted"]["efficiency"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RuntimeError(f"{report}: expected the planner's report: {error!r}") from error


class Auto:
    """One process's way from its trace to its plan. Called on the thread that runs the loop."""

    def __init__(self, library: Library, paths: Paths, steps: Optional[int], waits: bool = False) -> None:
        self._library = library
        self._paths = paths
        self._waits = waits
        self._traced_iterations = steps or TRACED_ITERATIONS
        self._trace_until = self._traced_iterations
        self._finished = 0
        self._plans = 0  # that have served
        self._look_at = _LOOK_EVERY
        self._first_fits = False  # it was traced in this start, or served the run for a while
        self._first_was_given_up = False
        self._planned_in = paths  # the files of the planner that runs, or ran last
        self._planner: Optional[Planner] = None
        self._next_start: Optional[Planner] = None
        self._planning_seconds: Optional[float] = None  # once the planner has ended
        self._refusals = 0
        self._first_forward: Optional[FirstForward] = None
        self._status = RunStatus(paths.status, paths.rank)
        self.stage = TRACING
        degraded = library.stats().get("degraded")
        if degraded:
            self._enter(UNPLANNED, why=degraded)  # which the library has said
        elif paths.first_plan.is_file():
            self._plans = 1
            self._enter(PLANNED, plan=str(paths.first_plan), iteration=0)
            _log.line(f"is served from the plan of an earlier start of this run: {paths.first_plan}")
        else:
            self._enter(TRACING, to_trace=self._traced_iterations)

    def watch_set_up(self, torch: Any, marker: Marker) -> None:
        """What is made before the first forward pass is weights and buffers, wherever the loop begins."""
        self._first_forward = FirstForward(torch, marker.init_ends)

    def iteration_finished(self, iteration: int) -> None:
        """Before the next one begins."""
        self._finished += 1
        if self._first_forward is not None:
            self._first_forward.remove()
            self._first_forward = None
        try:
            if self.stage == TRACING and self._finished >= self._trace_until:
                self._end_trace()
            elif self.stage == PLANNING:
                self._look_for_plan(iteration)
            elif self.stage == PLANNED and self._finished >= self._look_at:
                self._look_for_departure()
        except (OSError, RuntimeError) as error:
            self._give_up(str(error))
        self._status.finished(self._finished)

    def _end_trace(self) -> None:
        self._library.stop_trace()
        plan = self._planned_in.running_plan
        self._planner = Planner(
            self._planned_in, _SHORT_SEARCH_SECONDS, "--running", afterwards=lambda: self._library.prepare_plan(plan)
        )
        stats = self._library.stats()
        peak, held = stats.get("peak_live_bytes", 0), stats.get("held_peak_bytes", 0)
        self._enter(PLANNING, peak_live_bytes=peak, held_peak_bytes=held)
        _log.line(
            f"has traced {self._traced_iterations} iterations: peak live {_report.size(peak)}, held "
            f"{_report.size(held)}; a plan is made meanwhile"
        )

    def _look_for_plan(self, iteration: int) -> None:
        assert self._planner is not None
        code = self._planner.wait() if self._waits else self._planner.poll()
        if code is None:
            return
        if code != 0:
            self._give_up(f"the planner ended with {code}: {self._planner.words()}")
            return
        seconds = self._planning_seconds = self._planning_seconds or time.monotonic() - self._planner.began
        arena, efficiency = _forecast(self._planned_in.report)
        began = time.monotonic()
        if not self._takes_plan():
            return
        pause = time.monotonic() - began
        self._plans += 1
        self._first_fits = self._first_fits or self._plans == 1
        self._refusals, self._planning_seconds = 0, None
        self._look_at = self._finished + (_LOOK_EVERY << self._plans)
        self._enter(
            PLANNED,
            iteration=iteration + 1,
            planning_seconds=seconds,
            pause_seconds=pause,
            arena_bytes=arena,
            predicted_efficiency=efficiency,
        )
        forecast = f"predicted E {100 * efficiency:.1f} %" if self._plans == 1 else "beside what lives already"
        _log.line(
            f"is served from {'its' if self._plans == 1 else 'another'} plan from iteration {iteration + 1} on: arena "
            f"{_report.size(arena)}, {forecast}, planned in {seconds:.1f} s beside the run, taken up in "
            f"{pause * 1000:.0f} ms"
        )
        if self._planned_in is self._paths:
            self._next_start = Planner(self._paths, _SEARCH_SECONDS)

    def _look_for_departure(self) -> None:
        """The engine judges every iteration whether the run resembles its plan."""
        self._look_at = self._finished + _LOOK_EVERY
        if self._plans == _MOST_PLANS:
            return
        stats = self._library.stats()
        if not stats.get("departed"):
            self._first_fits = self._first_fits or self._finished >= _FITS_AFTER
            return
        if self._plans == 1:
            self._first_was_given_up = bool(stats.get("gave_up"))
        self._planned_in = self._paths.again()
        self._library.trace_again(self._planned_in.trace)
        self._trace_until = self._finished + self._traced_iterations
        self._enter(TRACING, to_trace=self._traced_iterations)
        _log.line(f"asks for other sizes than its plan has: {self._traced_iterations} iterations are traced anew")

    def _takes_plan(self) -> bool:
        """False: not before this iteration, perhaps before the next one."""
        try:
            self._library.take_plan(self._planned_in.running_plan)
        except RuntimeError:
            self._refusals += 1
            if self._refusals == _MOST_REFUSALS:
                raise
            return False
        return True

    def _give_up(self, why: str) -> None:
        self._enter(UNPLANNED, why=why)
        stays = "no better plan, and goes on as before" if self._plans else "no plan, and stays on PyTorch's allocator"
        _log.warning(f"this run has {stays}: {why}")

    def _enter(self, stage: str, **facts: Any) -> None:
        self.stage = stage
        self._status.enter(stage, self._finished, **facts)

    def _ended_early(self, peak: int) -> None:
        """Tells why there was no plan, or no further one."""
        if self._finished == 0:
            why = "no iteration was seen: step an optimizer of torch's, or call stalloc.iteration() in the loop"
            if peak >= _LEAST_TOLD_BYTES:
                _log.line(f"has nothing planned: {why}")
        elif self.stage == TRACING:
            why = f"before {self._traced_iterations} iterations were traced"
        else:
            why = "before its plan was there"
            if self._next_start is not None and self._plans == 0 and self._next_start.poll() == 0:
                _log.line(f"ended {why}; the next start is served from it")
        self._enter(ENDED, why=why)

    def finish(self) -> None:
        """At the end of the process. What the next start needs may take as long as a short search."""
        try:
            self._finish()
        finally:
            self._status.end(self._finished)

    def _finish(self) -> None:
        if self._planner is not None:
            self._planner.end(0)
        if self.stage == PLANNING and self._plans == 0:
            self._next_start = Planner(self._paths, _SHORT_SEARCH_SECONDS)
        if self._next_start is not None:
            self._next_start.end(2 * _SEARCH_SECONDS)
        stats = self._library.stats()
        gave_up = stats.get("gave_up")
        was_given_up = self._first_was_given_up or (self._plans == 1 and gave_up)
        if (was_given_up and not self._first_fits) or stats.get("degraded"):
            self._paths.plan.unlink(missing_ok=True)  # a plan of another run or device: the next start traces anew
        if self.stage in (TRACING, PLANNING):
            self._ended_early(stats.get("peak_live_bytes", 0))
        if self.stage != PLANNED or gave_up or stats.get("degraded"):
            return
        outcome = outcome_of(stats, self._paths.directory, self._paths.rank)
        if outcome is not None:  # else the run ended where its plan began
            _log.line(f"under its plan: {outcome.told()} (stalloc summary {self._paths.directory})")
