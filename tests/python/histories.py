"""Memory snapshots as PyTorch writes them, for tests of `stalloc import`."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest

from stalloc import cli

BASE = 0x7000_0000_0000
MIB = 1 << 20
FORWARD = [{"filename": "/model.py", "name": "forward", "line": 3}]
OPTIMIZER = [{"filename": "/torch/optim/adamw.py", "name": "step", "line": 9}]


class History:
    """A snapshot as PyTorch writes it: entries one microsecond apart."""

    def __init__(self) -> None:
        self.entries: list[dict[str, Any]] = []
        self.annotations: list[dict[str, Any]] = []
        self.live: dict[int, int] = {}

    def add(self, action: str, address: int, size: int, frames: object = ()) -> None:
        entry = {"action": action, "addr": address, "size": size, "stream": 0, "time_us": len(self.entries)}
        self.entries.append(entry | {"frames": frames})

    def alloc(self, address: int, size: int, frames: object = ()) -> None:
        self.add("alloc", BASE + address * MIB, size, frames)
        self.live[BASE + address * MIB] = size

    def free(self, address: int) -> None:
        size = self.live.pop(BASE + address * MIB)
        self.add("free_requested", BASE + address * MIB, size)
        self.add("free_completed", BASE + address * MIB, size)

    def annotate(self, name: str, stage: str) -> None:
        self.annotations.append({"name": name, "stage": stage, "time_us": len(self.entries), "device": 0})

    def snapshot(self, more_blocks: tuple[tuple[int, int], ...] = ()) -> dict[str, Any]:
        live = {**self.live, **{BASE + address * MIB: size for address, size in more_blocks}}
        blocks = [{"address": a, "size": s, "requested_size": s, "state": "active_allocated"} for a, s in live.items()]
        segment = {"device": 0, "address": BASE, "total_size": 64 * MIB, "stream": 0, "blocks": blocks}
        return {"segments": [segment], "device_traces": [self.entries], "external_annotations": self.annotations}


def training(steps: int, layers: int = 5, annotate: bool = False) -> History:
    history = History()
    history.add("segment_alloc", BASE, 64 * MIB)
    history.alloc(0, 4 * MIB)
    for step in range(steps):
        if annotate:
            history.annotate(f"ProfilerStep#{step}", "START")
        for layer in range(layers):
            history.alloc(10 + layer, 1000 * (layer + 1), FORWARD)
        for layer in reversed(range(layers)):
            history.alloc(20 + layer, 3000 + layer)
            history.free(10 + layer)
        history.alloc(30, 77777, OPTIMIZER)
        history.free(30)
        for layer in range(layers):
            history.free(20 + layer)
        if annotate:
            history.annotate(f"ProfilerStep#{step}", "END")
    return history


def imported(snapshot: object, directory: Path, capsys: pytest.CaptureFixture[str], *options: str) -> dict[str, Any]:
    file = directory / "run.pickle"
    file.write_bytes(pickle.dumps(snapshot))
    assert cli.main(["import", str(file), "--json", *options]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found
