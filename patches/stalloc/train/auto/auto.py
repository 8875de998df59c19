"""STALLOC_MODE=Auto: a run traces its first iterations, has a plan made meanwhile, and takes it up between two later
ones.

Until then weights and the optimizers' state lie together in an arena without a plan, and stay there; everything else is
PyTorch's own allocator's (allocator/runtime/set_up_window.h).

    tracing --N iterations--> planning --the plan is there--> planned
                                       or else                unplanned: all stays as it is, which is said once
    tracing, planning --the program ends--> ended: a whole trace still becomes the next start's plan
    planned --its first iterations request other things than the plan's run did--> planned, with another run's plan
                                       or else, where no known run is that one     tracing

A start that begins with a plan is traced as well until its first iterations have shown whether the plan is its own
(run_choice.py): where it is not, nothing of the run's beginning is missing.

A run whose graphs were captured after its traced iterations is traced for longer in its next start (late_graphs.py).
A run that requests other sizes than its plan has is traced anew, and takes another plan up; seldom, so that it costs
nothing.

Each start has a folder of its own for its trace and the plans made of it (run_files.py). The planner, a process of its
own, makes the run's plan and then one of the run from its beginning, which it leaves in the run's directory: the next
start is served from it at once. No process waits for a planner at its end, unless STALLOC_AUTO_WAIT=1 requests it.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from pathlib import Path
from typing import Any, Optional

from stalloc.core import fit_files, log, run_files, sizes
from stalloc.core.library import Library
from stalloc.core.outcome import LEAST_REPORTED_BYTES, NO_ITERATION, outcome_of, shown
from stalloc.core.run_files import Identity, Paths, identity
from stalloc.core.run_status import RunStatus
from stalloc.train.auto.late_graphs import LateGraphs
from stalloc.train.auto.own_plan import Match, OwnPlan
from stalloc.train.auto.planner import Planner, Preparation
from stalloc.train.auto.run_choice import Choice
from stalloc.train.marking.first_forward import FirstForward
from stalloc.train.marking.marks import Marker

TRACED_ITERATIONS = 6  # where STALLOC_TRACE_STEPS does not say
_MOST_REFUSALS = 5  # iterations in a row in which the plan cannot be taken up: somebody captures a graph
_SEARCH_SECONDS = 4  # a run that waits for its plan gains more by an early one
_MOST_PLANS = 4  # in one run: the library has space for no more
_LOOK_EVERY = 4  # iterations, for whether the run still is what was planned; a further plan is given twice as many

_LAST_ITERATION_SECONDS = 0.1
_FITS_AFTER = 3 * _LOOK_EVERY  # a plan of another program is given up by then

TRACING, PLANNING, PLANNED, UNPLANNED = "tracing", "planning", "planned", "unplanned"
ENDED = "ended"  # before there was a plan


class Auto:
    """One process's way from its trace to its plan. Any thread may report iterations.

    Args:
        choice: of the run that this start is one of.
        taken: identity of the rank's plan before the library looked for one.
    """

    def __init__(
        self,
        library: Library,
        paths: Paths,
        choice: Choice,
        *,
        steps: Optional[int],
        waits: bool = False,
        taken: Optional[Identity] = None,
    ) -> None:
        self._library = library
        self._start = paths.start
        self._paths = paths
        self._waits = waits
        self._taken = taken
        self._own = OwnPlan(library, paths, choice, self._report_moved)
        self._guard = threading.RLock()  # guards all below
        self._inside = False  # an iteration's end is being seen to
        self._over = False
        self._late_graphs = LateGraphs(library, paths, wanted=steps is None and paths.start.kept)
        self._traced_iterations = steps or TRACED_ITERATIONS
        self._from_beginning = max(self._traced_iterations, self._late_graphs.iterations)
        self._to_trace = self._trace_until = self._from_beginning
        self._finished = 0
        self._plans = 0  # that have served
        self._look_at = _LOOK_EVERY
        self._first_fits = False  # it was traced in this start, or served the run for a while
        self._first_was_given_up = False
        self._planned_in = paths  # the files of the planner that runs, or ran last
        self._planner: Optional[Planner] = None
        self._of_next_start: Optional[Planner] = None  # the first one, which plans for the next start as well
        self._planning_seconds: Optional[float] = None  # once the plan is there
        self._refusals = 0
        self._first_forward: Optional[FirstForward] = None
        self._reported_plan = True  # that it begins with an earlier start's, and which
        # None: there is nowhere to keep it, which was said.
        self._status = RunStatus(paths.status, paths.rank) if paths.start.kept else None
        self.stage = TRACING
        stats = library.stats()
        loaded = bool(stats.get("plan_loaded"))
        self._own.plan_is_loaded(loaded)
        self._own.keeps_trace = loaded and self._late_graphs.unplanned and _has_begun(stats)
        if stats.get("degraded"):
            self._enter(UNPLANNED, why=stats["degraded"])  # which the library has said
        elif loaded:
            self._plans = 1
            self._enter(PLANNED, plan=str(paths.first_plan), iteration=0)
            self._reported_plan = False
            log.debug(f"begins with the plan of an earlier start: {shown(paths.first_plan)}")
        else:
            self._await_trace(0)

    def watch_set_up(self, torch: Any, marker: Marker) -> None:
        """What is made before the first forward pass is weights and buffers, wherever the loop begins."""
        self._first_forward = FirstForward(torch, marker.init_ends)

    def iteration_finished(self, iteration: int) -> None:
        """Before the next one begins. Raises nothing: the run goes on, planned or not."""
        with self._guard:
            if self._inside or self._over:  # a signal's handler calls, or a thread that outlives the loop
                return
            self._inside = True
            try:
                self._see_to(iteration)
            except Exception as error:  # whatever it is: a training run does not end for its plan
                self._give_up(str(error) or repr(error))
            finally:
                self._inside = False

    def _see_to(self, iteration: int) -> None:
        self._finished += 1
        if self._first_forward is not None:
            self._first_forward.remove()
            self._first_forward = None
        if self._own.undecided and self.stage in (TRACING, PLANNED):
            self._choose()
        if self._plans and not (self._reported_plan or self._own.undecided):
            self._reported_plan = True
            log.info(f"is served from the plan of an earlier start of this run: {shown(self._paths.first_plan)}")
        if self._own.kept is not None:
            self._take_kept(self._own.kept, iteration)
        elif self.stage == TRACING and self._finished >= self._trace_until:
            self._end_trace()
        elif self.stage == PLANNING:
            self._look_for_plan(iteration)
        elif self.stage == PLANNED and self._finished >= self._look_at:
            self._look_for_departure()
        if self.stage != TRACING:
            self._late_graphs.look(self._finished)
        if self._status is not None:
            self._status.finished(self._finished)

    # Whose plan it is -------------------------------------------------------------------------------------------------

    def _choose(self) -> None:
        """Finds by the first iterations whether the serving plan is this run's, or which known run's plan is."""
        stats = self._library.stats()
        if self.stage == PLANNED and not stats.get("plan_loaded"):  # it is of another device, which had to be seen
            self._own.plan_is_loaded(False)
            self._plans = 0
            self._await_trace(0)
        match = self._own.look(stats, self._finished) if self._own.undecided else Match.NOTHING
        if match is Match.NOBODYS and self.stage == PLANNED:
            self._trace_instead()
        elif match is Match.OWN and self._own.keeps_trace and not self._own.undecided and self.stage == PLANNED:
            self._trace_for_graphs()

    def _trace_for_graphs(self) -> None:
        """The plan that serves does not know the graphs that come."""
        self._await_trace(0)
        log.debug(f"{self._to_trace} iterations are traced for a plan that knows the run's captured graphs")

    def _report_moved(self) -> None:
        """The run is another one than it seemed."""
        self._taken = None  # the plan there is another run's, and stays
        if self._status is not None:
            self._status.move_to(self._paths.status, self._finished, f"it goes on in {self._start.run}")

    def _take_kept(self, kept: Preparation, iteration: int) -> None:
        if not kept.ready(self._waits):
            return
        try:
            if not self._takes_plan(kept.plan):
                return
        except RuntimeError:
            self._own.kept = None
            self._trace_instead()
            return
        self._own.took()
        self._plans += 1
        self._refusals = 0
        self._look_at = self._finished + (_LOOK_EVERY << self._plans)
        self._enter(PLANNED, plan=str(kept.plan), iteration=iteration + 1)
        self._reported_plan = True
        whose = "is served from the plan of an earlier start that requested the same"
        log.info(f"{whose}, from iteration {iteration + 1} on: {shown(kept.plan)}")

    def _trace_instead(self) -> None:
        """No known plan is this run's."""
        self._library.drop_plan()
        self._taken = None
        self._reported_plan = True
        self._plans = 0
        if _has_begun(self._library.stats()):
            self._await_trace(0)
        else:
            self._await_trace(self._trace_anew())
        log.debug(
            f"requests other sizes than the plan that it began with: {self._to_trace} iterations are traced "
            "for a plan of its own"
        )

    # Tracing and planning --------------------------------------------------------------------------------------------

    def _end_trace(self) -> None:
        self._own.stop_trace()
        stats = self._library.stats()
        cause = stats.get("trace", {}).get("write_error")
        if cause:
            raise RuntimeError(f"the trace is not whole: {cause}")
        if self._planned_in is self._paths:
            self._own.claim(stats, self._finished)
            self._late_graphs.traced(self._finished)
        planner = self._plan()
        if self._own.keeps_trace:  # the plan that serves knows all else, and memory is where it has it
            self._own.keeps_trace = False
            self._enter(PLANNED, plan=str(self._paths.first_plan), iteration=self._finished)
            log.debug(f"has traced {self._to_trace} iterations with the run's captured graphs, for the next start")
            return
        self._planner = planner
        peak, held = stats.get("peak_live_bytes", 0), stats.get("held_peak_bytes", 0)
        self._enter(PLANNING, peak_live_bytes=peak, held_peak_bytes=held)
        log.debug(
            f"has traced {self._to_trace} iterations: peak live {sizes.size(peak)}, held "
            f"{sizes.size(held)}; a plan is made meanwhile"
        )
        limit = fit_files.held_limit(os.environ)
        if 0 < limit < held:
            more = f"has held {sizes.size(held)} before its plan, more than the {sizes.size(limit)} of --fit"
            log.info(f"{more}; later starts begin with the plan")

    def _plan(self) -> Planner:
        """Plans the first trace for the next start as well, if that can be kept."""
        paths, options = self._planned_in, ["--running", f"--time-limit={_SEARCH_SECONDS}"]
        first = paths is self._paths and self._start.kept
        if first:
            options.append(f"--next-start={os.getpid()}")
        planner = Planner(paths, options, _leave if self._own.keeps_trace else self._library.prepare_plan)
        if first:
            self._of_next_start = planner
        return planner

    def _look_for_plan(self, iteration: int) -> None:
        assert self._planner is not None
        code = self._planner.await_plan() if self._waits else self._planner.poll()
        if code is None:
            return
        if code != 0:
            self._give_up(f"the planner ended with {code}: {self._planner.words()}")
            return
        seconds = self._planning_seconds = self._planning_seconds or time.monotonic() - self._planner.began
        began = time.monotonic()
        if not self._takes_plan(self._planned_in.running_plan):
            return
        pause = time.monotonic() - began
        plan = self._library.stats().get("plan") or {}
        arena, efficiency = plan.get("arena_bytes", 0), plan.get("efficiency", 0.0)
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
        forecast = f", predicted E {100 * efficiency:.1f} %" if self._plans == 1 else ""
        say = log.info if self._plans == 1 else log.debug
        say(
            f"is served from {'its' if self._plans == 1 else 'another'} plan from iteration {iteration + 1} on: arena "
            f"{sizes.size(arena)}{forecast}, planned in {seconds:.1f} s, taken up in {pause * 1000:.0f} ms"
        )

    def _look_for_departure(self) -> None:
        """The engine judges every iteration whether the run resembles its plan."""
        self._look_at = self._finished + _LOOK_EVERY
        if self._plans == _MOST_PLANS:
            return
        stats = self._library.stats()
        if stats.get("degraded"):
            self._enter(UNPLANNED, why=stats["degraded"])  # which the library has said
            return
        if not stats.get("departed"):
            self._first_fits = self._first_fits or self._finished >= _FITS_AFTER
            return
        if self._plans == 1:
            self._first_was_given_up = bool(stats.get("gave_up"))
        self._await_trace(self._trace_anew())
        log.debug(f"requests other sizes than its plan has: {self._to_trace} iterations are traced anew")

    def _trace_anew(self) -> int:
        """Ends a trace from the middle of the run. `finished`: iterations that are over."""
        self._planned_in = self._paths.again()
        self._library.trace_again(self._planned_in.trace)
        return self._finished

    def _await_trace(self, begun: int) -> None:
        self._to_trace = self._traced_iterations if begun else self._from_beginning
        self._trace_until = begun + self._to_trace
        self._enter(TRACING, to_trace=self._to_trace)

    def _takes_plan(self, plan: Path) -> bool:
        """False: not before this iteration, perhaps before the next one."""
        try:
            self._library.take_plan(plan)
        except RuntimeError:
            self._refusals += 1
            if self._refusals == _MOST_REFUSALS:
                raise
            return False
        return True

    def _give_up(self, why: str) -> None:
        if self.stage == TRACING or self._own.undecided:
            self._own.stop_trace()
        self._enter(UNPLANNED, why=why)
        stays = "no better plan, and goes on as before" if self._plans else "no plan, and stays on PyTorch's allocator"
        log.warning(f"this run has {stays}: {why}")

    def _enter(self, stage: str, **facts: Any) -> None:
        self.stage = stage
        if self._status is not None:
            self._status.enter(stage, self._finished, **facts)

    # The end of the process ------------------------------------------------------------------------------------------

    def finish(self) -> None:
        """Waits for nothing, unless the run waits for its plan."""
        try:
            self._finish()
        finally:
            if self._status is not None:
                self._status.end(self._finished)

    def _finish(self) -> None:
        if self._guard.acquire(timeout=_LAST_ITERATION_SECONDS):  # another thread may be waiting for its plan
            self._guard.release()
        self._over = True
        stats = self._library.stats()
        goes_on = self._end_planners()
        self._drop_unfit(stats)
        if self._own.keeps_trace and self.stage in (TRACING, PLANNING):
            self.stage = PLANNED  # its plan serves all the time
        has_run = bool(self._finished or stats.get("requests"))  # else all is that of the ranks that it has started
        if has_run and self.stage in (TRACING, PLANNING):
            self._ended_early(stats.get("peak_live_bytes", 0), goes_on)
        self._report_outcome(stats)
        if not goes_on:
            self._leave(has_run)

    def _end_planners(self) -> bool:
        """True: one goes on, and sees to the start's folder."""
        first = self._of_next_start
        if self._planner is not None and self._planner is not first:
            self._planner.kill()
        if first is None:
            return False
        if self._waits:
            first.await_end()
        if not first.let_go():
            return True
        if first.code != 0 and self.stage != UNPLANNED:
            log.warning(f"the next start has no plan of this one: {first.words()}")
        return False

    def _drop_unfit(self, stats: dict[str, Any]) -> None:
        """The plan that was taken is of another program: the next start traces anew. Another start's plan stays."""
        gave_up = self._first_was_given_up or (self._plans == 1 and stats.get("gave_up"))
        if not gave_up or self._first_fits or self._taken is None:
            return
        with contextlib.suppress(OSError), run_files.gate(self._paths.directory):
            if identity(self._paths.plan) == self._taken:
                self._paths.plan.unlink(missing_ok=True)

    def _ended_early(self, peak: int, goes_on: bool) -> None:
        """Reports why there was no plan, or no further one."""
        if self._finished == 0:
            why = NO_ITERATION
            if peak >= LEAST_REPORTED_BYTES:
                log.info(f"has nothing to plan: {why}")
        elif self.stage == TRACING:
            why = f"before {self._to_trace} iterations were traced"
        else:
            why = "before its plan was there"
            if self._plans == 0 and (goes_on or self._paths.plan.is_file()):
                log.info(f"ended {why}; it is made for the next start")
        self._enter(ENDED, why=why)

    def _report_outcome(self, stats: dict[str, Any]) -> None:
        if self.stage != PLANNED or stats.get("gave_up") or stats.get("degraded"):
            return
        planned_here = self._planner is not None
        directory = self._planned_in.folder if planned_here else self._paths.directory
        outcome = outcome_of(stats, directory, self._paths.rank)
        if outcome is not None:  # else the run ended where its plan began
            more = f" (stalloc status {shown(self._paths.directory)})" if self._start.kept else ""
            log.info(f"{outcome.brief()}{more}")

    def _leave(self, has_run: bool) -> None:
        """What the run's directory lacks goes there."""
        self._start.keep(self._paths.planner_log)
        if has_run and not self._paths.plan.is_file():
            self._own.stop_trace()
            with contextlib.suppress(OSError), run_files.gate(self._paths.directory):
                self._start.keep(self._paths.trace)
        self._start.leave()


def _leave(_plan: Path) -> None:
    """It is not taken up in this start."""


def _has_begun(stats: dict[str, Any]) -> bool:
    """The trace has, with the process."""
    return bool(stats.get("trace", {}).get("begun"))
