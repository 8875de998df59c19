"""Classes of blocks of real training: inputs, what the loop keeps, what is recomputed; and the leaks of it."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from processes import SCRIPTS, Training, run_python

pytest.importorskip("torch")

# Bytes as scripts/kept_training.py asks for them.
BATCH, KEPT, LEAKED = 333 * 8, 100_000, 70_000
HIDDEN = 333 * 257 * 4  # between the linear layers of a block: its output, and that of the function behind it
ITERATIONS = 8


def traced(training: Training, *options: str, **extra: str) -> Path:
    script = str(SCRIPTS / "kept_training.py")
    done = training.start_plain("Trace", "-m", "stalloc", "run", script, str(ITERATIONS), *options, **extra)
    assert done.code == 0, done.err
    return training.info / "trace" / "rank00000.trace"


def command(training: Training, *words: str) -> str:
    done = run_python("-m", "stalloc", *words, environment=training.environment(None))
    assert done.code == 0, done.err
    return done.out


class Blocks:
    """Of a trace, from its database."""

    def __init__(self, training: Training, trace: Path) -> None:
        self._file = training.directory / "blocks.sqlite"
        command(training, "export", str(trace), "--format", "sqlite", "--output", str(self._file))

    def select(self, what: str, where: str) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(self._file)) as connection:
            return connection.execute(f"SELECT {what} FROM blocks WHERE {where}").fetchall()

    def classes(self, bytes_: int, where: str) -> Counter[str]:
        return Counter(row[0] for row in self.select("class", f"bytes = {bytes_} AND {where}"))


def leaks(training: Training, trace: Path) -> dict[str, Any]:
    (device,) = json.loads(command(training, "report", "--leaks", str(trace), "--json"))["devices"]
    found: dict[str, Any] = device
    return found


# The last iterations have batches that no pass takes any more, and kept tensors that nobody sees outlive another.
FIRST_HALF = " AND ".join(f"phase NOT LIKE 'iter {number},%'" for number in range(4, ITERATIONS))


def test_batches_are_inputs_and_what_the_loop_keeps_is_neither_state_nor_gradient(training: Training) -> None:
    trace = traced(training)
    blocks = Blocks(training, trace)
    assert blocks.classes(BATCH, FIRST_HALF) == {"inputs": 4 + 2 * 4}, "two batches ahead of the first iteration"
    assert blocks.classes(KEPT, FIRST_HALF) == {"other": 4}
    named = {row[0] for row in blocks.select("tensor", f"bytes = {BATCH} AND {FIRST_HALF}")}
    assert named == {"Net.tokens", "CrossEntropyLoss.target"}
    behind = {row[0] for row in blocks.select("phase", f"bytes = {KEPT} AND {FIRST_HALF}")}
    assert behind == {f"iter {number}, after the optimizer" for number in range(4)}
    state = blocks.select("sum(bytes)", "class = 'optimizer state' AND phase NOT LIKE '%, optimizer'")
    assert state == [(None,)], "the optimizer's state is made in its step"
    found = leaks(training, trace)
    assert (found["groups"], found["enough_iterations"]) == ([], True)


@pytest.mark.slow
def test_without_names_lifetimes_tell_inputs_from_what_is_kept(training: Training) -> None:
    blocks = Blocks(training, traced(training, STALLOC_TRACE_NAMES="0"))
    assert blocks.classes(KEPT, FIRST_HALF) == {"other": 4}
    kinds = blocks.classes(BATCH, FIRST_HALF)
    assert set(kinds) <= {"inputs", "other", "weights"}, "two iterations ahead nobody can tell them from what is kept"


@pytest.mark.parametrize("kind", [["recompute"], ["recompute", "reentrant"], pytest.param([], marks=pytest.mark.slow)])
def test_recomputed_activations_are_activations(kind: list[str], training: Training) -> None:
    blocks = Blocks(training, traced(training, *kind))
    forward = blocks.classes(HIDDEN, "phase = 'iter 2, F 0'")
    backward = blocks.classes(HIDDEN, "phase = 'iter 2, B 0'")
    gradients = {"temporaries": 3 * 3}  # of the cosine, of what it is multiplied with, of the product
    if not kind:
        assert (forward, backward) == ({"activations": 6}, gradients)
    else:
        assert forward == {"temporaries": 6}, "they do not leave the pass"
        assert backward == {"activations": 6, **gradients}


def test_a_loop_without_marks_has_inputs_too(training: Training) -> None:
    blocks = Blocks(training, traced(training, "plain"))
    inside = "phase LIKE 'iter 2%'"
    assert blocks.classes(BATCH, inside) == {"inputs": 2}
    assert blocks.classes(KEPT, inside) == {"other": 1}
    logits = blocks.classes(333 * 50 * 4, inside)
    assert set(logits) == {"activations", "temporaries"}, "no gradients, though the last ones live beyond the step"


def test_a_leak_is_told_with_the_line_that_makes_it(training: Training) -> None:
    trace = traced(training, "leak", STALLOC_TRACE_STACKS="64K")
    (group,) = leaks(training, trace)["groups"]
    rounded = -(-LEAKED // 512) * 512
    assert (group["bytes"], group["most_bytes"], group["bytes_per_iteration"]) == (rounded, rounded, rounded)
    assert (group["class"], group["phase"]) == ("other", "after the optimizer")
    line = 1 + next(
        number
        for number, text in enumerate((SCRIPTS / "kept_training.py").read_text().splitlines())
        if "zeros(LEAKED" in text
    )
    assert group["call_site"] == f"kept_training.py:{line} leak"
    assert f"kept_training.py:{line} leak" in command(training, "report", "--leaks", str(trace))
