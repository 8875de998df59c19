"""`stalloc oom`: the report of an out-of-memory error as text."""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any, TextIO

HELP = "show a report that STALLOC_OOM_REPORT wrote: what was alive, what happened last, where the run was in its plan"
KIND = "stalloc out of memory"


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("report", metavar="FILE", type=Path, help="rank00000.pid4711.oom1.json")
    parser.add_argument("--blocks", type=int, default=20, metavar="N", help="the N largest live blocks (default 20)")
    parser.add_argument("--events", type=int, default=20, metavar="N", help="the last N events (default 20)")


def run(arguments: argparse.Namespace) -> int:
    try:
        report = read(arguments.report)
    except (OSError, ValueError) as error:
        print(f"stalloc oom: {arguments.report}: {error}", file=sys.stderr)
        return 1
    show(report, arguments.blocks, arguments.events, sys.stdout)
    return 0


def read(path: Path) -> dict[str, Any]:
    """Raises OSError, or ValueError where the file is something else."""
    report = json.loads(path.read_text())
    if not isinstance(report, dict) or report.get("report") != KIND:
        raise ValueError(f'expected a report of kind "{KIND}"')
    if report.get("version") != 1:
        raise ValueError(f"expected version 1, found {report.get('version')}")
    return report


def show(report: dict[str, Any], blocks: int, events: int, out: TextIO) -> None:
    _show_request(report, out)
    if report["plan"] is not None:
        _show_plan(report["plan"], report["figures"], out)
    _show_blocks(report, blocks, out)
    _show_events(report["events"], events, out)


def _show_request(report: dict[str, Any], out: TextIO) -> None:
    figures, memory = report["figures"], report["device_memory"]
    print(f"rank {report['rank']}, device {report['device']}, process {report['pid']}", file=out)
    print(f"request       {_size(report['request']['bytes'])} on stream {report['request']['stream']:#x}", file=out)
    if memory is not None:
        print(f"device        {_size(memory['free'])} free of {_size(memory['total'])}", file=out)
    print(f"live          {_size(figures['live_bytes'])}, at most {_size(figures['peak_live_bytes'])}", file=out)
    print(f"upstream      {_size(figures['upstream_reserved_bytes'])} reserved", file=out)


def _show_plan(plan: dict[str, Any], figures: dict[str, Any], out: TextIO) -> None:
    mapped, live = plan["arena_mapped_bytes"], figures["arena_live_bytes"]
    print(f"arena         {_size(mapped)} mapped of {_size(plan['arena_planned_bytes'])}, {_size(live)} live", file=out)
    served, requests = figures["planned_hits"], figures["requests"]
    missed = ", ".join(f"{reason} {count}" for reason, count in figures["misses"].items() if count)
    print(f"plan          {served} of {requests} requests served" + (f"; missed: {missed}" if missed else ""), file=out)
    if plan["script"] is None:
        return
    step = "in step" if plan["in_sync"] else "not in step"
    expected = "" if plan["expected_bytes"] is None else f", expects {_size(plan['expected_bytes'])} next"
    print(
        f"              iteration {plan['iterations']}, script {plan['script']}, "
        f"request {plan['entry']} of {plan['entries']}, {step}{expected}",
        file=out,
    )


def _show_blocks(report: dict[str, Any], most: int, out: TextIO) -> None:
    blocks = sorted(report["live_blocks"], key=lambda block: -int(block["bytes"]))
    total = sum(int(block["bytes"]) for block in blocks)
    print(f"\n{len(blocks) + report['live_blocks_omitted']} live blocks, {_size(total)}; the largest:", file=out)
    for block in blocks[:most]:
        entries = " ".join(f"{script}:{entry}" for script, entry in block.get("entries", []))
        more = "..." if block.get("candidates", 0) > len(block.get("entries", [])) else ""
        note = " freed, in use by another stream" if block.get("pending") else ""
        where = f" plan {entries}{more}" if entries else ""
        print(f"  {_size(block['bytes']):>10}  {block['address']}  {block['from']}{where}{note}", file=out)


def _show_events(events: list[dict[str, Any]], most: int, out: TextIO) -> None:
    kinds = ", ".join(f"{kind} {count}" for kind, count in Counter(event["event"] for event in events).most_common())
    print(f"\n{len(events)} events ({kinds}); the last:", file=out)
    for event in events[len(events) - min(most, len(events)) :]:
        if event["event"] == "mark":
            what = f"{event['mark']} {event['edge']}"
        else:
            size = _size(event["bytes"]) if "bytes" in event else ""
            source = event.get("from", "") + (f" (miss: {event['miss']})" if "miss" in event else "")
            what = f"{size:>10}  {event.get('address', ''):<18} {source}".rstrip()
        print(f"  -{event['us']:>9} us  {event['event']:<15} {what}", file=out)


def _size(count: int) -> str:
    value, units = float(count), ["B", "KiB", "MiB", "GiB", "TiB"]
    while value >= 1024 and len(units) > 1:
        value /= 1024
        units.pop(0)
    return f"{count} B" if units[0] == "B" else f"{value:.2f} {units[0]}"
