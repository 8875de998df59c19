"""The workloads of bench/workloads/unseen.json by name: what is trained, and what varies in it between iterations."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Optional, Union

import further
import programs
import routing
from programs import Plan
from routing import Draw, Experts, Shape
from torch import nn


@dataclasses.dataclass(frozen=True)
class Workload:
    """One of them; by default eight dense layers and four micro-batches of four full sequences."""

    varies: str
    program: Callable[[Plan], nn.Module] = programs.LanguageModel
    layers: int = 8
    micro_batches: Union[int, Callable[[Draw, int], int]] = 4
    shape: Callable[[Draw, int, int], Shape] = routing.fixed
    experts: Optional[Experts] = None
    recompute: str = "none"  # none, half (every second layer), full
    reports_tokens: bool = False  # stalloc.tokens() of each micro-batch
    marks_passes: bool = True  # or iterations only

    def micro_batches_of(self, draw: Draw, iteration: int) -> int:
        return self.micro_batches if isinstance(self.micro_batches, int) else self.micro_batches(draw, iteration)


def _workload(fields: dict[str, Any]) -> Workload:
    """Names in the file are those of functions in routing.py and of classes in programs.py and further.py."""
    if "program" in fields:
        fields["program"] = getattr(programs, fields["program"], None) or getattr(further, fields["program"])
    for name in ("shape", "micro_batches"):
        if isinstance(fields.get(name), str):
            fields[name] = getattr(routing, fields[name])
    if "experts" in fields:
        fields["experts"] = Experts(**fields["experts"])
    return Workload(**fields)


_FILE = Path(__file__).resolve().parents[1] / "workloads" / "unseen.json"
WORKLOADS: dict[str, Workload] = {name: _workload(fields) for name, fields in json.loads(_FILE.read_text()).items()}
