"""`stalloc plan --max-tokens N`: a plan that serves micro-batches of up to N tokens, though none traced is as long.

What varies with the tokens of a micro-batch is taken to grow as they do. So slots for the largest size traced, larger
by as much as N is larger than the longest micro-batch traced, are enough: the planner's --headroom. Each rank has its
own.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
from pathlib import Path
from typing import Optional

from stalloc.core import trace_files
from stalloc.tools.commands import planner
from stalloc.tools.report import collect

OPTION = "--max-tokens"
HELP = (
    f"  {OPTION}=N  Plan for micro-batches of up to N tokens, where lengths vary: every request of varying size "
    "gets a slot, larger than the largest traced size in proportion of N to the longest traced micro-batch, which "
    "the traced run must report by stalloc.tokens(n). Requests that grow faster than the tokens, as attention scores "
    "do, outgrow their slots: trace such a micro-batch. Use it instead of --headroom."
)

_MOST_PERCENT = 1000  # that --headroom takes


class TokensError(ValueError):
    """The traced run lacks the tokens to plan for. The text is one line for the user."""


@dataclasses.dataclass(frozen=True)
class TracedTokens:
    """For one rank: the tokens of the longest traced micro-batch, and whether any varied between iterations."""

    path: Path
    most: int
    varies: bool


def read(directory: Path, rank: int) -> TracedTokens:
    """TokensError where there is no such file, or it is another."""
    path = trace_files.path_of(directory, rank, "tokens.json")
    try:
        counts = json.loads(path.read_text(encoding="utf-8"))
        least, most = ([int(number) for number in counts[key]] for key in ("least", "most"))
    except FileNotFoundError as error:
        raise TokensError(
            f"{path} is missing: {OPTION} needs to know how long the traced micro-batches were; call stalloc.tokens(n) "
            "for each of them in the traced run"
        ) from error
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise TokensError(f"{path} does not hold the tokens of micro-batches: {error!r}") from error
    if min(most, default=0) < 1:
        raise TokensError(f"{path} does not hold the tokens of micro-batches: expected numbers from 1 on, found {most}")
    return TracedTokens(path, max(most), least != most)


def headroom_percent(traced: TracedTokens, longest: int) -> str:
    """By how much `longest` exceeds what was traced, rounded up; TokensError where no plan of this trace serves it."""
    if longest < traced.most:
        raise TokensError(f"{OPTION} {longest} is less than the {traced.most} tokens that were traced ({traced.path})")
    if longest > traced.most and not traced.varies:
        raise TokensError(
            f"{OPTION} {longest}: micro-batches were as long in all traced iterations, up to {traced.most} tokens "
            f"({traced.path}), so it is unknown which requests grow with them; trace iterations of several lengths"
        )
    ten_thousandths = -(-(longest - traced.most) * 10**6 // traced.most)
    if ten_thousandths > _MOST_PERCENT * 10**4:
        raise TokensError(
            f"{OPTION} {longest} is more than {1 + _MOST_PERCENT // 100} times the {traced.most} tokens that were "
            f"traced ({traced.path}); trace longer micro-batches"
        )
    return f"{ten_thousandths / 10**4:.4f}"


def split(words: list[str]) -> tuple[Optional[int], list[str]]:
    """The value of --max-tokens, and all other words. Leaves by SystemExit where it is no number."""
    parser = _parser()
    parser.add_argument(OPTION, "--max_tokens", type=int)
    given, others = parser.parse_known_args(words)
    longest: Optional[int] = given.max_tokens
    return longest, words if longest is None else others


def plan(longest: int, words: list[str]) -> int:
    """Runs the planner with `words`, in which it finds the directory and the ranks as we do, and with headroom.

    Raises:
        TokensError: see above.
        planner.PlannerError: it cannot be started.
    """
    parser = _parser()
    parser.add_argument("--headroom")
    parser.add_argument("--device", "--rank", type=int)
    parser.add_argument("--devices", type=int)
    given, others = parser.parse_known_args(words)
    if given.headroom is not None:
        parser.error(f"{OPTION} and --headroom exclude each other")
    directory = directory_of(others)
    traced = _traced_ranks(directory)
    wanted = [given.device] if given.device is not None else traced if given.devices is None else range(given.devices)
    if not wanted or not set(wanted) <= set(traced):
        return planner.execute("plan", words)  # it says what is missing
    percents = {rank: headroom_percent(read(directory, rank), longest) for rank in wanted}
    if len(set(percents.values())) == 1:
        return planner.execute("plan", [*words, f"--headroom={percents[wanted[0]]}"])
    return _one_by_one(percents, others)


def _parser() -> argparse.ArgumentParser:
    return argparse.ArgumentParser(prog="stalloc plan", add_help=False, allow_abbrev=False, usage="stalloc plan --help")


def directory_of(words: list[str]) -> Path:
    """The directory that the planner would plan. Raises SystemExit if there is not exactly one."""
    parser = _parser()
    parser.add_argument("directories", nargs="*", default=[])
    parser.add_argument("--model-memory-dir", "--model_memory_dir", action="append", dest="named", default=[])
    for name in ("--threads", "--seed", "--device", "--rank", "--devices", "--headroom", OPTION):
        parser.add_argument(name)
    parser.add_argument("--time-limit", "--time_limit")
    given, _ = parser.parse_known_args(words)
    found = [*given.directories, *given.named]
    if len(found) != 1:
        parser.error("expected one directory, as DIR or --model-memory-dir=DIR")
    return Path(found[0])


def _traced_ranks(directory: Path) -> list[int]:
    try:
        return sorted(files.rank for files in collect.find_ranks(directory))
    except collect.CollectError:
        return []


def _one_by_one(percents: dict[int, str], words: list[str]) -> int:
    """The planner has one headroom for all ranks of a call: each rank has a call, and a table."""
    as_json = bool({"--json", "-json", "--json=true"} & set(words))
    code, ranks = 0, []
    for rank, percent in percents.items():
        done = planner.run("plan", [*words, f"--device={rank}", f"--headroom={percent}"], captured=as_json)
        if done.returncode not in (0, 1):
            return done.returncode
        code = max(code, done.returncode)
        if as_json and done.stdout:
            ranks += json.loads(done.stdout)["ranks"]
    if as_json:
        print(json.dumps({"ranks": ranks, "ok": code == 0}))
    return code
