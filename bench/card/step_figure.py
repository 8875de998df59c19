"""The first figure: steps of a program on a free card under each allocator, alternately or one process after the
other."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any, Optional

from allocators import Allocators, CardError, say
from card_document import Document
from documents import GIB, aligned, cell
from program_process import OUT_OF_MEMORY, TRAINED, ProgramProcess, Run
from step_ratios import arena_changes, row_of

_SINCE_START = 100  # steps whose time from the start of the process is reported


def measure(chosen: argparse.Namespace, allocators: Allocators, document: Document) -> int:
    """Exit code."""
    if "stalloc" in chosen.allocators:
        allocators.prepare()
    runs = _alone(chosen, allocators, document) if chosen.alone else _alternately(chosen, allocators)
    rows = rows_of(runs, chosen.warm_up, alternating=not chosen.alone)
    document.write(runs=_documents(runs), rows=rows, complete=True)
    _print(rows, next(iter(runs.values())), chosen)
    return 0


def alternate(processes: Mapping[str, ProgramProcess]) -> Optional[str]:
    """Each makes a step while the others wait; who goes first changes. None: all have trained; else one that has not,
    with which all of them end."""
    going = list(processes)
    iteration = 0
    while going:
        first = iteration % len(going)
        made: dict[str, float] = {}
        for name in going[first:] + going[:first]:
            processes[name].let_go()
            seconds = processes[name].step()
            if seconds is not None:
                made[name] = seconds
            if seconds is None and not processes[name].trained:
                return name
        if made:
            say(
                f"step {iteration}: " + ", ".join(f"{name} {made[name] * 1e3:.1f} ms" for name in going if name in made)
            )
        going = [name for name in going if not processes[name].trained]
        iteration += 1
    return None


def rows_of(runs: Mapping[str, Run], warm_up: int, alternating: bool) -> dict[str, dict[str, Any]]:
    seconds = {name: run.seconds for name, run in runs.items()}
    rows = {}
    for name, run in runs.items():
        if len(run.seconds) <= warm_up:
            raise CardError(f"{name} made {len(run.seconds)} steps, which leaves nothing after --warm-up {warm_up}")
        row = row_of(name, seconds, warm_up, alternating)
        row |= {"live_bytes": run.live, "held_bytes": run.held}
        row["seconds_to_step_100"] = None if alternating else _since_start(run)
        row["arena_changes"] = arena_changes(run.end, run.seconds, warm_up) if name == "stalloc" else None
        rows[name] = row
    return rows


def _since_start(run: Run) -> Optional[float]:
    return run.at[_SINCE_START - 1] if len(run.at) >= _SINCE_START else None


def _alternately(chosen: argparse.Namespace, allocators: Allocators) -> dict[str, Run]:
    with ExitStack() as stack:
        processes = {name: stack.enter_context(allocators.running(name, turns=True)) for name in chosen.allocators}
        for process in processes.values():
            process.ready()
        failed = alternate(processes)
        if failed is not None:
            raise _error(failed, processes[failed].end(), "; all processes were alive at once: see --alone")
        return {name: process.end() for name, process in processes.items()}


def _error(name: str, run: Run, hint: str = "") -> CardError:
    hint = hint if run.outcome == OUT_OF_MEMORY else ""
    return CardError(f"{name}: {run.outcome} after {len(run.seconds)} steps{hint}: {run.message}")


def _alone(chosen: argparse.Namespace, allocators: Allocators, document: Document) -> dict[str, Run]:
    runs: dict[str, Run] = {}
    for name in chosen.allocators:
        say(f"{name}, alone")
        with allocators.running(name) as process:
            run = process.finish()
        if run.outcome != TRAINED:
            raise _error(name, run)
        runs[name] = run
        document.write(runs=_documents(runs), complete=False)
    return runs


def _documents(runs: Mapping[str, Run]) -> dict[str, Any]:
    return {name: run.document() for name, run in runs.items()}


def _print(rows: Mapping[str, dict[str, Any]], run: Run, chosen: argparse.Namespace) -> None:
    how = "one process after the other" if chosen.alone else "alternately"
    print(f"{' '.join(chosen.program)} on {run.end['device']}, {how}, steps from {chosen.warm_up} on")
    header = ["allocator", "step ms", "p99 ms", "x native", "95 %", "sums", "x expandable", "95 %", "sums"]
    header += ["live GiB", "held GiB", "s to step 100", "moves", "maps", "waits", "% of steps"]
    lines = []
    for name, row in rows.items():
        line = [name, cell(row["median_seconds"], 1e3, 1), cell(row["p99_seconds"], 1e3, 1)]
        for base in ("native", "expandable"):
            line += _ratio_cells(row["over"].get(base))
        line += [cell(row["live_bytes"], 1 / GIB, 3), cell(row["held_bytes"], 1 / GIB, 3)]
        line.append(cell(row["seconds_to_step_100"], 1, 1))
        changes = row["arena_changes"] or {}
        line += [cell(changes.get(each), 1, 0) for each in ("moves", "maps", "waits")]
        lines.append([*line, cell(changes.get("share_of_steps"), 100, 2)])
    print(aligned([header, *lines]))


def _ratio_cells(ratio: Optional[dict[str, Any]]) -> list[str]:
    if ratio is None:
        return ["-", "-", "-"]
    low, high = ratio["interval"]
    return [f"{ratio['median']:.4f}", f"{low:.4f} to {high:.4f}", f"{ratio['ratio_of_sums']:.4f}"]
