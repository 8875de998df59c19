"""`stalloc status`: how far runs under STALLOC_MODE=Auto are, or came."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any, Optional

from stalloc import _run_cache
from stalloc._core._report import size

HELP = "show how far a run under STALLOC_MODE=Auto is: its stages, with their times, of each rank"
EXAMPLES = ("status run1",)

_EPILOG = """
Without DIR: of STALLOC_MODEL_INFO_PATH, else of the run that was started last of those whose plans are in the cache.
"""


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EPILOG
    parser.add_argument("dir", metavar="DIR", nargs="?", type=Path, help="directory of the run")
    parser.add_argument("--rank", type=int, metavar="R", help="this rank alone (default: all)")
    parser.add_argument("--json", action="store_true", help="as JSON")


def run(arguments: argparse.Namespace) -> int:
    try:
        directory = arguments.dir or _last_run()
        ranks = [_read(path) for path in sorted((directory / "log_output").glob("rank*.auto.json"))]
        if arguments.rank is not None:
            ranks = [rank for rank in ranks if rank["rank"] == arguments.rank]
        if not ranks:
            which = "no rank" if arguments.rank is None else f"rank {arguments.rank} never"
            raise ValueError(f"{directory}: {which} has run there under STALLOC_MODE=Auto (log_output/rank*.auto.json)")
    except (OSError, ValueError) as error:
        print(f"stalloc status: {error}", file=sys.stderr)
        return 1
    if arguments.json:
        print(json.dumps({"directory": str(directory), "ranks": ranks}, indent=1))
        return 0
    print(directory)
    for rank in ranks:
        for stage in rank["stages"]:
            print(_line(rank["rank"], stage))
    return 0


def _last_run() -> Path:
    chosen = os.environ.get("STALLOC_MODEL_INFO_PATH")
    found = Path(chosen) if chosen else _run_cache.last_run(os.environ)
    if found is None:
        raise ValueError("no run is in the cache; name a directory")
    return found


def _read(path: Path) -> dict[str, Any]:
    try:
        rank: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return {"rank": int(rank["rank"]), "stages": [dict(stage) for stage in rank["stages"]]}
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path}: expected stages of a rank, as a run writes them: {error!r}") from error


def _line(rank: int, stage: dict[str, Any]) -> str:
    facts = [text for text in (_fact(name, value) for name, value in stage.items()) if text is not None]
    head = f"rank {rank}  {stage['after_seconds']:>9.1f} s  {stage['iterations']:>6} iterations  {stage['stage']:<9}"
    return f"{head}  {', '.join(facts)}".rstrip()


def _fact(name: str, value: Any) -> Optional[str]:
    if name in ("stage", "after_seconds", "iterations"):
        return None
    words = name.rsplit("_", 1)[0].replace("_", " ")
    if name.endswith("_bytes"):
        return f"{words} {size(value)}"
    if name.endswith("_seconds"):
        return f"{words} {value:.2f} s"
    if name.endswith("efficiency"):
        return f"{words} E {100 * value:.2f} %"
    if name == "to_trace":
        return f"{value} iterations to trace"
    return f"from iteration {value} on" if name == "iteration" else str(value)
