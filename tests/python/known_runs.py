"""Starts of programs whose plans are kept in one cache, and which plan each of them finds."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any, Optional

from processes import SCRIPTS, Finished, Training, run_python

FOUND, TRACED = "found", "traced"
SERVED = "the plan of an earlier start"
OTHER = "requests other sizes than the plan that it began with"


@dataclasses.dataclass
class Started:
    """One start. `came_to`: how, as a user sees it."""

    result: dict[str, Any]
    err: str

    @property
    def came_to(self) -> str:
        if OTHER in self.err or SERVED not in self.err:
            return TRACED
        return FOUND

    @property
    def hit_rate(self) -> float:
        return float(self.result["hits"] / max(1, self.result["requests"]))


class Starts:
    """Of programs, one after the other, whose plans are kept in one cache."""

    def __init__(self, training: Training, device: str = "cpu") -> None:
        self.training = training
        self.device = device
        self.cache = training.directory / "cache"
        self.kept = self.cache / "stalloc" / "runs"
        self.program = training.directory / "known_run.py"
        shutil.copy(SCRIPTS / "known_run.py", self.program)

    def environment(self) -> dict[str, str]:
        return {
            "STALLOC_MODEL_INFO_PATH": "",
            "XDG_CACHE_HOME": str(self.cache),
            "STALLOC_DEVICE": self.device,
            "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
        }

    def start(self, *arguments: object, program: Optional[Path] = None, **extra: str) -> Started:
        words = ("-m", "stalloc", "run", str(program or self.program), *map(str, arguments))
        done = self.training.start_plain(
            "Auto", *words, STALLOC_AUTO_WAIT="1", **{**self.environment(), **extra}
        ).good()
        assert "warning" not in done.err, done.err
        assert "error" not in done.err, done.err
        return Started(dict(json.loads(done.out.splitlines()[-1])), done.err)

    def plain(self, *arguments: object, program: Optional[Path] = None) -> dict[str, Any]:
        words = (str(program or self.program), *map(str, arguments))
        done = self.training.start_plain(None, *words, **self.environment()).good()
        return dict(json.loads(done.out.splitlines()[-1]))

    def command(self, *words: str) -> Finished:
        return run_python("-m", "stalloc", *words, environment=self.environment())

    def runs(self) -> list[dict[str, Any]]:
        return list(json.loads(self.command("runs", "--json").good().out)["runs"])
