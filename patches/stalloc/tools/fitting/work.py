"""The work of a step: how many micro-batches of which size, given the rows of a micro-batch. Pure.

Sizes of micro-batches are multiples of the largest that was traced. Without lengths they are proportional to
the rows. With lengths of the run's rows a micro-batch has as many tokens as its longest row times its rows, or the sum
of them where rows are packed one after the other without padding. Attention grows with the square of rows' lengths;
that of packed rows with the square of their sum, where the program does not keep them apart.
"""

from __future__ import annotations

import collections
import dataclasses
from typing import Any, Optional

Each = tuple[float, float, float]  # how often in a step, size, square


@dataclasses.dataclass(frozen=True)
class Load:
    """The work of a step: its micro-batches, the sum of their sizes, and, over that of the largest traced one, the sum
    of the squares of their rows' lengths."""

    count: float
    size: float
    square: float
    each: tuple[Each, ...] = dataclasses.field(default=(), compare=False)  # parts of these sums; (): alike

    def as_json(self) -> dict[str, Any]:
        """The request's form for the planner."""
        return {"count": self.count, "size": self.size, "square": self.square, "each": self.each}


@dataclasses.dataclass(frozen=True)
class Lengths:
    """Tokens of the rows of a run, as it takes them or in any order."""

    tokens: tuple[int, ...]
    traced: float = 0.0  # tokens of the largest traced micro-batch, padding included
    packed: bool = False  # rows lie one after the other, and nothing is padded
    together: bool = False  # attention takes packed rows for one
    in_order: bool = False  # the run takes them in this order; else the largest micro-batch has the longest rows
    timed: tuple[int, ...] = ()  # of the steps whose time is requested; none: all

    def of(self, rows: tuple[int, ...]) -> int:
        """Tokens of a micro-batch with these rows."""
        return sum(rows) if self.packed else len(rows) * max(rows)

    def square_of(self, rows: tuple[int, ...], traced: int) -> float:
        """The squares of their lengths, padding included, over that of the largest traced micro-batch, whose rows
        (`traced`) are alike."""
        if self.together:
            return (sum(rows) / self.traced) ** 2
        squares = sum(row * row for row in rows) if self.packed else len(rows) * max(rows) ** 2
        return squares * traced / self.traced**2


@dataclasses.dataclass(frozen=True)
class Work:
    """The work of steps. Rows are sequences, or any other unit that a micro-batch is counted in."""

    traced: int = 1  # rows of a micro-batch, as it was traced
    accumulation: int = 1  # micro-batches of a traced step
    rows: Optional[int] = None  # of a step, whatever its micro-batches; None: about as many as were traced
    divides: bool = False  # micro-batches divide a step's rows: the framework knows no smaller last one
    least: int = 1  # rows of a micro-batch that is worth a try, where `rows` are given
    keeps_accumulation: bool = False  # a step has as many micro-batches whatever their size
    usual: float = 1.0  # without lengths: the mean of a run's micro-batches, over the largest
    lengths: Optional[Lengths] = None
    longer: bool = False  # a larger micro-batch has longer rows, and as many of them

    def count(self, micro_batch: int) -> int:
        """Micro-batches of a step."""
        if self.keeps_accumulation:
            return self.accumulation
        if self.rows is not None:
            return -(-self.rows // micro_batch)
        return max(1, round(self.accumulation * self.traced / micro_batch))

    def rows_of_step(self, micro_batch: int) -> int:
        return micro_batch * self.count(micro_batch) if self.rows is None else self.rows

    def sizes(self) -> Optional[list[int]]:
        """Micro-batches that are worth a try, ascending; None: any."""
        if self.rows is None:
            return None
        if self.divides:
            return [size for size in range(self.least, self.rows + 1) if self.rows % size == 0]
        sizes = {-(-self.rows // count) for count in range(1, self.rows + 1)}
        return sorted(size for size in sizes if size >= self.least)

    def largest(self, micro_batch: int) -> float:
        """The largest micro-batch of the run, over the largest traced one."""
        return max(self.largest_of_step(micro_batch))

    def largest_of_step(self, micro_batch: int) -> tuple[float, float]:
        """The same for the first of each step, and for the later ones: while these run, gradients are live.
        One number twice where any may come first, or a step has one."""
        lengths = self.lengths
        if lengths is None:
            return (micro_batch / self.traced,) * 2
        if lengths.in_order:
            steps = self._steps(micro_batch, lengths.tokens)
            first, later = [step[0] for step in steps], [rows for step in steps for rows in step[1:]]
            largest = [max(map(lengths.of, rows)) / lengths.traced for rows in (first, later or first)]
            return largest[0], largest[1]
        longest = sorted(lengths.tokens)[-micro_batch:]
        longest += longest[-1:] * (micro_batch - len(longest))
        return (lengths.of(tuple(longest)) / lengths.traced,) * 2

    def load(self, micro_batch: int) -> Load:
        """The load of a step, a mean over steps. Sizes are over the largest traced micro-batch."""
        count, lengths = self.count(micro_batch), self.lengths
        if lengths is None:
            size = self.usual * self.rows_of_step(micro_batch) / self.traced
            return Load(count, size, size * (size / count if self.longer else self.usual))
        tokens = lengths.timed or lengths.tokens
        steps = len(tokens) / self.rows_of_step(micro_batch)
        often = collections.Counter(
            (lengths.of(rows) / lengths.traced, lengths.square_of(rows, self.traced))
            for step in self._steps(micro_batch, tokens)
            for rows in step
        )
        each = tuple((times / steps, size, square) for (size, square), times in often.items())
        size, square = (sum(one[0] * one[i] for one in each) for i in (1, 2))
        return Load(count, size, square, each)

    def _steps(self, micro_batch: int, tokens: tuple[int, ...]) -> list[list[tuple[int, ...]]]:
        """Rows of micro-batches, as they follow each other."""
        found = []
        step = self.rows_of_step(micro_batch)
        for begin in range(0, len(tokens), step):
            end = min(begin + step, len(tokens))
            found.append([tokens[i : min(i + micro_batch, end)] for i in range(begin, end, micro_batch)])
        return found
