"""Values that a program reads from tensors which have none: what stands in for them, and what cannot go on."""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Mapping
from typing import Any, Optional

_KEYS = "float, int, bool, nonzero, equal and unique"


class FakeTraceError(RuntimeError):
    """A fake run cannot go on; the text is one line that names the operator and the place in the program."""


@dataclasses.dataclass
class Assumptions:
    """What the user says of values that are not known. `number` is read freely: a loss is printed in every loop."""

    number: float = 1.0  # not 0: programs divide by it, and take its logarithm
    integer: Optional[int] = None
    truth: Optional[bool] = None
    nonzero: Optional[float] = None  # which part of a mask is true
    equal: Optional[float] = None  # the same of a mask that says where a tensor has one value; None: as nonzero
    unique: Optional[int] = None  # how many values torch.unique finds

    def as_facts(self) -> dict[str, Any]:
        named = {"float": self.number, "int": self.integer, "bool": self.truth}
        named |= {"nonzero": self.nonzero, "equal": self.equal, "unique": self.unique}
        return {key: value for key, value in named.items() if value is not None}


def parse_assumptions(text: str) -> Assumptions:
    """Reads "int=4096,bool=0,nonzero=1/16"; ValueError names what is allowed."""
    found = Assumptions()
    for item in filter(None, text.split(",")):
        key, _, value = item.partition("=")
        try:
            if key == "float":
                found.number = float(value)
            elif key == "int":
                found.integer = int(value)
            elif key == "bool" and value in ("0", "1"):
                found.truth = value == "1"
            elif key == "nonzero":
                found.nonzero = _share(value)
            elif key == "equal":
                found.equal = _share(value)
            elif key == "unique" and int(value) > 0:
                found.unique = int(value)
            else:
                raise ValueError(key)
        except (ValueError, ZeroDivisionError):
            raise ValueError(f"assumptions are {_KEYS}, as in float=1,int=4096,bool=0,nonzero=1/16: {item!r}") from None
    return found


def _share(text: str) -> float:
    over, _, under = text.partition("/")
    share = float(over) / float(under or 1)
    if not 0 <= share <= 1:
        raise ValueError(text)
    return share


class UnknownValues:
    """Stand-ins for what is read, and a list of the places that read."""

    def __init__(self, torch: Any, assumptions: Assumptions) -> None:
        self._torch = torch
        self.assumptions = assumptions
        self.read: dict[tuple[str, str], int] = {}  # operator and place: how often

    def note(self, operator: str) -> None:
        key = (operator, place())
        self.read[key] = self.read.get(key, 0) + 1

    def scalar(self, operator: str, dtype: Any) -> Any:
        """The value for `.item()`, `if tensor:` and the like; FakeTraceError if no value is as good as another."""
        if dtype.is_floating_point or dtype.is_complex:
            value: Any = self.assumptions.number
        elif dtype is self._torch.bool:
            value = self.assumptions.truth
        else:
            value = self.assumptions.integer
        kind = "bool" if dtype is self._torch.bool else "int"
        if value is None:
            raise FakeTraceError(
                f"{place()}: {operator}: the program goes by the value of a {kind} tensor on the device, which a fake "
                f"run does not have; --assume {kind}=VALUE gives it one"
            )
        self.note(operator)
        return value

    def nonzero_rows(self, operator: str, elements: int, compared: bool = False) -> int:
        """How many elements of a mask are true; `compared`: it says where a tensor has one value."""
        share = self.assumptions.nonzero
        if compared and self.assumptions.equal is not None:
            share = self.assumptions.equal
        if share is None:
            raise _shape_unknown(operator, "nonzero=SHARE says which part of a mask is true (1/16 of 16 experts')")
        self.note(operator)
        return round(elements * share)

    def unique_rows(self, operator: str, elements: int) -> int:
        """How many different values there are."""
        count = self.assumptions.unique
        if count is None:
            raise _shape_unknown(operator, "unique=N says how many different ones there are")
        self.note(operator)
        return min(count, elements)


def _shape_unknown(operator: str, how: str) -> FakeTraceError:
    return FakeTraceError(
        f"{place()}: {operator}: the shape depends on values, which a fake run does not have; --assume {how}"
    )


def place() -> str:
    """The innermost line outside of torch and stalloc: "train.py:120"; in a thread of torch's, so much."""
    frame = sys._getframe(1)
    while frame is not None:
        path = frame.f_code.co_filename
        if not any(part in path for part in ("/torch/", "/stalloc/", "<frozen")):
            return f"{os.path.relpath(path) if os.path.isabs(path) else path}:{frame.f_lineno}"
        frame = frame.f_back  # type: ignore[assignment]
    return "in the backward pass"


def as_facts(assumptions: Assumptions, read: Mapping[tuple[str, str], int]) -> dict[str, Any]:
    """The content of the file next to the trace."""
    return {
        "assumptions": assumptions.as_facts(),
        "values_read": [
            {"operator": operator, "place": where, "times": times} for (operator, where), times in sorted(read.items())
        ],
        "not_traced": "workspaces of cuDNN, memory that operators take and give back inside, NCCL's buffers",
    }
