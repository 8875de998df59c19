"""Tokens of the traced micro-batches, written next to the trace for `stalloc plan --max-tokens`.

The longest traced micro-batch shows how much longer those may be that the plan is to serve. The file,
rank00000.tokens.json, has the least and the most tokens of each micro-batch of an iteration, over all traced ones, and
those of the first iterations one by one, by which `stalloc fit` knows how long a layer takes:

    {"least": [310, 402], "most": [988, 1012], "iterations": [[988, 402], [310, 1012]]}
"""

from __future__ import annotations

import json
import operator
from pathlib import Path
from typing import Callable, SupportsIndex

from stalloc.train.marking.side_file import SideFile

_MOST = 64  # iterations one by one; more add nothing


class TokenCounts:
    """The tokens of one rank's trace. Called on the thread that runs the loop. A failed write costs a warning."""

    def __init__(self, path: Path) -> None:
        """Removes what an earlier trace has left: this one may have no tokens."""
        self._current: list[int] = []  # of the iteration that runs, by micro-batch
        self._least: list[int] = []
        self._most: list[int] = []
        self._iterations: list[list[int]] = []
        self._written = True
        self._file = SideFile(path, "the tokens of micro-batches could not be noted")

    def add(self, count: SupportsIndex) -> None:
        """TypeError for anything but a whole number, ValueError below 1."""
        number = operator.index(count)
        if number < 1:
            raise ValueError(f"a micro-batch has at least one token: {number}")
        self._current.append(number)

    def iteration_finished(self) -> None:
        """An iteration that is broken off is not counted: the planner does not plan it, either."""
        if not self._current:
            return
        if len(self._iterations) < _MOST:
            self._iterations.append(self._current)
        self._least = _combined(min, self._least, self._current)
        self._most = _combined(max, self._most, self._current)
        self._current = []
        self._written = False

    def write(self) -> None:
        """Does nothing if no iteration has finished since."""
        if self._written:
            return
        self._written = True
        counts = {"least": self._least, "most": self._most, "iterations": self._iterations}
        self._file.write(json.dumps(counts))


def _combined(choose: Callable[[int, int], int], known: list[int], new: list[int]) -> list[int]:
    """Place by place; what only the longer one has stays."""
    shorter = min(len(known), len(new))
    return [*map(choose, known, new), *known[shorter:], *new[shorter:]]
