"""What was found already: a run that was ended goes on with it."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from pathlib import Path
from typing import Any, Optional

from documents import write_json
from launch import EXIT_OUT_OF_MEMORY
from search import Outcome


@dataclasses.dataclass(frozen=True)
class Configuration:
    """What is attempted; the same choice is attempted once."""

    micro_batch: int
    recompute: tuple[str, ...]
    offload: tuple[str, ...]
    document: str = dataclasses.field(compare=False, repr=False)  # fit.json
    by_hand: tuple[str, ...] = ()  # words of train.py in place of a fit.json
    graphs: bool = False

    def key(self) -> str:
        """The same for the same choice."""
        hand = [self.by_hand] if self.by_hand else ["graphs"] if self.graphs else []
        changes = json.dumps([self.micro_batch, self.recompute, self.offload, *hand]).encode()
        return f"{self.micro_batch}-{hashlib.sha256(changes).hexdigest()[:12]}"

    def worded(self) -> str:
        if self.by_hand:
            return f"{self.micro_batch}, {' '.join(self.by_hand).removeprefix('--').replace('-', ' ')}"
        changed = f", {len(self.recompute)} parts recomputed" if self.recompute else ""
        return (
            f"{self.micro_batch}{changed}"
            + (f", {len(self.offload)} offloaded" if self.offload else "")
            + (", graphs" if self.graphs else "")
        )


class Known:
    """Outcomes and rows, written to the file after each; those that it had are not made again."""

    def __init__(self, path: Optional[Path], conditions: dict[str, Any]) -> None:
        self._path = path
        before = json.loads(path.read_text()) if path is not None and path.is_file() else {}
        if before and before.get("conditions") != conditions:
            raise SystemExit(f"worth: {path} was made under {before.get('conditions')}, and this is {conditions}")
        self._content = {
            "conditions": conditions,
            "rows": before.get("rows", []),
            "attempts": before.get("attempts", []),
        }

    def get(self, program: str, allocator: str, configuration: Configuration) -> Optional[Outcome]:
        wanted = [program, allocator, configuration.key()]
        for each in self._content["attempts"]:
            if each["of"] == wanted and (each["fits"] or each["figures"].get("exit_code") == EXIT_OUT_OF_MEMORY):
                return Outcome(each["fits"], each["tokens_per_second"], each["held"], each["figures"])
        return None

    def add(self, program: str, allocator: str, configuration: Configuration, outcome: Outcome) -> None:
        entry = {"of": [program, allocator, configuration.key()], "told": configuration.worded()}
        self._content["attempts"].append({**entry, **dataclasses.asdict(outcome)})
        self._write()

    def row(self, program: str) -> Optional[dict[str, Any]]:
        rows = [row for row in self._content["rows"] if row["program"] == program and "error" not in row]
        return rows[-1] if rows else None

    def add_row(self, row: dict[str, Any]) -> None:
        others = [each for each in self._content["rows"] if each["program"] != row["program"]]
        self._content["rows"] = [*others, row]
        self._write()

    def rows(self) -> list[dict[str, Any]]:
        return list(self._content["rows"])

    def _write(self) -> None:
        if self._path is not None:
            write_json(self._path, self._content)
