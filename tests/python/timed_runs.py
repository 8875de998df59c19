"""Traces with steps of a known length, and what lies beside them, whose cost the planner tells."""

from __future__ import annotations

import dataclasses
import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Optional

from stalloc.tools.fitting.replayed import Planner, TracedRun
from stalloc.tools.fitting.work import Load
from stalloc.tools.report.collect import CollectError

MOST = 100  # tokens of the largest traced micro-batch
Free = tuple[float, Sequence[float]]  # seconds, and tokens of each micro-batch


@dataclasses.dataclass
class Beside:
    """What a program left beside its trace; `watched`: as _device_work.in_parts tells, with "tokens"."""

    free: Sequence[Free] = ()
    watched: Sequence[dict[str, Any]] = ()
    iterations: Sequence[Sequence[float]] = ()
    tokens: bool = True  # the program told of them

    def write(self, trace: Path) -> None:
        if self.tokens:
            told = {"least": [1], "most": [MOST], "iterations": self.iterations}
            trace.with_suffix(".tokens.json").write_text(json.dumps(told))
        twice = [*self.free, *self.free]  # the first half is not counted
        steps = {"seconds": [each[0] for each in twice], "tokens": [list(each[1]) for each in twice]}
        trace.with_suffix(".steps.json").write_text(json.dumps({**steps, "device": self.watched}))


def trace(build: Path, path: Path, passes: float, rest: float = 0.0, layer: Sequence[float] = ()) -> Path:
    """Three iterations of so many seconds; `layer`: seconds of the forward passes of m.mlp in each."""
    lines, time = ["stalloc-events 1\n= trace_mode snapshot\n= rank 0\n"], 0
    for index in range(3):
        began = time
        lines.append(f"m iteration begin - 0 {index} {time}\na {2 * index} 8192 -1 0 {time}\n")
        if layer:
            turn = began + round(layer[index] * 1e9)
            lines.append(f"m layer begin F 0 0 {time} m.mlp\na {2 * index + 1} 4096 -1 0 {time}\n")
            lines.append(f"m layer end F 0 1 {turn} m.mlp\nm layer begin B 0 0 {turn} m.mlp\n")
            lines.append(f"f {2 * index + 1} {turn}\nm layer end B 0 0 {turn} m.mlp\n")
        else:
            lines.append(f"a {2 * index + 1} 4096 -1 0 {time}\nf {2 * index + 1} {time}\n")
        time = began + round(passes * 1e9)
        lines.append(f"m optimizer begin - 0 0 {time}\n")
        time += round(rest * 1e9)
        lines.append(f"f {2 * index} {time}\n")
    command = [str(build / "stalloc-planner"), "import", "-", f"--output={path}"]
    subprocess.run(command, input="".join(lines), text=True, check=True, stdout=subprocess.PIPE)
    return path


class Cost:
    """The planner's cost of a traced run. A context manager."""

    def __init__(self, run: TracedRun, count: int, **how: Any) -> None:
        self._planner = Planner(run)
        try:
            self.told = self._planner.cost(-1, count, **how)
        except CollectError:
            self._planner.__exit__()
            raise

    def __enter__(self) -> Cost:
        return self

    def __exit__(self, *_: object) -> None:
        self._planner.__exit__()

    def step(self, load: Load, recompute: Sequence[str] = ()) -> dict[str, Any]:
        return self._planner.seconds(-1, [load], recompute)[0]

    def seconds(self, load: Load, recompute: Sequence[str] = ()) -> float:
        found: float = self.step(load, recompute)["step_seconds"]
        return found


def loaded(tokens: Sequence[float]) -> Load:
    """A step with micro-batches of so many tokens."""
    sizes = [each / MOST for each in tokens]
    each = tuple((1.0, size, size * size) for size in sizes)
    return Load(len(sizes), sum(sizes), sum(size * size for size in sizes), each)


def cost(
    build: Path,
    directory: Path,
    beside: Beside,
    count: int,
    passes: float = 0.02,
    *,
    rest: float = 0.0,
    layer: Sequence[float] = (),
    second: Optional[tuple[Path, float]] = None,
    rows: float = 1.0,
    **how: Any,
) -> Cost:
    """`second`: another trace, and its micro-batch over this one's."""
    path = trace(build, directory / "rank00000.trace", passes, rest, layer)
    beside.write(path)
    other, ratio = (None, 0.0) if second is None else second
    return Cost(TracedRun(path, other, ratio, rows), count, **how)
