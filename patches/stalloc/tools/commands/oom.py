"""`stalloc oom`: the report of an out-of-memory error as text."""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any, TextIO

from stalloc.core.sizes import size
from stalloc.tools import oom_trace
from stalloc.tools.commands import options

EXAMPLES = ("oom oom/rank00000.pid4711.oom1.json --stacks",)
KIND = "stalloc out of memory"
_AROUND_MODULES = "torch/nn/modules/module.py"  # three calls around each module's own
_EPILOG = """
STALLOC_OOM_REPORT=DIR writes a report in every mode, and without one. In mode Trace blocks have the facts of the trace:
class, tensor, layer (STALLOC_TRACE_MODULES=1) and stack (STALLOC_TRACE_STACKS=1). The end lists what is
not known.
"""


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EPILOG
    parser.add_argument(
        "report", metavar="FILE", type=Path, help="read this report, such as rank00000.pid4711.oom1.json"
    )
    options.add_count(parser, "--blocks", "show the N largest live blocks", 20, least=0)
    options.add_count(parser, "--events", "show the last N events", 20, least=0)
    parser.add_argument("--stacks", action="store_true", help="show whole stacks of these blocks, if they are known")
    options.add_json(parser, "the report, with what the trace knows of its blocks,")


def run(arguments: argparse.Namespace) -> int:
    try:
        report = read(arguments.report)
    except (OSError, ValueError) as error:
        return options.refuse("oom", f"{arguments.report}: {error}")
    report.setdefault("notes", [])
    missing = oom_trace.join(report)
    if missing:
        report["notes"].append(missing)
    if arguments.json:
        print(json.dumps(report))
    else:
        show(report, arguments.blocks, arguments.events, sys.stdout, whole_stacks=arguments.stacks)
    return 0


def read(path: Path) -> dict[str, Any]:
    """Raises OSError, or ValueError where the file is something else."""
    report = json.loads(path.read_text())
    if not isinstance(report, dict) or report.get("report") != KIND:
        raise ValueError(f'expected a report of kind "{KIND}"')
    if report.get("version") != 1:
        raise ValueError(f"expected version 1, found {report.get('version')}")
    return report


def show(report: dict[str, Any], blocks: int, events: int, out: TextIO, whole_stacks: bool = False) -> None:
    _show_request(report, out)
    if report["plan"] is not None:
        _show_plan(report["plan"], report["figures"], out)
    _show_classes(report["live_blocks"], out)
    _show_blocks(report, blocks, whole_stacks, out)
    if report["events"]:
        _show_events(report["events"], events, out)
    if report.get("notes"):
        print("\nnot known:", file=out)
        for note in report["notes"]:
            print(f"  {note}", file=out)


def _show_request(report: dict[str, Any], out: TextIO) -> None:
    figures, memory = report["figures"], report["device_memory"]
    device = "the CPU" if report["device"] < 0 else f"device {report['device']}"
    mode = {"none": ", without stalloc's allocator"}.get(report.get("mode", ""), f", mode {report.get('mode')}")
    print(f"rank {report['rank']}, {device}, process {report['pid']}{mode if report.get('mode') else ''}", file=out)
    where = f", in {report['phase']}" if report.get("phase") else ""
    print(
        f"request       {size(report['request']['bytes'])} on stream {report['request']['stream']:#x}{where}", file=out
    )
    if memory is not None:
        print(f"device        {size(memory['free'])} free of {size(memory['total'])}", file=out)
    peak = figures.get("peak_live_bytes")
    print(f"live          {size(figures['live_bytes'])}" + (f", at most {size(peak)}" if peak else ""), file=out)
    if figures.get("heap_bytes"):
        print(f"heap          {size(figures['heap_bytes'])} held by the exact trace", file=out)
    if figures.get("upstream_reserved_bytes") is not None:
        print(f"upstream      {size(figures['upstream_reserved_bytes'])} reserved", file=out)


def _show_plan(plan: dict[str, Any], figures: dict[str, Any], out: TextIO) -> None:
    mapped, live = plan["arena_mapped_bytes"], figures["arena_live_bytes"]
    print(f"arena         {size(mapped)} mapped of {size(plan['arena_planned_bytes'])}, {size(live)} live", file=out)
    served, requests = figures["planned_hits"], figures["requests"]
    missed = ", ".join(f"{reason} {count}" for reason, count in figures["misses"].items() if count)
    print(f"plan          {served} of {requests} requests served" + (f"; missed: {missed}" if missed else ""), file=out)
    if plan["script"] is None:
        return
    step = "in step" if plan["in_sync"] else "not in step"
    expected = "" if plan["expected_bytes"] is None else f", expects {size(plan['expected_bytes'])} next"
    print(
        f"              iteration {plan['iterations']}, script {plan['script']}, "
        f"request {plan['entry']} of {plan['entries']}, {step}{expected}",
        file=out,
    )


def _show_classes(blocks: list[dict[str, Any]], out: TextIO) -> None:
    if not any("class" in block for block in blocks):
        return
    by_class: dict[str, int] = defaultdict(int)
    for block in blocks:
        by_class[block.get("class", "not known")] += int(block["bytes"])
    total = sum(by_class.values())
    print("\nlive by class:", file=out)
    for name, count in sorted(by_class.items(), key=lambda item: -item[1]):
        print(f"  {size(count):>10}  {100 * count / max(total, 1):5.1f} %  {name}", file=out)


def _show_blocks(report: dict[str, Any], most: int, whole_stacks: bool, out: TextIO) -> None:
    blocks = sorted(report["live_blocks"], key=lambda block: -int(block["bytes"]))
    total = sum(int(block["bytes"]) for block in blocks)
    print(f"\n{len(blocks) + report['live_blocks_omitted']} live blocks, {size(total)}; the largest:", file=out)
    for block in blocks[:most]:
        print(f"  {size(block['bytes']):>10}  {block['address']}  {'; '.join(_facts(block))}", file=out)
        if whole_stacks:
            for call in block.get("stack", []):
                if _AROUND_MODULES not in call:
                    print(f"              {call}", file=out)


def _facts(block: dict[str, Any]) -> list[str]:
    """The known facts of a block, the most specific first."""
    names = block.get("names") or []
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    facts = [block["class"]] if "class" in block else []
    if names:
        facts.append(f"{block['tensor']} {names[0]}{more}")
    if block.get("layer"):
        facts.append(block["layer"])
    if block.get("phase"):
        facts.append(block["phase"])
    if block.get("call_site") or block.get("stack"):
        facts.append(block.get("call_site") or block["stack"][0])
    entries = " ".join(f"{script}:{entry}" for script, entry in block.get("entries", []))
    cut = "..." if block.get("candidates", 0) > len(block.get("entries", [])) else ""
    facts.append(block["from"] + (f" plan {entries}{cut}" if entries else ""))
    if block.get("pending"):
        facts.append("freed, in use by another stream")
    return facts


def _show_events(events: list[dict[str, Any]], most: int, out: TextIO) -> None:
    kinds = ", ".join(f"{kind} {count}" for kind, count in Counter(event["event"] for event in events).most_common())
    print(f"\n{len(events)} events ({kinds}); the last:", file=out)
    for event in events[len(events) - min(most, len(events)) :]:
        if event["event"] == "mark":
            what = f"{event['mark']} {event['edge']}"
        else:
            requested = size(event["bytes"]) if "bytes" in event else ""
            source = event.get("from", "") + (f" (miss: {event['miss']})" if "miss" in event else "")
            what = f"{requested:>10}  {event.get('address', ''):<18} {source}".rstrip()
        print(f"  -{event['us']:>9} us  {event['event']:<15} {what}", file=out)
