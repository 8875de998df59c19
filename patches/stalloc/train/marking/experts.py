"""Tokens that each expert of this rank received, written next to the trace for `stalloc report`.

A line for each iteration and layer, as Megatron-LM's --save-tokens-per-expert-interval has them (there only of
TransformerEngine's experts): {"iter": 1, "layer": 3, "tpe": [[128, 64], [96, 80]]}, a list for each micro-batch with a
number for each expert; iterations count from 1. The file is rank00000.experts.jsonl.
"""

from __future__ import annotations

import json
from pathlib import Path

from stalloc.train.marking.side_file import SideFile


class ExpertTokens:
    """The tokens of one rank's trace. Called on the thread that runs the loop. What cannot be written costs a
    warning."""

    def __init__(self, path: Path) -> None:
        """Removes what an earlier trace has left."""
        self._current: dict[int, list[list[int]]] = {}  # of the iteration that runs, by layer
        self._lines: list[str] = []
        self._written = True
        self._file = SideFile(path, "the tokens of experts could not be noted")

    def add(self, layer: int, counts: list[int]) -> None:
        """Adds one micro-batch."""
        self._current.setdefault(layer, []).append(counts)

    def iteration_finished(self, iteration: int) -> None:
        for layer, counts in sorted(self._current.items()):
            self._lines.append(json.dumps({"iter": iteration + 1, "layer": layer, "tpe": counts}))
            self._written = False
        self._current = {}

    def write(self) -> None:
        """Does nothing if no iteration has finished since."""
        if self._written:
            return
        self._written = True
        self._file.write("".join(f"{line}\n" for line in self._lines))
