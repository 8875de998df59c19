"""Megatron configurations by name; `python workloads.py NAME` prints one as arguments for pretrain_mock.py.

They are bench/workloads/megatron.json's. All run on the published megatron-core wheel alone, without TransformerEngine
and Apex. Sizes: `h200` is a model of 1.7 billion parameters (experts: 3.5); `h200-short` fills as much memory in a
fraction of the time, with narrower layers and fewer micro-batches, for machines lent by the minute; `tiny` has the same
structure, for two processes on a CPU. Those with `of` are for traces on a CPU (--size tiny) whose next iteration no
plan can know: experts, lengths and numbers of micro-batches that vary, an eighth of the width and of the length of
`h200-short`, for replays with --scale 64.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import re
from pathlib import Path
from typing import Any

_DATA: dict[str, Any] = json.loads((Path(__file__).resolve().parents[1] / "workloads" / "megatron.json").read_text())
SIZES: dict[str, str] = _DATA["sizes"]


@dataclasses.dataclass(frozen=True)
class Workload:
    """`further`: options that come last, and win."""

    layers: str = "24 layers"
    micro: str = "small"
    accumulated: str = "few"
    parallel: str = ""
    replicas: int = 1
    options: str = ""
    of_size: dict[str, str] = dataclasses.field(default_factory=dict)
    environment: dict[str, str] = dataclasses.field(default_factory=dict)
    processes: int = 2
    further: str = ""

    def arguments(self, size: str) -> list[str]:
        layers, micro, accumulated = (
            _DATA["numbers"][name][size] for name in (self.layers, self.micro, self.accumulated)
        )
        batch = micro * accumulated * self.replicas
        shape = f"--num-layers {layers} --micro-batch-size {micro} --global-batch-size {batch}"
        parts = [shape, SIZES[size], self.parallel, self.options, self.of_size.get(size, ""), _DATA["common"]]
        return _whole(" ".join([*parts, self.further])).split()


def _whole(text: str) -> str:
    """With all parts put in."""
    while "{" in text:
        text = re.sub(r"\{([^{}]+)\}", lambda found: str(_DATA["parts"][found[1]]), text)
    return text


def _workload(name: str) -> Workload:
    fields = dict(_DATA["workloads"][name])
    base = _workload(fields.pop("of")) if "of" in fields else Workload()
    return dataclasses.replace(base, **fields)


WORKLOADS = {name: _workload(name) for name in _DATA["workloads"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=WORKLOADS)
    parser.add_argument("--size", choices=SIZES, default="h200")
    chosen = parser.parse_args()
    print(" ".join(WORKLOADS[chosen.name].arguments(chosen.size)))


if __name__ == "__main__":
    main()
