"""How long something takes by what it has to do, from how long it took for some of it. Pure.

always + size x growing      what grows for the most part is taken to grow in proportion: products of matrices get
                             no faster than they were at the largest size
size x growing + square x c  where twice the size takes more than twice as long: attention, which grows with the
                             square of the rows' length
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

from stalloc.tools.fitting.work import Load

_SPREAD = 1e-3  # of the squared mean: sizes that are one
_MORE = 1.25  # times as much as in proportion: it grows with the square
_BELOW = 0.25  # of the points lie below a line

Terms = tuple[float, float, float]  # of a micro-batch: always, by its size, by its square
NOTHING: Terms = (0.0, 0.0, 0.0)


def total(terms: Iterable[Terms]) -> Terms:
    terms = list(terms)
    return sum(each[0] for each in terms), sum(each[1] for each in terms), sum(each[2] for each in terms)


def are_one(sizes: Sequence[float]) -> bool:
    """Sizes that tell nothing of what grows."""
    mean = sum(sizes) / len(sizes) if sizes else 0.0
    return sum((size - mean) ** 2 for size in sizes) < _SPREAD * mean * mean * len(sizes) or not sizes


def terms_of(seconds: Sequence[float], loads: Sequence[Load]) -> Terms:
    """By least squares. REQUIRES: sizes above 0 that are not one."""
    mean = sum(load.size for load in loads) / len(loads)
    large = [i for i, load in enumerate(loads) if load.size > mean]
    small = [i for i, load in enumerate(loads) if load.size <= mean]
    by_size = [sum(seconds[i] for i in chosen) / sum(loads[i].size for i in chosen) for chosen in (small, large)]
    if by_size[1] > by_size[0] * _MORE:
        growing, square = least_squares([(load.size, load.square) for load in loads], seconds)
        return 0.0, growing, square
    always, growing = least_squares([(load.count, load.size) for load in loads], seconds)
    if always * loads[0].count < growing * mean:
        return 0.0, _in_proportion([load.size for load in loads], seconds), 0.0
    return always, growing, 0.0


def _in_proportion(sizes: Sequence[float], seconds: Sequence[float]) -> float:
    return sum(size * second for size, second in zip(sizes, seconds)) / sum(size * size for size in sizes)


def least_terms(seconds: Sequence[float], loads: Sequence[Load]) -> Terms:
    """With a quarter of the seconds below. REQUIRES: sizes above 0 that are not one."""
    always, growing = line([load.size for load in loads], seconds)
    if always > 0:
        return always * len(loads) / sum(load.count for load in loads), growing, 0.0
    growing, square = line(
        [load.square / load.size for load in loads], [second / load.size for second, load in zip(seconds, loads)]
    )
    return 0.0, growing, square


def least_squares(points: Sequence[tuple[float, float]], values: Sequence[float]) -> tuple[float, float]:
    """Two factors, neither below 0, of x and y. REQUIRES: a point with x and y above 0."""
    xx, xy, yy = (sum(a[i] * a[j] for a in points) for i, j in ((0, 0), (0, 1), (1, 1)))
    xv, yv = (sum(a[i] * value for a, value in zip(points, values)) for i in (0, 1))
    determinant = xx * yy - xy * xy
    if determinant > 0:
        both = (xv * yy - yv * xy) / determinant, (yv * xx - xv * xy) / determinant
        if min(both) >= 0:
            return both
    # With one of them alone, the better one: xx x^2 - 2 x xv is its error.
    return (xv / xx, 0.0) if xv * xv / xx >= yv * yv / yy else (0.0, yv / yy)


def line(sizes: Sequence[float], seconds: Sequence[float], flat: bool = False) -> tuple[float, float]:
    """What is always there, and what grows with the size, neither below 0: the line with a quarter of the points below
    it (R. Koenker and G. Bassett, "Regression Quantiles", Econometrica 46, 1978), where whatever else happens makes
    things longer and none shorter. `flat`: nothing grows. REQUIRES: a point, and sizes above 0. O(points^3)."""
    points = list(zip(sizes, seconds))
    lines = [(second, 0.0) for _, second in points]
    if not flat:
        lines += [(0.0, second / size) for size, second in points]
        for (size, second), (other, its) in itertools.combinations(points, 2):
            growing = (its - second) / (other - size) if other != size else -1.0
            if growing >= 0 and second >= growing * size:
                lines.append((second - growing * size, growing))
    return min(lines, key=lambda each: _error(each, points))


def _error(candidate: tuple[float, float], points: Sequence[tuple[float, float]]) -> float:
    above = [second - candidate[0] - candidate[1] * size for size, second in points]
    return sum(_BELOW * one if one >= 0 else (_BELOW - 1) * one for one in above)
