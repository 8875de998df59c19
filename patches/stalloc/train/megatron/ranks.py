"""This rank's coordinates, as Megatron knows them once it runs: written next to a trace, compared with those of a
plan."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any, Optional

from stalloc.core import config, coordinates, log
from stalloc.core.coordinates import Coordinates
from stalloc.train import session as _session
from stalloc.train.auto.auto import PLANNED


def note_coordinates() -> None:
    """At the first step. Whatever is wrong here costs a warning, not the run."""
    session, own = _session.current, of_megatron(sys.modules.get("megatron.core.parallel_state"))
    directory = os.environ.get("STALLOC_MODEL_INFO_PATH")
    if session is None or own is None or not directory:
        return
    try:
        if session.mode in (config.ALLOC, config.AUTO):
            _compare(Path(directory), own)
        if session.mode == config.TRACE or (session.auto is not None and session.auto.stage != PLANNED):
            coordinates.write(Path(directory), int(log.rank()), own)
    except (OSError, ValueError) as error:
        log.warning(f"the coordinates of this rank could not be noted: {error}")


def of_megatron(state: Any) -> Optional[Coordinates]:
    """None where Megatron's groups are not initialised (a run with groups of its own)."""
    if state is None or not getattr(state, "model_parallel_is_initialized", lambda: False)():
        return None
    groups = {
        "tp": "tensor_model_parallel",
        "pp": "pipeline_model_parallel",
        "cp": "context_parallel",
        "ep": "expert_model_parallel",
        "dp": "data_parallel",
    }
    ranks = {name: int(getattr(state, f"get_{group}_rank")()) for name, group in groups.items()}
    sizes = tuple(int(getattr(state, f"get_{group}_world_size")()) for group in groups.values())
    return Coordinates(sizes=sizes, **ranks)


def _compare(directory: Path, own: Coordinates) -> None:
    chosen = os.environ.get(coordinates.PLAN_RANK)
    theirs = coordinates.read_all(directory).get(int(chosen)) if chosen else None
    if theirs is not None and not theirs.replica_of(own):
        log.warning(
            f"the plan in use is rank {chosen}'s, which does not stand where this rank does: "
            f"plan {theirs}, this rank {own}"
        )
