"""The planner as one process that answers questions about one trace: a JSON object a line in, one a line out
(planner/README.md)."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Any, Optional

from stalloc.core import library


class CollectError(Exception):
    """A run's files cannot be used; the text is for the user."""


class Session:
    """`with Session(trace) as session: session.query("view")`. The first query reads the trace, once. One thread.

    Args:
        trace: the file; None: for questions that need none.
        second: a trace of the same program with another micro-batch, `ratio` times as large.
    Raises:
        CollectError: the planner is missing, or cannot be started.
    """

    def __init__(self, trace: Optional[Path] = None, second: Optional[Path] = None, ratio: float = 0.0) -> None:
        words = ["stalloc", "serve", *([] if trace is None else [str(trace)])]
        if second is not None:
            words += [f"--beside={second}", f"--ratio={ratio!r}"]
        try:
            self._program = library.find_or_raise(library.PLANNER_NAME)
            self._process = subprocess.Popen(
                words,
                executable=str(self._program),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                encoding="utf-8",
            )
        except (library.LibraryError, OSError) as error:
            raise CollectError(str(error)) from error

    def query(self, request: str, **values: Any) -> Any:
        """The answer. CollectError with the planner's words where it has none, or ends."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps({"request": request, **values}) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # it has ended: what it says is read below
        line = self._process.stdout.readline()
        if not line:
            said = self._process.communicate()[1].strip().removeprefix("stalloc serve: ")
            raise CollectError(said or f"{self._program} failed: {self._process.returncode}")
        answer = json.loads(line)
        if "error" in answer:
            raise CollectError(answer["error"])
        return answer

    def close(self) -> None:
        """Ends the process, also in the middle of an answer."""
        self._process.kill()
        self._process.communicate()

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: Optional[type[BaseException]], error: Optional[BaseException], where: Optional[TracebackType]
    ) -> None:
        self.close()
