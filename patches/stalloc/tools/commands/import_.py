"""`stalloc import`: makes a trace from a PyTorch memory snapshot, to compute what a plan would save."""

from __future__ import annotations

import argparse
import dataclasses
import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Optional

from stalloc.core import library
from stalloc.core.sizes import size
from stalloc.tools.commands import options
from stalloc.tools.report.session import CollectError
from stalloc.tools.snapshot.convert import event_lines
from stalloc.tools.snapshot.phases import Marks, find_marks
from stalloc.tools.snapshot.read import Snapshot, SnapshotError, read_snapshot
from stalloc.tools.snapshot.steps import growth_of

EXAMPLES = ("import run.pickle --output run1",)

_EPILOG = """
Record some iterations in the training script, without stalloc:
    torch.cuda.memory._record_memory_history(max_entries=1000000)
    ...                                                              # set-up and three iterations, or one
    torch.cuda.memory._dump_snapshot("run.pickle")
then:  stalloc import run.pickle --output run1 && stalloc plan run1 && stalloc report run1

Iterations are taken from --iterations, else from ranges named ProfilerStep# or Optimizer.step#. Without any, they
follow from the period of the requests, else from the optimizer's calls in Python stacks. One iteration is enough to
compute what a plan would reserve; three show which sizes vary. Ranges named "F 0", "B 3 chunk 1" (micro-batch, chunk)
and "optimizer" mark passes; without them Python stacks do, if the history has them. Other ranges are layers; without
any, calls of forward() in stacks are layers.
"""


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EPILOG
    parser.add_argument(
        "snapshot", metavar="SNAPSHOT.pickle", type=Path, help="read the file that _dump_snapshot wrote"
    )
    parser.add_argument(
        "--output",
        "-o",
        type=options.output_folder,
        metavar="DIR",
        help="write to this run directory (default: SNAPSHOT without .pickle)",
    )
    parser.add_argument("--rank", type=options.at_least(0), default=0, help="write the trace of rank R (default 0)")
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--iterations", metavar="NAME", help="take ranges of record_function whose names begin with NAME for iterations"
    )
    which.add_argument("--whole", action="store_true", help="take the whole history for one iteration")
    options.add_json(parser, "what was found")


def run(arguments: argparse.Namespace) -> int:
    try:
        found = _convert(arguments)
    except (SnapshotError, CollectError) as error:
        return options.refuse("import", f"{arguments.snapshot}: {error}")
    except OSError as error:
        return options.refuse("import", error)
    for note in found["notes"]:
        print(f"stalloc import: note: {note}", file=sys.stderr)
    if arguments.json:
        print(json.dumps(found))
        return 0
    print(f"{found['allocations']} allocations, {found['events']} events: {found['trace']}")
    directory = Path(found["trace"]).parents[1]
    if found["iterations"]:
        print(f"iterations from {found['source']}\nnext: stalloc plan {directory}; stalloc report {directory}")
    else:
        print(
            f"no iterations found: {_why_none(found['pile'])}; without them there is no plan "
            f"(--whole: the history is one)\nnext: stalloc report {directory}"
        )
    return 0


def _why_none(pile: Optional[dict[str, int]]) -> str:
    if pile is None:
        return "nothing repeats twice at least, no optimizer's step is seen, and no range is named as --iterations says"
    return f"{_piled(pile)}, as layers of one pass do"


def _piled(pile: dict[str, int]) -> str:
    grow = "grow" if pile["bytes"] > 0 else "shrink"
    return (
        f"{pile['repeats']} repeats of {pile['requests']} requests pile up: live bytes {grow} by "
        f"{size(abs(pile['bytes']))} in each"
    )


def _growth_of(snapshot: Snapshot, marks: Marks) -> int:
    edges = {mark.edge: mark.before for mark in reversed(marks.marks) if mark.kind == "iteration"}
    return growth_of(snapshot.events, edges["begin"], edges.get("end", len(snapshot.events)))


def _notes(snapshot: Snapshot, marks: Marks) -> list[str]:
    notes = list(snapshot.notes)
    if snapshot.earlier_blocks:
        notes.append(f"{snapshot.earlier_blocks} blocks were live before the history begins: they count as set-up")
    if marks.pile is not None and marks.source:
        notes.append(f"{_piled(dataclasses.asdict(marks.pile))}; growing memory has no slot in a plan")
    if marks.iterations == 1:
        notes.append(
            "the history has one iteration: enough to compute what a plan would reserve, but not which sizes vary "
            "(record three for that)"
        )
        left = _growth_of(snapshot, marks)
        if left > 0:
            notes.append(
                f"it leaves {size(left)} live (as an optimizer's state from its first step on); the plan has this "
                "in addition to the iteration, as later ones do; what other allocators would reserve then is not known"
            )
    return notes


def _convert(arguments: argparse.Namespace) -> dict[str, Any]:
    snapshot = read_snapshot(arguments.snapshot)
    marks = find_marks(snapshot, arguments.iterations, arguments.whole)
    directory: Path = arguments.output or arguments.snapshot.with_suffix("")
    trace = directory / "trace" / f"rank{arguments.rank:05d}.trace"
    written = _write_trace("".join(event_lines(snapshot, marks.marks, arguments.rank)), trace)
    return {
        **written,
        "trace": str(trace),
        "iterations": marks.iterations,
        "source": marks.source,
        "pile": None if marks.pile is None else dataclasses.asdict(marks.pile),
        "earlier_blocks": snapshot.earlier_blocks,
        "notes": _notes(snapshot, marks),
    }


def _write_trace(text: str, trace: Path) -> dict[str, Any]:
    try:
        planner = library.find_or_raise(library.PLANNER_NAME)
    except library.LibraryError as error:
        raise SnapshotError(str(error)) from error
    done = subprocess.run(
        [str(planner), "import", "-", f"--output={trace}", "--json"],
        input=text,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise SnapshotError(done.stderr.strip())
    result: dict[str, Any] = json.loads(done.stdout)
    return result
