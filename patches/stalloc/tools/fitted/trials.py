"""Trials: the program runs in a process of its own, is traced, and ended (train/fitted/trial.py).

Under a launcher each process of the job tries its own rank; the others read in notes next to the traces how it ended.
What the program prints goes to a file.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Optional

from stalloc.core import fit_files
from stalloc.core.files import write_whole
from stalloc.core.fit_files import FAILED, FINISHED, OUT_OF_MEMORY, RUNS, TRACED, Notes, Trial

TRACED_ITERATIONS = 3
_FREE_ITERATIONS = 4  # after the trace, untraced: how long a step is
_WATCHED_ITERATIONS = 2  # then the device is watched
_ITERATIONS = TRACED_ITERATIONS + _FREE_ITERATIONS + _WATCHED_ITERATIONS
_POLL_SECONDS = 0.1
_WAIT_SECONDS = 1800.0  # for other ranks
_THIS_MACHINE = "127.0.0.1"
_LINES = 12  # of what a failed program said


class TrialError(ValueError):
    """No trial came to anything. One or more lines for the user."""


class Trials:
    """Of one start. Every rank makes the same ones, one after the other."""

    def __init__(
        self,
        program: Sequence[str],
        folder: Path,
        environ: Mapping[str, str],
        fake_device: str,
        address: Optional[str] = None,
    ) -> None:
        """`address`: of rank 0's machine, where there are several; they share the folder."""
        self._program = program
        self.folder = folder
        self._environ = environ
        self._fake_device = fake_device
        self._address = address
        self._count = 0
        self.rank = int(environ.get("RANK") or 0)
        self.ranks = int(environ.get("WORLD_SIZE") or 1)

    def trace(self, smaller: int = 1, least: int = 1, rows: Optional[int] = None) -> tuple[Path, list[Notes]]:
        """The directory of the traces, and the notes of all ranks. Arguments as of Trial."""
        times = {"STALLOC_TRACE_TIMES": "1"}
        return self._run(Trial(_ITERATIONS, smaller, least, rows), [], times)

    def trace_fakes(self) -> tuple[Path, list[Notes]]:
        """The same of fake tensors, with the program's own micro-batches."""
        fake = ["--fake", "--device", self._fake_device]
        variables = {"STALLOC_TRACE_TIMES": "0", "STALLOC_TRACE_STEPS": str(TRACED_ITERATIONS + 1)}
        return self._run(Trial(TRACED_ITERATIONS), fake, variables)

    def _run(self, order: Trial, words: list[str], variables: dict[str, str]) -> tuple[Path, list[Notes]]:
        self._count += 1
        directory = self.folder / str(self._count)
        given = self.folder / f"order{self.rank}-{self._count}.json"
        fit_files.write_trial(given, order)
        with (self.folder / f"log{self.rank}-{self._count}.txt").open("wb") as log:
            child = subprocess.Popen(
                [sys.executable, "-m", "stalloc", "run", *words, *self._program],
                env={**self._variables(directory, given), **variables},
                stdout=log,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
            )
            try:
                self._wait(child, directory)
            finally:
                child.kill()
                child.wait()
        self._settle(directory, child.returncode)
        return directory, self._all(directory)

    def _variables(self, directory: Path, given: Path) -> dict[str, str]:
        traced = {
            "STALLOC_MODE": "Trace",
            "STALLOC_MODEL_INFO_PATH": str(directory),
            "STALLOC_TRACE_MODULES": "1",
            "STALLOC_TRACE_NAMES": "1",
            "STALLOC_TRACE_STEPS": str(TRACED_ITERATIONS),
            "STALLOC_TRACE_RANKS": "",
            "STALLOC_TRACE_FAST_MODE": "0",
            "STALLOC_TENSORBOARD": "",
            "WANDB_MODE": "disabled",
            "COMET_MODE": "disabled",
            fit_files.FIT: str(given),
        }
        if self.ranks > 1:
            traced |= {"TORCHELASTIC_USE_AGENT_STORE": "False", "MASTER_PORT": self._port()}
            traced["MASTER_ADDR"] = self._address or _THIS_MACHINE
        return {**self._environ, **traced}

    def _port(self) -> str:
        """Where the processes of this trial meet: what they leave at the launcher's port would mislead the next."""
        path = self.folder / f"port-{self._count}"
        if self.rank == 0:
            with socket.socket() as free:
                free.bind((_THIS_MACHINE if self._address is None else "", 0))
                write_whole(path, str(free.getsockname()[1]).encode())
        until = time.monotonic() + _WAIT_SECONDS
        while not path.is_file():
            if time.monotonic() > until:
                raise TrialError("rank 0 has not tried the program")
            time.sleep(_POLL_SECONDS)
        return path.read_text()

    def _wait(self, child: subprocess.Popen[bytes], directory: Path) -> None:
        """For the program, or until that of another rank has ended otherwise than it should."""
        while child.poll() is None:
            time.sleep(_POLL_SECONDS)
            if any(notes is not None and notes.ended in (FAILED, OUT_OF_MEMORY) for notes in self._others(directory)):
                return

    def _others(self, directory: Path) -> list[Optional[Notes]]:
        ranks = [rank for rank in range(self.ranks) if rank != self.rank]
        return [fit_files.read_notes(fit_files.notes_path(directory, rank)) for rank in ranks]

    def _settle(self, directory: Path, code: int) -> None:
        """The notes of this rank say how its program ended."""
        path = fit_files.notes_path(directory, self.rank)
        notes = fit_files.read_notes(path) or Notes()
        if notes.ended == RUNS or (code != 0 and notes.ended in (TRACED, FINISHED)):
            notes.ended = FAILED
        fit_files.write_notes(path, notes)

    def _all(self, directory: Path) -> list[Notes]:
        until = time.monotonic() + _WAIT_SECONDS
        while True:
            found = [fit_files.read_notes(fit_files.notes_path(directory, rank)) for rank in range(self.ranks)]
            ended = [notes for notes in found if notes is not None and notes.ended != RUNS]
            if len(ended) == self.ranks:
                return ended
            if time.monotonic() > until:
                raise TrialError(f"{self.ranks - len(ended)} of {self.ranks} ranks have not tried the program")
            time.sleep(_POLL_SECONDS)

    def failure(self) -> TrialError:
        """What the last program said at its end, without what stalloc said."""
        log = self.folder / f"log{self.rank}-{self._count}.txt"
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
        own = [line for line in lines if not line.startswith("[stalloc]")]
        said = "".join(f"\n  {line}" for line in own[-_LINES:])
        return TrialError(f"the program ended before its first iterations were traced; {log} ends in:{said}")


def ended_in(all_notes: list[Notes]) -> str:
    """Of all ranks: what is worst."""
    ended = {notes.ended for notes in all_notes}
    return next(each for each in (OUT_OF_MEMORY, FAILED, FINISHED, TRACED) if each in ended)


def environment() -> dict[str, str]:
    """This process's, for its trials."""
    return dict(os.environ)
