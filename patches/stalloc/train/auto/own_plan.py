"""Sees to it that a start under STALLOC_MODE=Auto is served from its own plan, and leaves one where the next finds it.

The requests of a start show which run it is one of (run_choice.py). Where that is another run than the one that it
began in, its folder, its status and its summary go there. Called with Auto's guard held.
"""

from __future__ import annotations

import contextlib
import enum
from pathlib import Path
from typing import Any, Callable, Optional

from stalloc.core.library import Library
from stalloc.core.run_files import Paths
from stalloc.core.run_signature import Signature
from stalloc.train.auto.planner import Preparation
from stalloc.train.auto.run_choice import Candidate, Choice


class Match(enum.Enum):
    """The result of the iterations so far for the serving plan."""

    NOTHING = "nothing"
    OWN = "own"
    KNOWN = "known"  # a known run's plan is this start's, and does not serve yet; it is being prepared
    NOBODYS = "nobodys"


class OwnPlan:
    """The choice of one start.

    Args:
        moved: called when the start has become another run's.
    """

    def __init__(self, library: Library, paths: Paths, choice: Choice, moved: Callable[[], None]) -> None:
        self._library = library
        self._paths = paths
        self._choice = choice
        self._moved = moved
        self.kept: Optional[Preparation] = None  # of another plan, until it is taken up
        self.keeps_trace = False  # though the plan is this start's; no longer once it is another's
        self._took = False  # one that was prepared
        self._served_from: Optional[Path] = None  # the run whose plan serves, or is prepared

    @property
    def undecided(self) -> bool:
        """Iterations are looked at."""
        return self._choice.open

    def plan_is_loaded(self, loaded: bool) -> None:
        """Whether a plan serves: one of another device does not."""
        self._choice.plan_is_loaded(loaded, self._paths.served_from)
        self._served_from = self._paths.directory if loaded else None
        self.keeps_trace = self.keeps_trace and loaded

    def look(self, stats: dict[str, Any], finished: int) -> Match:
        """After so many iterations."""
        if stats.get("left_plan") and self.kept is None and not self._took:
            self._served_from = None
        found = self._choice.look(self._signature(stats, finished), finished)
        if found is None:
            return Match.NOTHING
        if found.candidate is None:
            self.kept, self.keeps_trace = None, False
            return Match.NOBODYS
        if found.candidate.directory == self._served_from:
            if self.kept is None:
                self._confirm_if_decided()
            return Match.OWN
        self.keeps_trace = False
        if self._goes_over_to(found.candidate):
            return Match.KNOWN
        return Match.NOTHING if self._choice.open else Match.NOBODYS

    def took(self) -> None:
        """What was prepared is taken up."""
        self.kept = None
        self._took = True
        self._confirm_if_decided()

    def _signature(self, stats: dict[str, Any], finished: int) -> Optional[Signature]:
        device = str(stats.get("device_name") or "")
        return Signature.of_run(self._library.signature(), finished, device, self._choice.changes)

    def _confirm_if_decided(self) -> None:
        """The plan that serves is this start's: no trace is needed."""
        if self._choice.open:
            return
        if not self.keeps_trace:
            self.stop_trace()
            self._paths.trace.unlink(missing_ok=True)
        self._choice.confirm()

    def stop_trace(self) -> None:
        with contextlib.suppress(RuntimeError):  # of the summary, which is written as well; the trace has ended
            self._library.stop_trace()

    def _goes_over_to(self, candidate: Candidate) -> bool:
        if not candidate.running_plan.is_file():
            return False
        if candidate.directory != self._paths.directory:
            try:
                self._choice.start.move_to(candidate.directory, lambda: True)
            except OSError:
                return False
            self._move()
        self._served_from = candidate.directory
        self.kept = Preparation(candidate.running_plan, self._library.prepare_plan)
        return True

    def claim(self, stats: dict[str, Any], finished: int) -> None:
        """The plan of what was traced gets its place. OSError: nothing can be written."""
        signature = self._signature(stats, finished)
        if signature is not None and self._choice.claim(signature):
            self._move()

    def _move(self) -> None:
        self._library.move_run(self._paths.directory)
        self._moved()
