"""The sizes that a run requests in its set-up and its first iterations: they distinguish its plan from those of others.

The library counts them (allocator/runtime/run_signature.h). Two phases are alike by bytes: what both request, of what
either does. Sizes that follow the data make iterations of one run differ; how much they do is a part of its signature,
and that much another start of it may differ, too. A first iteration has what later ones lack (an optimizer makes its
state, kernels are tuned) unless the run was resumed, so later ones decide where the first does not.
"""

from __future__ import annotations

import dataclasses
import json
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Optional

from stalloc.core.run_files import signature_name

VERSION = 1

_SAME = 0.98  # of the bytes: the run is another one, and what differs is chance, as the order of threads
_VARIES_LEAST = 0.1  # as alike are iterations of a run of which hardly two requests are of one size
_SET_UP = 0.8  # of the bytes of the smaller set-up: a run that is resumed loads its checkpoint as well
_GROWTH = 0.1  # of how much more lives at the peak than at the begin
_UNTOLD_BYTES = 1 << 20  # less says nothing of a set-up
_MOST_KINDS = 4  # of iterations, that are kept


@dataclasses.dataclass(frozen=True)
class Phase:
    """Requests of more than 512 bytes. Bytes are of whole blocks.

    Args:
        order: equal where threads request the same sizes in the same order.
        counts: requests, by their bytes.
        other_bytes: of requests whose size is not in `counts`, where there are too many sizes.
    """

    requests: int
    bytes: int
    growth: int
    order: str
    counts: dict[int, int]
    other_bytes: int

    @classmethod
    def read(cls, fields: dict[str, Any]) -> Phase:
        sizes = [int(number) for number in fields["sizes"]]
        return cls(
            requests=int(fields["requests"]),
            bytes=int(fields["bytes"]),
            growth=int(fields["growth"]),
            order=str(fields["order"]),
            counts=dict(zip(sizes[::2], sizes[1::2])),
            other_bytes=int(fields["others"][1]),
        )

    def written(self) -> dict[str, Any]:
        return {
            "requests": self.requests,
            "bytes": self.bytes,
            "growth": self.growth,
            "order": self.order,
            "others": [self.requests - sum(self.counts.values()), self.other_bytes],
            "sizes": [number for one in sorted(self.counts.items()) for number in one],
        }

    def shared_bytes(self, other: Phase) -> int:
        """The share of requests that both have."""
        both = self.counts.keys() & other.counts.keys()
        shared = sum(size * min(self.counts[size], other.counts[size]) for size in both)
        return shared + min(self.other_bytes, other.other_bytes)

    def likeness(self, other: Phase) -> float:
        """The part of the bytes of either that both request: 0 to 1."""
        shared = self.shared_bytes(other)
        either = self.bytes + other.bytes - shared
        return shared / either if either > 0 else 1.0


@dataclasses.dataclass(frozen=True)
class Later:
    """Iterations from the second on: `kinds` of them, how alike a new one is to one before, and least and most of
    them."""

    kinds: tuple[Phase, ...]
    likeness: float
    bytes: tuple[int, int]
    growth: tuple[int, int]

    @classmethod
    def of(cls, iterations: Sequence[Phase]) -> Later:
        best = [max(one.likeness(before) for before in iterations[:i]) for i, one in enumerate(iterations) if i]
        kinds: list[Phase] = []
        for one in iterations:
            if len(kinds) < _MOST_KINDS and not any(_same(kind, one) for kind in kinds):
                kinds.append(one)
        return cls(
            kinds=tuple(kinds),
            likeness=statistics.median(best) if best else 1.0,
            bytes=_range([one.bytes for one in iterations]),
            growth=_range([one.growth for one in iterations]),
        )

    @classmethod
    def read(cls, fields: dict[str, Any]) -> Later:
        kinds = tuple(Phase.read(kind) for kind in fields["kinds"])
        if not kinds:
            raise ValueError("it has no iteration but the first")
        return cls(kinds, float(fields["likeness"]), _two(fields["bytes"]), _two(fields["growth"]))

    def written(self) -> dict[str, Any]:
        kinds = [kind.written() for kind in self.kinds]
        return {"kinds": kinds, "likeness": self.likeness, "bytes": list(self.bytes), "growth": list(self.growth)}

    def best(self, iteration: Phase) -> float:
        """How alike the iteration is to the kind that it is most alike to."""
        return max(kind.likeness(iteration) for kind in self.kinds)

    def allows(self, iteration: Phase) -> bool:
        """It may be one of another start of that run."""
        if any(_same(kind, iteration) for kind in self.kinds):
            return True
        if self.likeness >= _SAME:
            return False
        least = max(_VARIES_LEAST, self.likeness - (1 - self.likeness) / 2)
        in_range = _within(self.bytes, iteration.bytes) and _within(self.growth, iteration.growth)
        return in_range and self.best(iteration) >= least


@dataclasses.dataclass(frozen=True)
class Signature:
    """The signature of a run whose first iterations are over.

    Args:
        device: its name, empty where it is not known.
        changes: what `stalloc run --fit` has changed in the program (fit_files.Choice.changes); empty: nothing.
    """

    device: str
    set_up: Phase
    first: Phase
    later: Optional[Later] = None
    changes: str = ""

    @classmethod
    def of_run(cls, counted: dict[str, Any], finished: int, device: str, changes: str = "") -> Optional[Signature]:
        """From the library's counts, of so many iterations that are over; None where nothing was counted."""
        phases = [Phase.read(fields) for fields in counted.get("iterations", [])[:finished]]
        if not phases:
            return None
        later = Later.of(phases[1:]) if phases[1:] else None
        return cls(device, Phase.read(counted["set_up"]), phases[0], later, changes)

    @classmethod
    def read(cls, fields: dict[str, Any]) -> Signature:
        """ValueError, KeyError, TypeError: it is none."""
        if fields["version"] != VERSION:
            raise ValueError(f"it is of version {fields['version']}, and this is {VERSION}")
        later = None if fields["later"] is None else Later.read(fields["later"])
        set_up, first = Phase.read(fields["set_up"]), Phase.read(fields["first"])
        return cls(str(fields["device"]), set_up, first, later, str(fields.get("changes", "")))

    def written(self) -> dict[str, Any]:
        return {
            "version": VERSION,
            "device": self.device,
            "set_up": self.set_up.written(),
            "first": self.first.written(),
            "later": None if self.later is None else self.later.written(),
            "changes": self.changes,
        }

    @property
    def steady(self) -> Phase:
        """The iteration that is most like later ones."""
        return self.first if self.later is None else self.later.kinds[0]

    def begins_as(self, run: Signature) -> bool:
        """Whether that run's first iteration is this one's."""
        return self._is_of(run) and self.first.requests > 0 and _same(self.first, run.first)

    def fits(self, run: Signature) -> bool:
        """Whether that run, with two or more iterations over, is one of this plan."""
        if not self._is_of(run):
            return False
        if self.later is None or run.later is None:
            return _same(self.first, run.first)
        return self.later.allows(run.steady)

    def likeness(self, run: Signature) -> tuple[bool, float]:
        """The rank of a plan that fits; a higher one is better: the same order of requests, then bytes."""
        mine, other = (self.first, run.first) if run.later is None else (self.steady, run.steady)
        return mine.order == other.order, mine.likeness(other)

    def _is_of(self, run: Signature) -> bool:
        """Whether device, weights and the applied choice are the same."""
        return (
            self.changes == run.changes
            and not (self.device and run.device and self.device != run.device)
            and self._set_up_fits(run)
        )

    def _set_up_fits(self, run: Signature) -> bool:
        smaller = min(self.set_up.bytes, run.set_up.bytes)
        if smaller < _UNTOLD_BYTES:  # one begins with weights that are elsewhere, or has next to none
            return True
        return self.set_up.shared_bytes(run.set_up) >= _SET_UP * smaller


def _same(one: Phase, other: Phase) -> bool:
    return one.likeness(other) >= _SAME and _near(one.growth, other.growth)


def _near(one: int, other: int) -> bool:
    return abs(one - other) <= max(_GROWTH * max(one, other), _UNTOLD_BYTES)


def _range(numbers: Sequence[int]) -> tuple[int, int]:
    return min(numbers), max(numbers)


def _within(seen: tuple[int, int], number: int) -> bool:
    """A handful of iterations was seen: the next one may be as far outside as they are apart."""
    least, most = seen
    more = max(most - least, 0.02 * most)
    return least - more <= number <= most + more


def _two(numbers: Any) -> tuple[int, int]:
    least, most = numbers
    return int(least), int(most)


def read_signature(directory: Path, rank: int) -> Optional[Signature]:
    """None: there is none. ValueError names a file that is none."""
    path = directory / signature_name(rank)
    try:
        text = path.read_text(encoding="utf-8")
    except OSError:
        return None
    try:
        return Signature.read(json.loads(text))
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        raise ValueError(f"{path}: expected what a run requests, as a run writes it: {error!r}") from error
