"""`stalloc diff`: two runs, or two plans of one."""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Any

from stalloc.core.files import write_whole
from stalloc.core.sizes import size
from stalloc.tools.commands import options
from stalloc.tools.report import collect, page, select, text
from stalloc.tools.report.difference import curve, difference

EXAMPLES = ("diff run1 run2", "diff run1 run2 --html changes.html")

_EPILOG = """
A and B are directories of runs, or traces. Changes are B minus A. Directories compare their plans, too. Data that only
one of them has (layers, call sites, a plan) is not compared; the end of the output names it.
"""
_MOST = 15


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EPILOG
    parser.add_argument("before", metavar="A", type=Path, help="compare with this run or trace")
    parser.add_argument("after", metavar="B", type=Path, help="compare this run or trace")
    options.add_rank(parser, f"{options.HIGHEST} of each")
    form = parser.add_mutually_exclusive_group()
    options.add_json(form, "all rows")
    form.add_argument(
        "--html", type=options.output_file, metavar="FILE", help="write one page with both curves, and all rows"
    )


def run(arguments: argparse.Namespace) -> int:
    paths = (arguments.before, arguments.after)
    try:
        views = [select.view_of(path, arguments.rank) for path in paths]
        for view in views:
            options.warn("diff", collect.broken_off(view))
        found = difference(*views)
        if arguments.html is not None:
            names = _names(*paths)
            found["curves"] = [curve(view, name) for view, name in zip(views, names)]
            title = " and ".join(names)
            write_whole(arguments.html, page.render({"difference": found}, title).encode())
            print(arguments.html)
            return 0
    except (collect.CollectError, OSError) as error:
        return options.refuse("diff", error)
    if arguments.json:
        print(json.dumps(found))
    else:
        _show(found)
    return 0


def _names(*paths: Path) -> list[str]:
    """Their distinct names: the ends of the paths after the common folder."""
    whole = [path.resolve() for path in paths]
    common = Path(os.path.commonpath([path.parent for path in whole]))
    return [str(path.relative_to(common)).removesuffix(".trace") for path in whole]


def _show(found: dict[str, Any]) -> None:
    peak, phase = found["peak_live_bytes"], found["peak_phase"]
    change = text.signed(size(abs(peak["change"])), peak["change"])
    print(f"peak {size(peak['before'])} in {phase['before']} -> {size(peak['after'])} in {phase['after']}: {change}")
    for key, title in (
        ("by_class", "class, at the peak"),
        ("by_layer", "layer, at the peak"),
        ("by_call_site", "call site, at the peak"),
        ("phases", "phase, its peak"),
        ("allocators", "allocator holds"),
    ):
        rows = [
            (
                row["name"],
                "-" if row["before"] is None else size(row["before"]),
                "-" if row["after"] is None else size(row["after"]),
                text.signed(size(abs(row["change"])), row["change"]),
            )
            for row in found[key]
            if row["change"]
        ]
        if rows:
            print("\n" + text.table((title, "A", "B", "change"), rows[:_MOST]), end="")
    blocks = [
        (
            text.signed(size(abs(row["change"])), row["change"]),
            f"{row['before']} -> {row['after']}",
            size(row["bytes"]),
            row["class"],
            row["layer"] or "-",
            row["phase"],
        )
        for row in found["blocks"][:_MOST]
    ]
    if blocks:
        header = ("change", "blocks", "block", "class", "layer", "phase")
        print("\n" + text.table(header, blocks, text_columns=(3, 4, 5)), end="")
    for row in found["plan"]:
        if row["change"]:
            print(f"plan {row['name']}: {row['before']} -> {row['after']}")
    if found["not_compared"]:
        print("\nnot compared:\n" + "\n".join(f"  {line}" for line in found["not_compared"]))
