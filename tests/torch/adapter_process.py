"""Runs the programs of a directory, each in a fresh process, with the adapter of a build loaded by ctypes.

The adapter is $STALLOC_TORCH_LIB, else libstalloc_torch.so in $STALLOC_BUILD_DIR, else in build/release. Without one,
tests are skipped, unless one of the two variables names a place where there is none.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Optional

import pytest
import warm_python

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = Path(__file__).resolve().parent / "programs"
_RANKS = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "OMPI_COMM", "SLURM_PROCID", "PMI_RANK")
_STEERING = ("STALLOC_", "PYTHON", "PYTORCH_", *_RANKS)


@dataclasses.dataclass(frozen=True)
class Finished:
    """What a process left behind."""

    code: int
    out: str
    err: str

    @property
    def result(self) -> Any:
        """The JSON of the last line of standard output. Fails the test if the process failed."""
        assert self.code == 0, f"exit {self.code}\n{self.out}\n{self.err}"
        return json.loads(self.out.splitlines()[-1])


class Adapter:
    """A built adapter, and the directory that its sessions write to."""

    def __init__(self, library: Path, programs: Path, directory: Path) -> None:
        self.library = library
        self.programs = programs
        self.directory = directory

    def run(
        self,
        program: str,
        *arguments: str,
        mode: Optional[str] = "Trace",
        under: Sequence[str] = (),
        **variables: str,
    ) -> Finished:
        """Runs a program.

        Args:
            program: its name in `programs`.
            arguments: its arguments.
            mode: STALLOC_MODE, or None for none.
            under: a command that runs the program, with its options.
            variables: more of the environment.
        """
        environment = {key: value for key, value in os.environ.items() if not key.startswith(_STEERING)}
        environment |= {
            "PYTHONPATH": f"{self.programs}:{PROGRAMS}",
            "TORCH_DEVICE_BACKEND_AUTOLOAD": "0",  # an installed stalloc must not get there first
            "STALLOC_TORCH_LIB": str(self.library),
            "STALLOC_MODEL_INFO_PATH": str(self.directory),
            "OMP_NUM_THREADS": "1",
        }
        if mode is not None:
            environment["STALLOC_MODE"] = mode
        words, environment = [str(self.programs / program), *arguments], environment | variables
        if not under and self.programs == PROGRAMS and warm_python.wanted():  # others use CUDA, which is never forked
            return Finished(*warm_python.run(words, environment, self.directory))
        done = subprocess.run(
            [*under, sys.executable, *words],
            env=environment,
            cwd=self.directory,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        return Finished(done.returncode, done.stdout, done.stderr)

    def plan(self) -> None:
        """Makes the plan of the trace in `directory`. Skips where the build has no planner."""
        planner = self.library.with_name("stalloc-planner")
        if not planner.exists():
            pytest.skip(f"no planner beside the adapter: {planner}")
        done = subprocess.run(
            [str(planner), "plan", str(self.directory)], capture_output=True, text=True, timeout=300, check=False
        )
        assert done.returncode == 0, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"

    def summary(self) -> dict[str, Any]:
        """What the last session wrote at its exit."""
        text = (self.directory / "log_output" / "rank00000.summary.json").read_text()
        parsed: dict[str, Any] = json.loads(text)
        return parsed


def find_library() -> Path:
    """The adapter under test. Skips where there is none."""
    if importlib.util.find_spec("torch") is None:
        pytest.skip("this interpreter has no torch")
    chosen = os.environ.get("STALLOC_TORCH_LIB")
    directory = os.environ.get("STALLOC_BUILD_DIR")
    path = Path(chosen) if chosen else Path(directory or ROOT / "build" / "release") / "libstalloc_torch.so"
    if not path.exists():
        if chosen or directory:
            pytest.fail(f"no torch adapter at {path}")
        pytest.skip(f"no torch adapter at {path}; build it, or set STALLOC_TORCH_LIB")
    return path.resolve()
