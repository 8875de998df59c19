"""`stalloc export`: a trace for other tools."""

from __future__ import annotations

import argparse
import csv
import io
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Optional

from stalloc.core import library
from stalloc.core.files import write_whole
from stalloc.tools.commands import options
from stalloc.tools.report.collect import CollectError, find_ranks, traced_view
from stalloc.tools.report.database import database
from stalloc.tools.report.own_calls import without_own_calls
from stalloc.tools.report.perfetto import trace_events
from stalloc.tools.snapshot.write import write_snapshot

EXAMPLES = ("export run1 --format perfetto --output run1.json", "export run1 --format text --output run1.txt")

_EPILOG = """
snapshot   a pickle for https://pytorch.org/memory_viz, with classes as colours; `stalloc import` reads it, too.
perfetto   JSON for ui.perfetto.dev and chrome://tracing: live bytes by class and held bytes, as counters; phases.
csv        id,lower,upper,size, one block a line, of one device: solvers of this form read it.
sqlite     every block, mark, call and phase, and the peak, as tables (blocks, marks, calls, phases, peak) for queries.
text       one event a line, with marks; standard error names marks that are missing.
Stacks contain the program's calls: calls of stalloc itself are omitted.
For a directory with several traces, stalloc exports rank 0 unless --rank names another.
"""


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EPILOG
    options.add_run(parser)
    options.add_rank(parser, "0")
    parser.add_argument(
        "--format",
        "-f",
        choices=tuple(_FORMS),
        required=True,
        help="write this format (see below)",
    )
    parser.add_argument("--output", "-o", type=options.output_file, required=True, metavar="FILE", help="write to FILE")
    options.add_count(parser, "--device", "take device N alone (csv, perfetto); -1 is the CPU", least=-1)
    options.add_json(parser, "what was written")


def run(arguments: argparse.Namespace) -> int:
    try:
        content = _FORMS[arguments.format](_trace_of(arguments.path, arguments.rank), arguments.device)
        write_whole(arguments.output, content)
    except (CollectError, OSError) as error:
        return options.refuse("export", error)
    result = {"output": str(arguments.output), "format": arguments.format, "bytes": len(content)}
    print(json.dumps(result) if arguments.json else f"{arguments.output}: {len(content)} bytes")
    return 0


def _trace_of(path: Path, rank: Optional[int]) -> Path:
    """CollectError where a directory has no such rank."""
    if not path.is_dir():
        return path
    traces = {files.rank: files.trace for files in find_ranks(path)}
    if (rank or 0) not in traces:
        raise CollectError(f"{path}/trace has no rank {rank or 0}; traced: {', '.join(map(str, traces))}")
    return traces[rank or 0]


def _snapshot(trace: Path, _device: object) -> bytes:
    view = traced_view(trace, every_block=True)
    blocks = [device["blocks"] for device in view["devices"]]
    categories = {event: view["classes"][of] for known in blocks for event, of in zip(known["event"], known["class"])}
    tensors = {
        event: (role, tuple((names or name).split("\n")))
        for known in blocks
        for event, role, name, names in zip(*(known[column] for column in ("event", "tensor", "name", "names")))
        if name
    }
    return write_snapshot(without_own_calls(dump_lines(trace)), categories, tensors)


def _perfetto(trace: Path, device: object) -> bytes:
    view = traced_view(trace)
    devices = [entry for entry in view["devices"] if device is None or entry["device"] == device]
    if not devices:
        raise CollectError(f"{trace} has no device {device}; it has {[entry['device'] for entry in view['devices']]}")
    return json.dumps(trace_events(view, devices)).encode()


def _sqlite(trace: Path, _device: object) -> bytes:
    view = traced_view(trace, every_block=True)
    return database(view, without_own_calls(dump_lines(trace)))


def _csv(trace: Path, device: object) -> bytes:
    rows: dict[int, dict[int, list[int]]] = {}  # by device and block: id, begin, end, size
    now: dict[int, int] = {}
    for line in dump_lines(trace):
        if line["event"] not in ("alloc", "free"):
            continue
        of, block = line["device"], line["id"]
        now[of] = now.get(of, 0) + 1
        if line["event"] == "alloc":
            rows.setdefault(of, {})[block] = [block, now[of], -1, max(512, -(-line["bytes"] // 512) * 512)]
        else:
            rows[of][block][2] = now[of]
    chosen = _device_of(trace, sorted(rows), device)
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["id", "lower", "upper", "size"])
    following = now.get(chosen, 0) + 1
    writer.writerows([row[0], row[1], row[2] if row[2] >= 0 else following, row[3]] for row in rows[chosen].values())
    return out.getvalue().encode()


def _device_of(trace: Path, known: list[int], device: object) -> int:
    """The requested one, else the only one. CollectError if it does not exist, or there are several."""
    if device is None and len(known) == 1:
        return known[0]
    if device is None:
        raise CollectError(f"{trace} has devices {known}, and CSV is of one: choose it with --device")
    if device not in known:
        raise CollectError(f"{trace} has no device {device}; it has {known}")
    return known[known.index(device)]


def _text(trace: Path, _device: object) -> bytes:
    return b"".join(_dumped(trace))


_FORMS = {"snapshot": _snapshot, "perfetto": _perfetto, "csv": _csv, "sqlite": _sqlite, "text": _text}


def dump_lines(trace: Path) -> Iterator[dict[str, Any]]:
    """The events of a trace, as stalloc-planner dump --json has them. CollectError where it cannot be read."""
    return map(json.loads, _dumped(trace, "--json"))


def _dumped(trace: Path, *flags: str) -> Iterator[bytes]:
    """Its lines. Without flags, what is missing of the trace is on stderr."""
    try:
        planner = library.find_or_raise(library.PLANNER_NAME)
    except library.LibraryError as error:
        raise CollectError(str(error)) from error
    command = [str(planner), "dump", str(trace), *flags]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL if flags else None) as process:
        assert process.stdout is not None
        yield from process.stdout
    if process.returncode != 0:
        raise CollectError(f"{trace} cannot be read; stalloc export {trace} --format text shows it in full")
