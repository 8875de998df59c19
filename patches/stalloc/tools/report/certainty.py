"""Whether figures for another micro-batch than the traced one are estimates or bounds, and why."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Optional, TypedDict

from stalloc.core.sizes import size as size_of
from stalloc.tools.report import findings

ESTIMATE, AT_LEAST, AT_MOST = "estimate", "at least", "at most"
_WITHIN = 0.05  # of the second trace's peak: a fit that is further off has missed how something grows

_ONE_TRACE = (
    "assumed, for there is one trace: activations grow in proportion to the micro-batch. What grows with its square "
    "({square}) needs more than shown here; trace the program also with another micro-batch N: --beside DIR N"
)
_OF_ROWS = "a loss over all pairs of its rows"
_OF_LENGTH = "scores of attention, where rows get longer"
_MISSED = (
    "bounds alone: the sizes found in both traces give {off:.1f} % {less} than the peak of the second trace, so that "
    "something grows in a way that was not found; trace the program near the micro-batch that is wanted"
)
_PAIRS = (
    ". {bytes} of the peak lie in blocks of just {rows} x {rows} elements: if these are pairs of rows, twice the "
    "micro-batch needs {twice}"
)
_BLOCK = 512  # bytes: blocks are multiples of it
_LEAST_PAIRS = 4096  # bytes: smaller blocks are as large by chance
_MUCH = 0.05  # of the peak


class CertaintyDocument(TypedDict):
    """For JSON; `peak` and `micro_batch`: ESTIMATE, AT_LEAST or AT_MOST."""

    off: Optional[float]
    peak: str
    micro_batch: str
    note: str


@dataclasses.dataclass(frozen=True)
class Certainty:
    """`off`: the peak of the second trace as the sizes found in both give it, over what was traced, less 1; None: there
    is one trace."""

    off: Optional[float] = None
    of_length: bool = False  # a larger micro-batch has longer rows
    hint: str = ""  # a sentence more, of one trace

    @property
    def peak(self) -> str:
        """The certainty of a peak with a larger micro-batch: ESTIMATE, or a bound."""
        if self.off is None or abs(self.off) <= _WITHIN:
            return ESTIMATE
        return AT_LEAST if self.off < 0 else AT_MOST

    @property
    def micro_batch(self) -> str:
        """The certainty of the largest micro-batch that fits."""
        return {AT_LEAST: AT_MOST, AT_MOST: AT_LEAST}.get(self.peak, ESTIMATE)

    @property
    def note(self) -> str:
        """A caveat on the figures, in a sentence; "": both traces agree with them."""
        if self.off is None:
            return _ONE_TRACE.format(square=_OF_LENGTH if self.of_length else _OF_ROWS) + self.hint
        if self.peak == ESTIMATE:
            return ""
        return _MISSED.format(off=100 * abs(self.off), less="less" if self.off < 0 else "more")

    def document(self, as_traced: bool = False) -> CertaintyDocument:
        """`as_traced`: figures are of the micro-batch that was traced, of which nothing is assumed."""
        if as_traced:
            return {"off": self.off, "peak": ESTIMATE, "micro_batch": ESTIMATE, "note": ""}
        return {"off": self.off, "peak": self.peak, "micro_batch": self.micro_batch, "note": self.note}


def of_traces(
    points: dict[str, Sequence[int]], ratio: float, other_peak: Optional[int], longer: bool = False, hint: str = ""
) -> Certainty:
    """The certainty of the sizes `points` (findings.peak_at_scale) from one trace, or two.

    Args:
        points: of the first trace.
        ratio: the second trace's micro-batch over the first's.
        other_peak: bytes live at the second trace's peak; None: there is no second trace.
        longer: a larger micro-batch has longer rows.
        hint: a sentence more, of one trace.
    """
    off = findings.peak_at_scale(points, ratio) / other_peak - 1 if other_peak else None
    return Certainty(off, longer, hint)


def hint_of_pairs(view: dict[str, Any], index: int, rows: int, twice: int) -> str:
    """A caveat if blocks of the peak have exactly as many elements as there are pairs of rows; "": none have.

    Args:
        view: the planner's.
        index: of the device.
        rows: of the traced micro-batch.
        twice: bytes of the peak with twice the micro-batch, where nothing grows with the square.
    """
    peak = view["devices"][index]["peak"]
    growing = [view["classes"].index(name) for name in ("activations", "temporaries")]
    exact = (rows * rows * element for element in (1, 2, 4, 8))
    sizes = {-(-size // _BLOCK) * _BLOCK for size in exact if size >= _LEAST_PAIRS}
    pairs = sum(
        size * count
        for size, count, kind in zip(peak["bytes"], peak["count"], peak["class"])
        if kind in growing and size in sizes
    )
    if pairs < _MUCH * peak["live_bytes"]:
        return ""
    return _PAIRS.format(bytes=size_of(pairs), rows=rows, twice=size_of(twice + 2 * pairs))


def worded(bound: str, figure: str) -> str:
    """ "at least 3.24 MiB"; an estimate stands alone."""
    return figure if bound == ESTIMATE else f"{bound} {figure}"
