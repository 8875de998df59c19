"""`stalloc run --fit`: what is chosen before the program starts. The start applies it (train/fitted)."""

from __future__ import annotations

import functools
import json
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Optional

from stalloc.core import files, fit_files, log, run_cache
from stalloc.core.json_files import read_object
from stalloc.core.sizes import size
from stalloc.tools.commands import fit, options
from stalloc.tools.fitted import making, meeting, trials
from stalloc.tools.fitted.kept import MADE_FOR, SOURCES, Card, Kept, start_of
from stalloc.tools.fitted.trials import TrialError, Trials
from stalloc.tools.fitting.choose import FitError
from stalloc.tools.report.certainty import worded
from stalloc.tools.report.collect import CollectError

_ANSWER = "answer.json"  # of rank 0, in the folder of the trials
_WAIT_SECONDS = 1800.0
_LAUNCHERS = ("SLURM_STEP_NUM_TASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE")  # processes that srun or mpirun has started


def make_choice(program: Sequence[str], memory: Optional[int]) -> tuple[int, str]:
    """The kept choice, or a new one.

    Args:
        program: SCRIPT or -m MODULE, with its arguments.
        memory: bytes; None: the card's.
    Returns:
        0 and the choice's file; else an exit code, and why has been said.
    """
    try:
        return 0, str(_made(program, memory))
    except (TrialError, FitError, CollectError, ValueError, OSError) as error:
        return options.refuse("run --fit", error), ""


def _made(program: Sequence[str], memory: Optional[int]) -> Path:
    environ = trials.environment()
    card = Card.present(environ)
    if memory is None and card.count == 0:
        raise TrialError("a CPU has no memory of its own: --fit needs a size there, as --fit 24M")
    several = _on_several_machines(environ)
    kept = Kept.of(environ, program, memory, card)
    folder = kept.trials("job" if several else start_of(environ))
    changed = _met(environ, folder, kept) if several else _changed(kept)
    if changed is None:
        _tell(f"takes the choice of an earlier start, {kept.file}")
        _show(read_object(kept.file), kept.file)
        return kept.file
    if changed:
        _tell(f"the choice of an earlier start is of no use: {changed}; a new one is made")
    folder.mkdir(parents=True, exist_ok=True)
    address = environ["MASTER_ADDR"] if several else None
    tried = making.try_out(Trials(program, folder, environ, "cuda" if card.count else "cpu", address), _tell)
    if int(environ.get("RANK") or 0) != 0:
        return _answered(folder)
    try:
        document = _chosen(tried, kept, offloads=card.count > 0)
    except Exception as error:
        _answer(folder, error=str(error))
        raise
    _show(document, kept.file)
    if memory is not None and memory < card.bytes:
        _say_unplanned(document)
    _answer(folder, file=str(kept.file))
    if len(tried.notes) == 1:
        shutil.rmtree(folder, ignore_errors=True)
    return kept.file


def _changed(kept: Kept) -> Optional[str]:
    """As of Kept, and why it cannot be read."""
    try:
        return kept.changed()
    except (ValueError, OSError) as error:
        return str(error)


def _met(environ: dict[str, str], folder: Path, kept: Kept) -> Optional[str]:
    """The same for all processes: as rank 0 finds it."""
    rank = int(environ.get("RANK") or 0)
    if rank != 0:
        found: Optional[str] = meeting.follow(folder, rank)
        return found
    changed = _changed(kept)
    meeting.lead(folder, int(environ["WORLD_SIZE"]), changed)
    return changed


def _on_several_machines(environ: dict[str, str]) -> bool:
    """TrialError: its processes cannot find each other."""
    for name in _LAUNCHERS:
        if "WORLD_SIZE" not in environ and int(environ.get(name) or 1) > 1:
            raise TrialError(
                f"expected RANK, WORLD_SIZE and LOCAL_WORLD_SIZE for each of {environ[name]} processes ({name}), as "
                "torchrun sets them, found none: set them, or use stalloc fit and stalloc.apply"
            )
    ranks, here = (int(environ.get(name) or 1) for name in ("WORLD_SIZE", "LOCAL_WORLD_SIZE"))
    if ranks == here:
        return False
    for what, found in (("--dir", run_cache.chosen_directory(environ)), ("MASTER_ADDR", environ.get("MASTER_ADDR"))):
        if not found:
            raise TrialError(
                f"expected {what} for a job on several machines (WORLD_SIZE={ranks}, LOCAL_WORLD_SIZE={here}), found "
                "none: --dir is to be on a file system that all of them share"
            )
    return True


def _chosen(tried: making.Tried, kept: Kept, offloads: bool) -> dict[str, Any]:
    """Which is kept. TrialError: nothing fits."""
    memory = kept.made_for["memory"]
    by_words = functools.partial(fit.document_by, offloads=offloads)
    document = making.choose(tried, memory, by_words)
    if not document["fits"]:
        raise TrialError(_nothing_fits(document, making.smaller_batch(tried, memory, by_words)))
    document[fit_files.AUTOMATIC] |= {MADE_FOR: kept.made_for, SOURCES: tried.notes[0].sources}
    kept.keep(document)
    return document


def _nothing_fits(document: dict[str, Any], batch: Optional[tuple[int, int]]) -> str:
    chosen = document["chosen"]
    nearest = f"micro-batches of {chosen['micro_batch']}, {_changes(chosen) or 'nothing changed'}"
    live, held = size(document["predicted"]["peak_live_bytes"]), size(_held(document))
    memory = size(document["memory_bytes"])
    text = f"nothing that is known here fits {memory}: at least {live} are live, {held} held ({nearest})"
    if batch is None:
        return text
    return f"{text}; set the program's micro-batch to {batch[0]} rows, {batch[1]} of them a step, and start again"


# -- Of a job with several processes


def _answer(folder: Path, **answer: str) -> None:
    files.write_whole(folder / _ANSWER, json.dumps(answer).encode())


def _answered(folder: Path) -> Path:
    """What rank 0 has chosen. TrialError: it could not."""
    until = time.monotonic() + _WAIT_SECONDS
    while not (folder / _ANSWER).is_file():
        if time.monotonic() > until:
            raise TrialError("rank 0 has not chosen")
        time.sleep(0.1)
    answer = read_object(folder / _ANSWER)
    if "error" in answer:
        raise TrialError(f"rank 0: {answer['error']}")
    return Path(answer["file"])


# -- As text


def _tell(text: str) -> None:
    log.info(f"fit: {text}")


def _show(document: dict[str, Any], file: Path) -> None:
    chosen, predicted = document["chosen"], document["predicted"]
    batch = document[fit_files.AUTOMATIC]["batch"]
    what = f"micro-batches of {batch['micro_batch']}, {batch['accumulation']} a step" if batch else ""
    what = "; ".join(filter(None, [what, _changes(chosen)])) or "nothing has to be changed"
    _tell(f"chosen for {size(document['memory_bytes'])}: {what}")
    held = _held(document)
    seconds = fit.step_text(predicted)
    if document[fit_files.AUTOMATIC]["fake"]:
        seconds = "seconds are not known of fake tensors"
    sure = document["certainty"]["peak"]
    peak = worded(sure, size(predicted["peak_live_bytes"]))
    _tell(f"predicted: {peak} live at the peak, {worded(sure, size(held))} held; {seconds}")
    if document["host"]["binds"]:
        _tell(fit.host_note(document["host"]))
    note = document["certainty"]["note"]
    if note:
        _tell(note)
    _tell(f"kept in {file}: remove it for a new choice; to undo, leave --fit out (stalloc run --auto)")


def _say_unplanned(document: dict[str, Any]) -> None:
    """Of the first start on a card where more is free."""
    unplanned = document["predicted"]["held_bytes"].get("expandable", 0)
    if unplanned > document["memory_bytes"]:
        _tell(
            f"before the first start has its plan, PyTorch's allocator is predicted to hold {size(unplanned)}; later "
            f"starts begin with the plan, and hold at most {size(document['memory_bytes'])}"
        )


def _held(document: dict[str, Any]) -> int:
    held: int = document["predicted"]["held_bytes"].get(document["allocator"], 0)
    return held


def _changes(chosen: dict[str, Any]) -> str:
    words = [f"{way} {fit.brief(chosen[way])}" for way in ("recompute", "offload") if chosen[way]]
    return "; ".join([*words, *(["offload the optimizer's state"] if chosen["offload_state"] else [])])
