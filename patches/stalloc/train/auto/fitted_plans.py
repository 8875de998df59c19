"""A directory that the user has named has the plans of one choice of `stalloc run --fit` at a time.

Those of others lie in DIRECTORY/fit/plans/CHANGES (fit_files.Choice.changes), where names are as in DIRECTORY, until a
start with these changes comes. A plan without a signature was made by `stalloc plan`: of a program without changes.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Optional

from stalloc.core import log, run_files
from stalloc.core.outcome import shown
from stalloc.core.run_files import signature_name
from stalloc.core.run_signature import read_signature

_UNCHANGED = "unchanged"  # the folder of plans for the program as it is
_MOST_KEPT = 8  # choices; those that were left longest ago go


def bring(directory: Path, rank: int, changes: str) -> bool:
    """The rank's plan in the directory is one for these changes afterwards, or there is none.

    True: another one was there. Any process may call; where the directory is not to be had, all stays.
    """
    try:
        if not _is_wrong(directory, rank, changes) and not _is_aside(directory, rank, changes):
            return False
        with run_files.gate(directory):
            wrong = _is_wrong(directory, rank, changes)
            if wrong:
                _put_aside(directory, rank)
            if _is_aside(directory, rank, changes):
                _move(_folder(directory, changes), directory, rank)
            return wrong
    except OSError as error:
        log.warning(f"a plan of a start with other changes (--fit) stays in {shown(directory)}: {error}")
        return False


def _put_aside(directory: Path, rank: int) -> None:
    """REQUIRES: the gate is held."""
    folder = _folder(directory, _changes(directory, rank) or "")
    _move(directory, folder, rank)
    os.utime(folder)
    log.info(f"the plan in {shown(directory)} is of a start with other changes (--fit): it is kept in {shown(folder)}")
    for old in sorted(folder.parent.iterdir(), key=lambda path: -path.stat().st_mtime)[_MOST_KEPT:]:
        shutil.rmtree(old, ignore_errors=True)


def _is_wrong(directory: Path, rank: int, changes: str) -> bool:
    return _changes(directory, rank) not in (None, changes)


def _is_aside(directory: Path, rank: int, changes: str) -> bool:
    """The plan for these changes is there, and none is in the directory."""
    return _changes(directory, rank) is None and _plan(_folder(directory, changes), rank).is_file()


def _changes(directory: Path, rank: int) -> Optional[str]:
    """The changes of the plan in the directory; None: there is none."""
    if not _plan(directory, rank).is_file():
        return None
    try:
        signature = read_signature(directory, rank)
    except ValueError:  # which is said where it decides
        signature = None
    return "" if signature is None else signature.changes


def _folder(directory: Path, changes: str) -> Path:
    return directory / "fit" / "plans" / (changes or _UNCHANGED)


def _plan(directory: Path, rank: int) -> Path:
    return directory / "output" / "plan" / f"rank{rank:05d}.plan"


def _move(source: Path, target: Path, rank: int) -> None:
    """What a planner has published there (planner/cli/start_folder.h). The plan comes last, with all that is its."""
    plans, reports = (Path("output") / folder / f"rank{rank:05d}" for folder in ("plan", "trace_analysis"))
    names = [Path(signature_name(rank)), *(reports.with_suffix(end) for end in (".txt", ".json"))]
    names += [plans.with_suffix(end) for end in (".graphs.json", ".running.plan", ".plan")]
    trace = Path("trace") / f"rank{rank:05d}.trace"
    for name in names if run_files.is_locked(source / trace) else [trace, *names]:
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        if (source / name).exists():
            os.replace(source / name, target / name)
        else:
            (target / name).unlink(missing_ok=True)
