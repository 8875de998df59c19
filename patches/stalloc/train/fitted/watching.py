"""Whether this process is a trial or a start of `stalloc run --fit` (STALLOC_FIT), and who sees to it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Callable, Optional

from stalloc.core import fit_files
from stalloc.core.config import ConfigError
from stalloc.train.fitted.start import Start
from stalloc.train.fitted.trial import Trial
from stalloc.train.marking.paths import ModulePaths


def begin(rank: str, torch: Any, paths: Optional[ModulePaths]) -> Callable[[int], object]:
    """To be called with each iteration that is over. `paths`: the names of modules in the trace, where there is one.

    Raises:
        ConfigError: STALLOC_FIT names no file of `stalloc run --fit`.
    """
    try:
        given = fit_files.read(Path(os.environ[fit_files.FIT]))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{fit_files.FIT}: {error}") from error
    if isinstance(given, fit_files.Choice):
        return Start(given, torch).iteration_finished
    notes = fit_files.notes_path(Path(os.environ["STALLOC_MODEL_INFO_PATH"]), int(rank or 0))
    return Trial(given, notes, torch, paths).iteration_finished
