"""Finds the known run of a start: guessed from its arguments, then decided by its requests.

    begin    the run whose starts had these arguments, else the nearest ones: its plan serves from the first request
    look     after the first iterations: is the plan this run's (run_signature.py), another known run's, or nobody's?
    claim    the run has been traced: it gets a directory in which no plan is another run's, nor will be

A run whose directory the user names (STALLOC_MODEL_INFO_PATH) has one plan for each rank, and no others are known.
A start under `stalloc run --fit` has only plans of starts with the same changes (fit_files.Choice.changes).
Each rank decides for itself; one of a job's ranks may be served from another run's plan than the next. Not thread-safe.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import functools
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Callable, Optional

from stalloc.core import coordinates, fit_files, log, run_cache, run_files
from stalloc.core.files import write_whole
from stalloc.core.run_cache import KnownRun, Program
from stalloc.core.run_files import Start, signature_name
from stalloc.core.run_signature import Signature, read_signature
from stalloc.train.auto import fitted_plans

CHECKED, GUESSED = "checked", "guessed"  # STALLOC_START_PLAN: how sure a start is of its plan
_DECIDED = 2  # iterations
_MOST_NAMES = 64  # of runs that are tried


@dataclasses.dataclass(frozen=True)
class Candidate:
    """A directory that has a plan for this rank: of `rank`, itself or a replica."""

    directory: Path
    rank: int

    @property
    def running_plan(self) -> Path:
        """The choice of a run that goes on."""
        return self.directory / "output" / "plan" / f"rank{self.rank:05d}.running.plan"

    def has_plan(self) -> bool:
        return (self.directory / "output" / "plan" / f"rank{self.rank:05d}.plan").is_file()

    def signature(self) -> Optional[Signature]:
        """None: the plan has none, as one that `stalloc plan` has made of a trace. ValueError: it is unreadable."""
        return read_signature(self.directory, self.rank)


@dataclasses.dataclass(frozen=True)
class Found:
    """What a look has found: `candidate` has the plan of this run; None: nobody has it."""

    candidate: Optional[Candidate]


class Choice:
    """The choice of one start.

    Args:
        program: None: the user has named the directory, or nothing is kept.
        guess: the run that it begins with, where that has a plan for the rank.
        others: known runs of the program.
        changes: what `stalloc run --fit` changes in the program.
    """

    def __init__(
        self,
        start: Start,
        program: Optional[Program],
        rank: int,
        *,
        guess: Optional[Candidate] = None,
        others: Sequence[Candidate] = (),
        trust: str = CHECKED,
        changes: str = "",
    ) -> None:
        self.start = start
        self.changes = changes
        self.trust = trust
        self._program = program
        self._rank = rank
        self._others = [one for one in others if one.running_plan.is_file()]
        self._set_guess(guess)

    def _set_guess(self, guess: Optional[Candidate]) -> None:
        self._guess = guess
        self._guessed = None if guess is None else _signature_or_nothing(guess, decides=True)
        self._trusted = guess is not None and not (guess.directory / signature_name(guess.rank)).exists()
        self.open = guess is not None or bool(self._others)

    def plan_is_loaded(self, loaded: bool, rank: int) -> None:
        """Whether a plan serves, the one of `rank` in the start's run: none does that is of another device, torch or
        number of ranks, or cannot be read; and another start may have left one meanwhile."""
        if not loaded:
            self._set_guess(None)
        elif self._guess is None:
            self._set_guess(Candidate(self.start.run, rank))

    def look(self, run: Optional[Signature], finished: int) -> Optional[Found]:
        """After so many iterations. None: undecided yet. The second iteration may refute the first one;
        after that nothing more is looked at."""
        if self._trusted:
            self.open = False
            return Found(self._guess)
        if finished >= _DECIDED:
            self.open = False
            return Found(self._guess if run is None else self._best(run, Signature.fits))
        found = None if run is None else self._best(run, Signature.begins_as)
        return None if found is None else self._take(found)

    def _best(self, run: Signature, fits: Callable[[Signature, Signature], bool]) -> Optional[Candidate]:
        """The guess, where it is one; else that which is most alike."""
        if self._guess is not None and self._guessed is not None and fits(self._guessed, run):
            return self._guess
        known = [(one, _signature_or_nothing(one)) for one in self._others]
        alike = [(sign.likeness(run), one) for one, sign in known if sign is not None and fits(sign, run)]
        return max(alike, key=lambda pair: pair[0])[1] if alike else None

    def _take(self, found: Candidate) -> Found:
        """It is the guess from now on."""
        if found != self._guess:
            self._others = [*(one for one in self._others if one != found), *([self._guess] if self._guess else [])]
            self._set_guess(found)
        return Found(found)

    def confirm(self) -> None:
        """The start is one of the run that it is in."""
        if self._program is not None:
            with contextlib.suppress(OSError):
                run_cache.describe(self.start.run, self._program, fits=True)

    def claim(self, signature: Signature) -> bool:
        """The traced run gets a directory for its plan; True where that is another than before.

        The start's folder has the signature until there is the plan, so that others see it. OSError: it cannot.
        """
        self.open = False
        pending = self.start.folder / signature_name(self._rank)
        write_whole(pending, json.dumps(signature.written()).encode())
        if self._program is None:
            return False
        before = self.start.run
        for directory in self._directories(signature):
            with contextlib.suppress(OSError):
                if self.start.move_to(directory, functools.partial(self._is_free, directory, signature)):
                    break
        self.confirm()
        if self.start.run == before:
            return False
        if not any((before / "output" / "plan").glob("rank*.plan")):
            run_files.remove_run(before)  # made for this start
        return True

    def _directories(self, signature: Signature) -> Iterator[Path]:
        """Where the plan may go, best first: where such a one is or was, here, and new ones."""
        assert self._program is not None
        cache = self.start.run.parent
        for run in run_cache.runs_of(self._program, cache):
            known = _signature_or_nothing(Candidate(run.directory, self._rank))
            if known is not None and known.fits(signature):
                yield run.directory
        yield self.start.run
        yield from itertools.islice(self._program.directories(cache), _MOST_NAMES)

    def _is_free(self, directory: Path, signature: Signature) -> bool:
        """No plan of another run is there for this rank, nor is one being made."""
        described = run_cache.read_run(directory)
        if described is not None and self._program is not None and described.key != self._program.key:
            return False
        folders = [one for one in run_files.starts_in(directory) if one != self.start.folder]
        if Candidate(directory, self._rank).has_plan():
            folders.append(directory)
        return all(_may_be_of(folder, self._rank, signature) for folder in folders)


def begin(
    environ: Mapping[str, str], argv: Sequence[str], torch_version: str, rank: int, module: Optional[str] = None
) -> Choice:
    """A start's folder, in the directory of the run that it probably is one of. Arguments as of Program.of.

    Where nothing can be kept there, a temporary one, which is said.
    """
    chosen = run_cache.chosen_directory(environ)
    if chosen is not None:
        return _begin_in(chosen, environ, argv, rank)
    try:
        return _begin_in_cache(environ, argv, Program.of(environ, argv, torch_version, module), rank)
    except OSError as error:
        return _begin_nowhere(None, rank, error)


def _begin_in(directory: Path, environ: Mapping[str, str], argv: Sequence[str], rank: int) -> Choice:
    try:
        start = Start.begin(directory)
    except OSError as error:
        return _begin_nowhere(directory, rank, error)
    _remove_ended(start.run)
    changes = fit_files.changes_of(environ)
    fitted_plans.bring(directory, rank, changes)
    guess = _candidate(directory, environ, argv, rank)
    while guess is not None and fitted_plans.bring(directory, guess.rank, changes):
        guess = _candidate(directory, environ, argv, rank)
    return Choice(start, None, rank, guess=guess, changes=changes)


def _begin_nowhere(directory: Optional[Path], rank: int, error: OSError) -> Choice:
    log.warning(f"plans cannot be kept for the next start: {error}")
    return Choice(Start.temporary(directory), None, rank)


def _begin_in_cache(environ: Mapping[str, str], argv: Sequence[str], program: Program, rank: int) -> Choice:
    cache = run_cache.cache_directory(environ)
    known = run_cache.runs_of(program, cache)
    changes = fit_files.changes_of(environ)
    candidates = {
        run.directory: _with_changes(_candidate(run.directory, environ, argv, rank), changes) for run in known
    }
    planned = [run for run in known if candidates[run.directory] is not None]
    guess = guess_of(planned, program)
    same = [run for run in planned if program.arguments in run.arguments]
    start = Start.begin(guess.directory if guess is not None else _new_directory(program, cache, rank))
    with contextlib.suppress(OSError):
        run_cache.describe(start.run, program, fits=False)
    _remove_ended(start.run)
    if log.rank() == "0":
        run_cache.drop_oldest(start.run, program)
    return Choice(
        start,
        program,
        rank,
        guess=candidates[guess.directory] if guess is not None else None,
        others=[one for run in planned if run is not guess and (one := candidates[run.directory]) is not None],
        trust=CHECKED if guess is None or (guess in same and len(same) == 1) else GUESSED,
        changes=changes,
    )


def guess_of(runs: Sequence[KnownRun], program: Program) -> Optional[KnownRun]:
    """Whose arguments are the nearest; of several the one that was used last. `runs`: those first."""

    def nearness(run: KnownRun) -> float:
        return max((_nearness(one, program.arguments) for one in run.arguments), default=0.0)

    return max(runs, key=nearness, default=None)


def _nearness(one: Sequence[str], other: Sequence[str]) -> float:
    """1 where they are equal, else less; words and what follows what count."""
    if tuple(one) == tuple(other):
        return 1.0
    mine, theirs = (_parts_of(words) for words in (one, other))
    return 0.99 * sum((mine & theirs).values()) / max(1, sum((mine | theirs).values()))


def _parts_of(words: Sequence[str]) -> collections.Counter[tuple[str, ...]]:
    return collections.Counter([*((word,) for word in words), *zip(words, words[1:])])


def _candidate(directory: Path, environ: Mapping[str, str], argv: Sequence[str], rank: int) -> Optional[Candidate]:
    """The candidate with this rank's plan, else with one at the same place of the parallel run; None: there is none."""
    chosen = environ.get(coordinates.PLAN_RANK, "")
    found = Candidate(directory, int(chosen) if chosen.isdecimal() else rank)
    if found.has_plan():
        return found
    there = {**environ, "STALLOC_MODEL_INFO_PATH": str(directory)}
    try:
        replica = coordinates.choose_plan(argv[1:], there, str(rank))
    except (OSError, ValueError):  # which is said where its plan is looked for
        return None
    return None if replica is None else Candidate(directory, replica)


def _with_changes(candidate: Optional[Candidate], changes: str) -> Optional[Candidate]:
    """None: its plan is of a start with other changes."""
    signature = None if candidate is None else _signature_or_nothing(candidate)
    return candidate if changes == ("" if signature is None else signature.changes) else None


def _signature_or_nothing(candidate: Candidate, decides: bool = False) -> Optional[Signature]:
    try:
        return candidate.signature()
    except ValueError as error:
        if decides:
            log.warning(f"{error}; the plan there is left out")
        return None


def _may_be_of(folder: Path, rank: int, signature: Signature) -> bool:
    """No signature is there, or one that the run's fits."""
    try:
        known = read_signature(folder, rank)
    except ValueError:
        return False
    return known is None or bool(known.fits(signature))


def _remove_ended(run: Path) -> None:
    if log.rank() == "0":
        with contextlib.suppress(OSError):
            run_files.remove_ended(run)


def _new_directory(program: Program, cache: Path, rank: int) -> Path:
    """Other ranks of the job go there as well, so it may be there. No plan is in it for this one."""
    return next(path for path in program.directories(cache) if _takes_start(path, program, rank))


def _takes_start(directory: Path, program: Program, rank: int) -> bool:
    known = run_cache.read_run(directory)
    others = known is not None and (known.key != program.key or program.arguments not in known.arguments)
    return not others and not Candidate(directory, rank).has_plan()
