"""The processes of a job on several machines meet in a directory that all machines share, before they try the program.

    ranks    hello-3.json: a word of this start --> rank 0: all are here --> start.json: their words, and what is done
    rank 3   ............................................................... its word is there: it goes on

What an earlier start has left there has other words.
"""

from __future__ import annotations

import json
import shutil
import time
import uuid
from pathlib import Path
from typing import Any, Optional

from stalloc.core.files import write_whole
from stalloc.core.json_files import read_object
from stalloc.tools.fitted.trials import TrialError

WAIT_SECONDS = 300.0  # a file system of several machines shows files late
_POLL_SECONDS = 0.1


def lead(folder: Path, ranks: int, done: Any) -> None:
    """As rank 0: empties the folder, and writes `done`, a value of JSON, once all are there. TrialError."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    until = time.monotonic() + WAIT_SECONDS
    words: dict[str, str] = {}
    while len(words) < ranks - 1:
        if time.monotonic() > until:
            raise TrialError(f"expected {ranks} processes of the job in {folder}, found {len(words) + 1}; {_SHARED}")
        for rank in range(1, ranks):
            said = _read(folder / f"hello-{rank}.json")
            if said is not None:
                words[str(rank)] = said["word"]
        time.sleep(_POLL_SECONDS)
    write_whole(folder / "start.json", json.dumps({"words": words, "done": done}).encode())


def follow(folder: Path, rank: int) -> Any:
    """As any other rank: what rank 0 has written. TrialError: it has not come."""
    word = uuid.uuid4().hex
    hello, start = folder / f"hello-{rank}.json", folder / "start.json"
    until = time.monotonic() + WAIT_SECONDS
    while True:
        if _read(hello) != {"word": word}:  # rank 0 came later, and has emptied the folder
            write_whole(hello, json.dumps({"word": word}).encode())
        found = _read(start)
        if found is not None and found["words"].get(str(rank)) == word:
            return found["done"]
        if time.monotonic() > until:
            raise TrialError(f"expected rank 0 of the job in {folder}, found none; {_SHARED}")
        time.sleep(_POLL_SECONDS)


def _read(path: Path) -> Optional[dict[str, Any]]:
    """None: it is not there, or no more."""
    try:
        return read_object(path)
    except (OSError, ValueError):
        return None


_SHARED = "for a job on several machines --dir has to be on a file system that all of them share"
