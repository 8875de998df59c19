"""Processes that the Python tests start: with a clean environment, under the fakes, or real training."""

from __future__ import annotations

import copy
import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Optional

import warm_python

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
PACKAGE = ROOT / "patches"
SCRIPTS = HERE / "scripts"


def view_of(build: Path, trace: Path, every_block: bool = False) -> dict[str, Any]:
    """What the planner tells of the trace."""
    asked = json.dumps({"request": "view", "every_block": every_block})
    command = [str(build / "stalloc-planner"), "serve", str(trace)]
    done = subprocess.run(command, input=asked, stdout=subprocess.PIPE, check=True, text=True)
    view: dict[str, Any] = json.loads(done.stdout)
    assert "error" not in view, view
    return view


@dataclasses.dataclass(frozen=True)
class Finished:
    """What a process left behind."""

    code: int
    out: str
    err: str

    def good(self) -> Finished:
        """Itself. Fails the test where the exit code is not 0."""
        assert self.code == 0, self.err
        return self


def clean_environment(extra: Mapping[str, str]) -> dict[str, str]:
    """This environment without anything that steers stalloc or python, and `extra`."""
    steering = ("STALLOC_", "FAKE_", "RANK", "OMPI_COMM", "SLURM_PROCID", "PMI_RANK", "PYTHON", "TORCH_DEVICE_BACKEND")
    kept = {key: value for key, value in os.environ.items() if not key.startswith(steering)}
    # One thread: two spin on cores that another test needs.
    return {**kept, "PYTHONPATH": str(PACKAGE), "OMP_NUM_THREADS": "1", **extra}


def run(arguments: list[str], environment: Optional[Mapping[str, str]] = None, cwd: Optional[Path] = None) -> Finished:
    """Runs a program to its end, with the source tree's package first."""
    done = subprocess.run(
        arguments,
        env=clean_environment(environment or {}),
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    return Finished(done.returncode, done.stdout, done.stderr)


def run_python(
    *arguments: str, environment: Optional[Mapping[str, str]] = None, cwd: Optional[Path] = None
) -> Finished:
    return run([sys.executable, *arguments], environment, cwd)


def run_with_torch(
    *arguments: str, environment: Optional[Mapping[str, str]] = None, cwd: Optional[Path] = None
) -> Finished:
    """The same for a program that imports torch, which is there already."""
    if not warm_python.wanted():
        return run_python(*arguments, environment=environment, cwd=cwd)
    return Finished(*warm_python.run(list(arguments), clean_environment(environment or {}), cwd))


def write_dist_info(directory: Path) -> Path:
    """A directory that, on PYTHONPATH, makes the package look installed: torch finds the entry point there."""
    info = directory / "stalloc-0.1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: stalloc\nVersion: 0.1.0\n")
    (info / "entry_points.txt").write_text("[torch.backends]\nstalloc = stalloc.train.autoload:activate\n")
    return directory


class FakeProcess:
    """Runs python with the fake torch and libraries, and reads what the library was called for."""

    def __init__(self, libraries: Path, directory: Path) -> None:
        self._log = directory / "calls.log"
        self.directory = directory
        self.environment = {
            "PYTHONPATH": f"{PACKAGE}:{HERE / 'fake_torch'}",
            "STALLOC_LIB_PATH": str(libraries),
            "STALLOC_MODEL_INFO_PATH": str(directory),
            "FAKE_LOG": str(self._log),
        }

    def python(self, *arguments: str, **environment: str) -> Finished:
        return run_python(*arguments, environment={**self.environment, **environment}, cwd=self.directory)

    def calls(self) -> list[str]:
        return [line.rstrip() for line in self._log.read_text().splitlines()] if self._log.exists() else []

    def forget_calls(self) -> None:
        self._log.unlink()

    def install_entry_point(self) -> None:
        site = write_dist_info(self.directory / "site")
        self.environment["PYTHONPATH"] += f":{site}"


class Training:
    """Runs scripts/train.py in one mode after the other on one directory."""

    def __init__(self, build: Path, directory: Path) -> None:
        self.build = build
        self.directory = directory
        self.info = directory / "info"
        self._number = 0
        self._start = run_with_torch

    def cold(self) -> Training:
        """The same in fresh interpreters, whose torch comes after stalloc: that is how most errors reach a user."""
        cold = copy.copy(self)
        cold._start = run_python
        return cold

    def environment(self, mode: Optional[str], **extra: str) -> dict[str, str]:
        variables = {
            "STALLOC_LIB_PATH": str(self.build),
            "STALLOC_MODEL_INFO_PATH": str(self.info),
            "OMP_NUM_THREADS": "1",
        }
        if mode is not None:
            variables["STALLOC_MODE"] = mode
        variables["STALLOC_DEVICE"] = "cpu"
        return {**variables, **extra}

    def run(self, mode: Optional[str], *arguments: str, **extra: str) -> dict[str, Any]:
        """The script's own result; it must have ended well."""
        self._number += 1
        output = self.directory / f"result{self._number}.json"
        done = self.try_run(mode, *arguments, "--json", str(output), **extra).good()
        result: dict[str, Any] = json.loads(output.read_text())
        result["stderr"] = done.err
        return result

    def try_run(self, mode: Optional[str], *arguments: str, **extra: str) -> Finished:
        start = ["-m", "stalloc", "run"] if mode is not None else []
        return self._start(
            *start,
            str(SCRIPTS / "train.py"),
            *arguments,
            environment=self.environment(mode, **extra),
            cwd=self.directory,
        )

    def start_plain(self, mode: Optional[str], *arguments: str, **extra: str) -> Finished:
        """A program as it is: under `-m stalloc run`, or python itself, where the environment asks for stalloc."""
        start = self._start if arguments[:3] == ("-m", "stalloc", "run") else run_python
        return start(*arguments, environment=self.environment(mode, **extra), cwd=self.directory)

    def plan(self) -> dict[str, Any]:
        done = self.try_plan("--json").good()
        result: dict[str, Any] = json.loads(done.out)
        return result

    def try_plan(self, *arguments: str) -> Finished:
        return run_python("-m", "stalloc", "plan", str(self.info), *arguments, environment=self.environment(None))

    def summary(self) -> dict[str, Any]:
        result: dict[str, Any] = json.loads((self.info / "log_output" / "rank00000.summary.json").read_text())
        return result
