"""Graphs that a run captures after its traced iterations: its next start is traced until they are launched.

A plan cannot use pools of graphs that it does not know. The needed length of the trace is kept next to its plans:

    {"captured_by": 12, "traced": 6}     graphs came up to iteration 12, the plan knows what came up to iteration 6

So a start is traced once more, while its plan serves to its end, and the start after that has the graphs in its plan.
Not thread-safe: Auto's guard is held.
"""

from __future__ import annotations

import contextlib
import json

from stalloc.core.files import write_whole
from stalloc.core.library import Library
from stalloc.core.run_files import Paths

_LAUNCHES = 3  # iterations that are traced after the last capture
_MOST = 64  # iterations: a trace of more costs more than it brings


class LateGraphs:
    """The late graphs of one start.

    Args:
        wanted: False: the user has said how many iterations are traced, or nothing is kept.
    """

    def __init__(self, library: Library, paths: Paths, wanted: bool) -> None:
        self._library = library
        self._paths = paths
        self._wanted = wanted and library.follows_graphs()
        self._captured_by, self._traced = self._read() if self._wanted else (0, 0)
        self._captures = 0

    @property
    def iterations(self) -> int:
        """The iterations of a trace from the run's beginning that covers these graphs; 0: as many as usual."""
        return self._captured_by + _LAUNCHES if 0 < self._captured_by <= _MOST else 0

    @property
    def unplanned(self) -> bool:
        """The plan knows less of them than there is to know."""
        return self.iterations > 0 and self._traced < self._captured_by

    def traced(self, finished: int) -> None:
        """The run's plan is made of so many iterations from its beginning. OSError: that cannot be kept."""
        if not self._wanted:
            return
        self._captures, self._traced = self._count(), finished
        if self._captures or self._captured_by:
            self._write()

    def look(self, finished: int) -> None:
        """After so many iterations: have there been further captures?"""
        if not self._wanted or finished > _MOST:
            return
        before, self._captures = self._captures, self._count()
        if self._captures > before and finished > max(self._traced, self._captured_by):
            self._captured_by = finished
            with contextlib.suppress(OSError):  # the next start has a plan without them, as this one
                self._write()

    def _count(self) -> int:
        return sum(pool["captures"] for pool in self._library.graphs().get("pools", ()))

    def _read(self) -> tuple[int, int]:
        """Reads the file. A missing or unreadable one costs a trace."""
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            found = json.loads(self._paths.late_graphs.read_text(encoding="utf-8"))
            return int(found["captured_by"]), int(found["traced"])
        return 0, 0

    def _write(self) -> None:
        self._paths.late_graphs.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps({"captured_by": self._captured_by, "traced": self._traced})
        write_whole(self._paths.late_graphs, text.encode())
