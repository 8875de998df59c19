"""Small training runs as traces, from events in text, and what commands say of them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from exports import trace_of_text
from schemas import SCHEMA, expect_document
from stalloc import cli

KIB = 1 << 10
MIB = 1 << 20


class Writer:
    """Events in text, a millisecond apart."""

    def __init__(self) -> None:
        self.lines = ["stalloc-events 1", "= world_size 4"]
        self.ids = iter(range(1 << 30))
        self.times: Iterator[int] = iter(range(0, 1 << 60, 1_000_000))

    def alloc(self, size: int) -> int:
        block = next(self.ids)
        self.lines.append(f"a {block} {size} 0 0 {next(self.times)}")
        return block

    def free(self, block: int) -> None:
        self.lines.append(f"f {block} {next(self.times)}")

    def mark(self, kind: str, which: str = "-", index: int = 0, name: str = "", edge: str = "begin") -> None:
        self.lines.append(f"m {kind} {edge} {which} 0 {index} {next(self.times)} {name}".rstrip())

    def captured(self, size: int, address: int, pool: int = 1) -> int:
        block = self.alloc(size)
        self.lines.append(f"p {block} {pool} {address}")
        return block

    def graph(self, number: int, what: str, edge: str = "begin") -> None:
        """`what`: capture, replay."""
        self.mark("layer", name=f"CUDA graph {number} {what}", edge=edge)

    def trace(self, path: Path, build: Path) -> Path:
        return trace_of_text(build, "\n".join(self.lines) + "\n", path)


def run(build: Path, path: Path, *, leak: int = 0, activation: int = 4 * MIB, iterations: int = 7) -> Path:
    """4 MiB of weights, two layers of activations, 1 MiB of gradients, 8 MiB of state, 2 MiB of optimizer scratch."""
    writer = Writer()
    writer.alloc(4 * MIB)
    for iteration in range(iterations):
        writer.mark("iteration", index=iteration)
        writer.mark("microbatch", "F")
        blocks = []
        for layer in ("layers.0", "layers.1"):
            writer.mark("layer", "F", name=layer)
            blocks.append(writer.alloc(activation))
            writer.mark("layer", "F", index=1, name=layer, edge="end")  # it keeps nothing of its output
        writer.mark("microbatch", "B")
        gradient = writer.alloc(MIB)
        for layer in ("layers.1", "layers.0"):
            writer.mark("layer", "B", name=layer)
            writer.free(blocks.pop())
            writer.mark("layer", "B", name=layer, edge="end")
        if leak:
            writer.alloc(leak)
        writer.mark("optimizer")
        if iteration == 0:
            writer.alloc(8 * MIB)
        writer.free(writer.alloc(2 * MIB))
        writer.free(gradient)
    return writer.trace(path, build)


def answer(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert cli.main([*words, "--json"]) == 0
    result: dict[str, Any] = json.loads(capsys.readouterr().out)
    if words[0] in SCHEMA["properties"] and "--leaks" not in words:
        expect_document(words[0], result)
    return result


def text(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert cli.main([*words]) == 0
    return capsys.readouterr().out
