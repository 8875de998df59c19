"""Where a rank stands in a parallel run, and whose plan it is served from.

Ranks that differ in nothing but their data-parallel number run the same program on other data, so one plan serves
them all. A traced rank writes its coordinates next to its trace. A rank without a plan of its own looks there for one
of equal coordinates; it has to know its own before anything is initialised, so they are computed from the command line.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Optional

from stalloc.core.files import write_whole

PLAN_RANK = "STALLOC_PLAN_RANK"
_NAME = re.compile(r"rank(\d{5,})\.coordinates\.json$")


@dataclasses.dataclass(frozen=True)
class Coordinates:
    """Numbers of the rank in each of its groups, and how many there are."""

    tp: int
    pp: int
    cp: int
    ep: int
    dp: int
    sizes: tuple[int, ...]  # of the groups, in this order

    def worded(self) -> str:
        """ "tp 1, pp 0, dp 3": of the groups that have more than one rank."""
        numbers = zip(("tp", "pp", "cp", "ep", "dp"), (self.tp, self.pp, self.cp, self.ep, self.dp), self.sizes)
        return ", ".join(f"{name} {number}" for name, number, size in numbers if size > 1)

    def replica_of(self, other: Coordinates) -> bool:
        """True where at most the data-parallel number differs."""
        return dataclasses.replace(self, dp=other.dp) == other


def of_command_line(words: Sequence[str], rank: int, world: int) -> Optional[Coordinates]:
    """The coordinates as Megatron numbers its ranks: tp fastest, then cp, dp and pp, or pp and dp under
    --use-tp-pp-dp-mapping.

    Experts are dealt out over the ranks in the same order, etp fastest. None where `words` has none of Megatron's
    arguments, or the sizes do not fit the world.
    """
    given = _parse(words)
    if all(value is None for value in (given.tp, given.pp, given.cp, given.ep, given.micro_batch)):
        return None
    tp, pp, cp, ep = (value or 1 for value in (given.tp, given.pp, given.cp, given.ep))
    etp = given.etp or tp
    if world % (tp * cp * pp) or world % (etp * ep * pp):
        return None
    dp = world // (tp * cp * pp)
    of_tp, rest = rank % tp, rank // tp
    of_cp, rest = rest % cp, rest // cp
    if given.pp_before_dp:
        of_pp, of_dp = rest % pp, rest // pp
    else:
        of_dp, of_pp = rest % dp, rest // dp
    return Coordinates(of_tp, of_pp, of_cp, (rank // etp) % ep, of_dp, (tp, pp, cp, ep, dp))


def _parse(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    for name, option in {
        "tp": "--tensor-model-parallel-size",
        "pp": "--pipeline-model-parallel-size",
        "cp": "--context-parallel-size",
        "ep": "--expert-model-parallel-size",
        "etp": "--expert-tensor-parallel-size",
        "micro_batch": "--micro-batch-size",  # data parallelism has no argument of its own
    }.items():
        parser.add_argument(option, type=int, dest=name)
    parser.add_argument("--use-tp-pp-dp-mapping", action="store_true", dest="pp_before_dp")
    return parser.parse_known_args(list(words))[0]


def write(directory: Path, rank: int, coordinates: Coordinates) -> None:
    """The file next to the rank's trace."""
    write_whole(_path(directory, rank), json.dumps(dataclasses.asdict(coordinates)).encode())


def _path(directory: Path, rank: int) -> Path:
    return directory / "trace" / f"rank{rank:05d}.coordinates.json"


def read_all(directory: Path) -> dict[int, Coordinates]:
    """The coordinates of the traced ranks. ValueError names a file that is none."""
    found = {}
    for path in sorted((directory / "trace").glob("rank*.coordinates.json")):
        name = _NAME.match(path.name)
        if name is not None:
            found[int(name[1])] = _read(path)
    return found


def read_one(directory: Path, rank: int) -> Optional[Coordinates]:
    """The coordinates of a traced rank. ValueError names a file that is none."""
    path = _path(directory, rank)
    return _read(path) if path.is_file() else None


def _read(path: Path) -> Coordinates:
    try:
        fields = json.loads(path.read_text())
        return Coordinates(**{**fields, "sizes": tuple(fields["sizes"])})
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path} does not hold the coordinates of a rank: {error}") from error


def rank_to_serve_from(directory: Path, rank: int, own: Coordinates) -> Optional[int]:
    """The first rank with a plan and equal coordinates; None where there is none, or where `rank` has a plan itself."""
    if _plan(directory, rank).exists():
        return None
    traced = read_all(directory)
    return next((r for r in sorted(traced) if traced[r].replica_of(own) and _plan(directory, r).exists()), None)


def place(words: Sequence[str], environ: Mapping[str, str], rank: str) -> str:
    """The text "tp 1, pp 0, dp 3", for the groups that have more than one rank. Empty where not known."""
    world = environ.get("WORLD_SIZE", "")
    if not (rank.isdigit() and world.isdigit()):
        return ""
    try:
        own = of_command_line(words, int(rank), int(world))
    except (argparse.ArgumentError, SystemExit):
        return ""
    return "" if own is None else own.worded()


def choose_plan(words: Sequence[str], environ: Mapping[str, str], rank: str) -> Optional[int]:
    """What STALLOC_PLAN_RANK should be for this process; None: leave it as it is."""
    world, directory = environ.get("WORLD_SIZE", ""), environ.get("STALLOC_MODEL_INFO_PATH", "")
    if environ.get(PLAN_RANK) or not (directory and rank.isdigit() and world.isdigit()):
        return None
    try:
        own = of_command_line(words, int(rank), int(world))
    except (argparse.ArgumentError, SystemExit):
        return None  # Megatron will say what is wrong with its arguments
    return None if own is None else rank_to_serve_from(Path(directory), int(rank), own)


def _plan(directory: Path, rank: int) -> Path:
    return directory / "output" / "plan" / f"rank{rank:05d}.plan"
