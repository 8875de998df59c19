"""Choices that are kept for the next start: one file for each program, its arguments, and the requested size.

They lie in the run's directory, or in the user's cache where nobody has named one. A choice is taken while the program,
the card, torch, and the number of GPUs and processes are what it was made for.
"""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Optional

from stalloc.core import files, fit_files, run_cache
from stalloc.core.json_files import read_object

MADE_FOR, SOURCES = "made_for", "sources"
_FOLDER, _CACHE_FOLDER = "fit", "fits"
_MOST_KEPT = 256  # in the user's cache
_CARDS = (
    "import json\n"
    "from stalloc.tools.doctor import gpu, machine\n"
    "try: found = gpu.cards(machine.Machine().cuda())\n"
    "except OSError: found = []\n"
    "print(json.dumps(found))"
)


@dataclasses.dataclass(frozen=True)
class Card:
    """The device whose memory is meant. `count`: of those that this process sees; 0: the CPU."""

    name: str
    bytes: int
    count: int

    @classmethod
    def present(cls, environ: Mapping[str, str]) -> Card:
        """The card of this process."""
        if environ.get("STALLOC_DEVICE", "").lower() == "cpu":
            return cls("cpu", 0, 0)
        found = cards(environ)
        if not found:
            return cls("cpu", 0, 0)
        local = environ.get("LOCAL_RANK", "0")
        index = int(local) if local.isdecimal() else 0
        name, size = found[index if index < len(found) else 0]
        return cls(name, size, len(found))


def cards(environ: Mapping[str, str]) -> list[tuple[str, int]]:
    """Names and bytes, queried in another process: one that has started the driver cannot fork any more. That one has
    no mode, with which it would be a run."""
    plain = {name: value for name, value in environ.items() if not name.startswith("STALLOC_")}
    done = subprocess.run([sys.executable, "-c", _CARDS], env=plain, capture_output=True, text=True, check=False)
    found: list[tuple[str, int]] = json.loads(done.stdout) if done.returncode == 0 else []
    return found


@dataclasses.dataclass(frozen=True)
class Kept:
    """Where the choice of a program is. `made_for`: what it has to have been made for."""

    file: Path
    made_for: dict[str, Any]

    @classmethod
    def of(cls, environ: Mapping[str, str], program: Sequence[str], memory: Optional[int], card: Card) -> Kept:
        """`memory`: the requested size; None: the card's. OSError: the user has no cache."""
        is_module = program[0] == "-m"
        argv = ["-m", *program[2:]] if is_module else list(program)
        torch = _torch_version()
        named = run_cache.Program.of(environ, argv, torch, program[1] if is_module else None)
        chosen = run_cache.chosen_directory(environ)
        folder = run_cache.cache_directory(environ).parent / _CACHE_FOLDER if chosen is None else chosen / _FOLDER
        asked = hashlib.sha256("\0".join([str(memory), *argv[1:]]).encode("utf-8", "surrogateescape")).hexdigest()
        made_for = {
            "memory": card.bytes if memory is None else memory,
            "card": card.name,
            "GPUs": card.count,
            "processes": int(environ.get("WORLD_SIZE") or 1),
            "torch": torch,
            "program": str(Path(named.path)),
        }
        return cls(folder / f"{named.key}-{asked[:8]}.json", made_for)

    def changed(self) -> Optional[str]:
        """Why the choice that is there cannot be taken; "": there is none; None: it can. ValueError: it is none."""
        if not self.file.is_file():
            return ""
        content = read_object(self.file)
        fit_files.choice_of(self.file, content)
        automatic = content[fit_files.AUTOMATIC]
        before, sources = automatic.get(MADE_FOR, {}), automatic.get(SOURCES, {})
        for name, value in self.made_for.items():
            if before.get(name) != value:
                return f"{name}: {before.get(name)} then, {value} now"
        changed = [path for path, digest in sources.items() if fit_files.digest(Path(path)) != digest]
        return f"{changed[0]} has changed" if changed else None

    def keep(self, document: dict[str, Any]) -> None:
        """OSError."""
        files.write_whole(self.file, (json.dumps(document, indent=1) + "\n").encode())
        if self.file.parent.name == _CACHE_FOLDER:
            for old in sorted(self.file.parent.glob("*.json"), key=_age)[_MOST_KEPT:]:
                files.remove(old)

    def trials(self, start: str) -> Path:
        """A folder for the trials of a start. Those of earlier ones go."""
        folder = self.file.with_suffix(f".trials-{start}")
        for other in self.file.parent.glob(f"{self.file.stem}.trials-*"):
            if other != folder:
                shutil.rmtree(other, ignore_errors=True)
        return folder


def _age(path: Path) -> float:
    try:
        return -path.stat().st_mtime
    except OSError:
        return 0.0


def _torch_version() -> str:
    try:
        return importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        return ""


def start_of(environ: Mapping[str, str]) -> str:
    """A name of this start that all of its processes have: their launcher's number, else this process's."""
    return str(os.getppid() if int(environ.get("WORLD_SIZE") or 1) > 1 else os.getpid())
