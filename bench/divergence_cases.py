"""The cases of the divergence matrix by name: how a run of bench/divergence_train.py departs from its plan.

One class a kind (divergence_requests.py, divergence_program.py), one instance a case.
"""

from __future__ import annotations

from typing import Any

from divergence_case import AT, Undisturbed
from divergence_program import (
    Accumulation,
    BatchSize,
    Checkpoint,
    Evaluation,
    IterationMarks,
    OneBatchSize,
    OutputsDropped,
    Raised,
    SecondModel,
    SkippedSteps,
)
from divergence_requests import (
    Cycles,
    Dropped,
    FreedEarly,
    FreedLate,
    GraphKept,
    Inserted,
    ProbesKept,
    Reordered,
    Resized,
)

FOREVER = 1 << 30

# By name: how to make the case.
CASES: dict[str, Any] = {
    "none": Undisturbed,
    "inserted-unknown-size": lambda: Inserted("one more request, of an unknown size", like_output=False),
    "inserted-known-size": lambda: Inserted("one more request, of an activation's size", like_output=True),
    "inserted-kept": lambda: Inserted("the same, freed at the iteration's end", like_output=True, kept=True),
    "inserted-every-iteration": lambda: Inserted("one more in every iteration", like_output=True, every=True),
    "inserted-300": lambda: Inserted("300 more in a row", like_output=True, count=300),
    "dropped": lambda: Dropped("the two requests of one probe left out"),
    "dropped-4": lambda: Dropped("those of four probes in a row", count=4),
    "resized": Resized,
    "reordered": lambda: Reordered("two requests change places"),
    "reordered-from": lambda: Reordered("two of every layer change places from then on", every=True),
    "freed-late": lambda: FreedLate("one request more, freed three iterations later", count=1),
    "freed-late-8": lambda: FreedLate("eight more, freed three iterations later", count=8),
    "probes-kept": ProbesKept,
    "freed-early": FreedEarly,
    "graph-kept": GraphKept,
    "skipped-step": lambda: SkippedSteps("optimizer step skipped", (AT,)),
    "skipped-steps": lambda: SkippedSteps("optimizer steps skipped, three in a row", (AT, AT + 1, AT + 2)),
    "evaluation-marked": lambda: Evaluation("evaluation in the middle, in a fence", fenced=True),
    "evaluation-unmarked": lambda: Evaluation("evaluation in the middle, unmarked", fenced=False),
    "checkpoint-marked": lambda: Checkpoint("checkpoint in the middle, in a fence", fenced=True),
    "checkpoint-unmarked": lambda: Checkpoint("checkpoint in the middle, unmarked", fenced=False),
    "micro-batch-size": OneBatchSize,
    "batch-size-once": lambda: BatchSize("another batch size for one iteration", 3, AT),
    "batch-size-from": lambda: BatchSize("another batch size from then on", 3, FOREVER),
    "fewer-micro-batches": lambda: Accumulation("one micro-batch less for one iteration", -1, AT),
    "more-micro-batches": lambda: Accumulation("one micro-batch more for one iteration", 1, AT),
    "more-micro-batches-from": lambda: Accumulation("one micro-batch more from then on", 1, FOREVER),
    "raised-in-forward": lambda: Raised("exception in a forward pass, caught", backward=False),
    "raised-in-backward": lambda: Raised("exception in a backward pass, caught", backward=True),
    "iteration-unmarked": lambda: IterationMarks("an iteration without its mark", 0),
    "iteration-marked-twice": lambda: IterationMarks("an iteration marked twice", 2),
    "outputs-dropped": OutputsDropped,
    "second-model-once": lambda: SecondModel("a second model trained in one iteration", AT),
    "second-model-from": lambda: SecondModel("a second model trained along from then on", FOREVER),
    "gc": Cycles,
}
