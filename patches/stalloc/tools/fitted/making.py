"""A choice for a program: from its trials, by `stalloc fit`, with what a start needs to apply it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Callable, Optional

from stalloc.core import fit_files
from stalloc.core.fit_files import FINISHED, ITSELF, OUT_OF_MEMORY, TRACED, Batch, Model, Notes
from stalloc.tools.fitted.trials import TrialError, Trials, ended_in

_SMALLER = 4  # a first trial has a micro-batch of a fourth
_LEAST = 2  # rows: of one, libraries leave the padding out, and run other kernels

Tell = Callable[[str], object]
Fit = Callable[[list[str], int], dict[str, Any]]  # words of `stalloc fit`, and the smallest micro-batch to try


@dataclasses.dataclass(frozen=True)
class Tried:
    """What the trials came to. `larger`: the traces of a larger micro-batch, and how many rows that has."""

    directory: Path
    notes: list[Notes]  # of all ranks
    fake: bool = False
    larger: Optional[tuple[Path, int]] = None

    @property
    def own(self) -> Optional[Batch]:
        return self.notes[0].own

    @property
    def traced(self) -> Optional[Batch]:
        return self.notes[0].traced


def try_out(trials: Trials, tell: Tell) -> Tried:
    """Traces the program: as it is, or smaller where its framework lets it, or with fake tensors. TrialError."""
    smaller, least = _SMALLER, _LEAST
    tell("traces the program's first iterations, in a process of their own")
    directory, notes = trials.trace(smaller, least)
    while ended_in(notes) == OUT_OF_MEMORY:
        traced = next((each.traced for each in notes if each.traced is not None), None)
        if traced is None or traced.micro_batch <= 1:
            tell("its first iteration runs out of memory: traces it with fake tensors")
            directory, notes = trials.trace_fakes()
            return _whole(trials, Tried(directory, notes, fake=True))
        smaller, least = _SMALLER * smaller, 1
        tell(f"out of memory with micro-batches of {traced.micro_batch}: traces smaller ones")
        directory, notes = trials.trace(smaller, least)
    tried = _whole(trials, Tried(directory, notes))
    own, traced = tried.own, tried.traced
    if own is None or traced is None or own.micro_batch <= traced.micro_batch:
        return tried
    rows = min(2 * traced.micro_batch, own.micro_batch)
    tell(f"traced micro-batches of {traced.micro_batch} of {own.micro_batch} rows; traces {rows} rows, too")
    directory, notes = trials.trace(rows=rows)
    if _works(notes):
        return dataclasses.replace(tried, larger=(directory, rows))
    if traced.micro_batch < 2 * _LEAST:
        return tried
    rows = traced.micro_batch // 2
    tell(f"they do not run; traces {rows} rows instead")
    directory, notes = trials.trace(rows=rows)
    return Tried(directory, notes, larger=(tried.directory, traced.micro_batch)) if _works(notes) else tried


def _works(notes: list[Notes]) -> bool:
    return ended_in(notes) in (TRACED, FINISHED) and all(each.iterations for each in notes)


def _whole(trials: Trials, tried: Tried) -> Tried:
    """TrialError: it is nothing to choose by."""
    ended = ended_in(tried.notes)
    if ended not in (TRACED, FINISHED):
        raise trials.failure()
    if not all(notes.iterations for notes in tried.notes):
        raise TrialError("no iteration was seen: a step of an optimizer ends one, or stalloc.iteration() begins one")
    seen = [([(m.said(), m.traced_as) for m in notes.models], notes.modules, notes.own) for notes in tried.notes]
    if any(each != seen[0] for each in seen):
        raise TrialError(
            "the ranks train different models, as stages of a pipeline: use stalloc fit and stalloc.apply for each"
        )
    if not tried.notes[0].models:
        raise TrialError("no module was seen to train: it is called with gradients, in training mode")
    return tried


def choose(tried: Tried, memory: int, fit: Fit) -> dict[str, Any]:
    """The document of `stalloc fit`, with `automatic`. It may be of a choice that does not fit."""
    own, traced = tried.own, tried.traced
    words = [str(tried.directory), "--memory", str(memory)]
    if own is None or traced is None:
        rows = tried.notes[0].rows or 1
        document = fit([*words, "--micro-batch", str(rows), "--keep-micro-batch"], 1)
    else:
        words += ["--micro-batch", str(traced.micro_batch), "--accumulation", str(traced.accumulation)]
        words += ["--rows", str(own.micro_batch * own.accumulation), "--for", str(own.framework)]
        if tried.larger is not None:
            words += ["--beside", str(tried.larger[0]), str(tried.larger[1])]
        # Of smaller ones than were traced it is hardly known how fast they are.
        document = fit(words, traced.micro_batch)
        if not document["fits"]:
            document = fit(words, 1)
    chosen = document["chosen"]
    batch = own and dataclasses.replace(own, micro_batch=chosen["micro_batch"], accumulation=chosen["accumulation"])
    document[fit_files.AUTOMATIC] = {
        "models": [dataclasses.asdict(model) for model in _models(tried.notes[0].models, _names(document))],
        "own": own and dataclasses.asdict(own),
        "batch": batch and dataclasses.asdict(batch),
        "fake": tried.fake,
    }
    return document


def smaller_batch(tried: Tried, memory: int, fit: Fit) -> Optional[tuple[int, int]]:
    """Of a program that sets its own: a micro-batch that fits, and how many make a step; None: none does."""
    rows = tried.notes[0].rows
    if tried.own is not None or rows is None or rows < 2:
        return None
    words = [str(tried.directory), "--memory", str(memory), "--micro-batch", str(rows), "--rows", str(rows)]
    for least in _halves(rows):
        document = fit([*words, "--for", "trainer"], least)
        if document["fits"]:
            return document["chosen"]["micro_batch"], document["chosen"]["accumulation"]
    return None


def _halves(rows: int) -> Iterator[int]:
    """What divides them, about half as many each time."""
    last = rows
    for size in range(rows - 1, 0, -1):
        if rows % size == 0 and (size <= last // 2 or size == 1):
            last = size
            yield size


def _names(document: dict[str, Any]) -> dict[str, list[str]]:
    """What is recomputed and offloaded, as the trace names it."""
    best = next(each for each in document["tried"] if each["micro_batch"] == document["chosen"]["micro_batch"])
    return {way: best[way] for way in ("recompute", "offload")}


def _models(models: list[Model], names: dict[str, list[str]]) -> list[Model]:
    """Each with its own part of the choice: a module is of the innermost one that has it."""
    found: dict[int, dict[str, list[str]]] = {i: {way: [] for way in names} for i in range(len(models))}
    for way, all_names in names.items():
        for name in all_names:
            holders = [i for i, model in enumerate(models) if _holds(model.traced_as, name)]
            if not holders:
                raise TrialError(f"expected a model that has {name}, as it was traced, found none")
            holder = max(holders, key=lambda i: len(models[i].traced_as or ""))
            found[holder][way].append(name[len(models[holder].traced_as or "") + 1 :] or ITSELF)
    return [
        dataclasses.replace(model, recompute=tuple(found[i]["recompute"]), offload=tuple(found[i]["offload"]))
        for i, model in enumerate(models)
    ]


def _holds(outer: Optional[str], inner: str) -> bool:
    return outer is not None and (inner == outer or inner.startswith(outer + "."))
