"""What `stalloc run --fit` passes to the programs that it starts, and what they write for it: files of JSON.

STALLOC_FIT names one of two files. An order of a trial says how a program is traced: {"trial": {...}}. A choice is
fit.json of `stalloc fit` with what a start needs to apply it: {"version": 1, "chosen": {...}, "automatic": {...}}.
A trial leaves notes next to its trace, one file a rank.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Optional, cast

from stalloc.core import trace_files
from stalloc.core.files import write_whole
from stalloc.core.json_files import read_object
from stalloc.core.module_paths import CHOICE_VERSION

FIT = "STALLOC_FIT"  # the file's path
HELD_LIMIT = "STALLOC_HELD_LIMIT"  # bytes that a start shall hold at most, where a size was given
TRIAL, AUTOMATIC = "trial", "automatic"
ITSELF = "."  # the path of a model in itself
_MOST_BYTES = 4 << 20  # of a file of the program

# How a trial ended.
RUNS, TRACED, FINISHED, OUT_OF_MEMORY, FAILED = "runs", "traced", "finished", "out of memory", "failed"


@dataclasses.dataclass(frozen=True)
class Batch:
    """The batch of one process. `framework`: which of "trainer", "lightning", "megatron" takes its numbers from
    stalloc; None: the program does not say how it makes its micro-batches."""

    framework: Optional[str]
    micro_batch: int  # rows
    accumulation: int  # micro-batches of a step


@dataclasses.dataclass(frozen=True)
class Model:
    """An outermost module that trains. `recompute`, `offload`: paths in it, or ITSELF."""

    kind: str  # name of its class
    parameters: int
    traced_as: Optional[str] = None  # its name in the trace; None: it did not run there
    recompute: tuple[str, ...] = ()
    offload: tuple[str, ...] = ()

    def is_like(self, other: Model) -> bool:
        return (self.kind, self.parameters) == (other.kind, other.parameters)

    def said(self) -> str:
        return f"{self.kind} with {self.parameters} parameters"


@dataclasses.dataclass(frozen=True)
class Trial:
    """How a program is traced, where its framework takes a micro-batch: its own over `smaller`, `least` rows at least;
    or as many as `rows` says."""

    iterations: int  # then the program is ended
    smaller: int = 1
    least: int = 1
    rows: Optional[int] = None


@dataclasses.dataclass
class Notes:
    """What a trial has seen of its program."""

    own: Optional[Batch] = None  # as the program has it; None: no framework says it
    traced: Optional[Batch] = None  # as it was set for the trial
    models: list[Model] = dataclasses.field(default_factory=list)  # in the order in which they were found
    modules: list[str] = dataclasses.field(default_factory=list)  # by model: digest of the paths of all modules in it
    rows: Optional[int] = None  # of the first tensor that a model was called with
    sources: dict[str, str] = dataclasses.field(default_factory=dict)  # digest of each file of the program
    iterations: int = 0
    ended: str = RUNS


@dataclasses.dataclass(frozen=True)
class Choice:
    """What a start applies. `own`, `batch`: what the program's framework has, and gets instead; None: it has none."""

    file: Path
    models: tuple[Model, ...]
    offload_state: bool
    own: Optional[Batch]
    batch: Optional[Batch]

    @property
    def changes(self) -> str:
        """A name of what it changes in the program, equal for sizes that lead to the same; "": nothing."""
        models = [dataclasses.asdict(each) for each in self.models if each.recompute or each.offload]
        batch = None if self.batch is None or self.batch == self.own else dataclasses.asdict(self.batch)
        if not (models or batch or self.offload_state):
            return ""
        text = json.dumps([models, batch, self.offload_state], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]


def changes_of(environ: Mapping[str, str]) -> str:
    """Choice.changes of this start; "" where it has no choice, or one that cannot be read: who applies it says so."""
    try:
        given = read(Path(environ[FIT]))
    except (KeyError, OSError, ValueError):
        return ""
    return given.changes if isinstance(given, Choice) else ""


def held_limit(environ: Mapping[str, str]) -> int:
    """Bytes; 0: no limit."""
    return int(environ.get(HELD_LIMIT) or 0)


def write_trial(path: Path, trial: Trial) -> None:
    """OSError."""
    write_whole(path, json.dumps({TRIAL: dataclasses.asdict(trial)}).encode())


def read(path: Path) -> Trial | Choice:
    """ValueError names the file, what is expected and what was found. OSError."""
    content = read_object(path)
    if TRIAL in content:
        return Trial(**content[TRIAL])
    return choice_of(path, content)


def choice_of(path: Path, content: dict[str, Any]) -> Choice:
    """ValueError, as of `read`."""
    automatic = content.get(AUTOMATIC)
    if content.get("version") != CHOICE_VERSION or not isinstance(automatic, dict):
        found = "no automatic choice" if content.get("version") == CHOICE_VERSION else repr(content.get("version"))
        raise ValueError(f"{path}: expected a choice of stalloc run --fit, version {CHOICE_VERSION}, found {found}")
    try:
        return Choice(
            file=path,
            models=tuple(map(_model, automatic["models"])),
            offload_state=bool(content["chosen"]["offload_state"]),
            own=_batch(automatic["own"]),
            batch=_batch(automatic["batch"]),
        )
    except (KeyError, TypeError) as error:
        raise ValueError(f"{path}: expected a choice of stalloc run --fit, found {error!r}") from error


def notes_path(directory: Path, rank: int) -> Path:
    return trace_files.path_of(directory, rank, "fit.json")


def write_notes(path: Path, notes: Notes) -> None:
    """OSError."""
    write_whole(path, json.dumps(dataclasses.asdict(notes)).encode())


def read_notes(path: Path) -> Optional[Notes]:
    """None: the trial has left none. ValueError, OSError."""
    if not path.is_file():
        return None
    content = read_object(path)
    changed = {
        "own": _batch(content["own"]),
        "traced": _batch(content["traced"]),
        "models": list(map(_model, content["models"])),
    }
    return Notes(**{**content, **changed})


def _batch(fields: Optional[dict[str, Any]]) -> Optional[Batch]:
    return None if fields is None else Batch(**fields)


def _model(fields: dict[str, Any]) -> Model:
    paths = {name: tuple(cast("list[str]", fields[name])) for name in ("recompute", "offload")}
    return Model(**{**fields, **paths})


def digest(path: Path) -> Optional[str]:
    """The hash of a source or a file of settings; None: it cannot be read, or is larger than these are."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest() if path.stat().st_size <= _MOST_BYTES else None
    except OSError:
        return None
