"""`stalloc report`: where the memory of a traced run went."""

from __future__ import annotations

import argparse
import json
import sys
import webbrowser
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Optional

from stalloc.core.files import write_whole
from stalloc.tools.commands import leaks, options
from stalloc.tools.commands.export import dump_lines
from stalloc.tools.report import (
    advice,
    card,
    collect,
    comparison,
    figures,
    findings,
    first_look,
    graphs,
    markdown,
    memory_log,
    page,
    tokens,
)
from stalloc.tools.report.runtime_report import runtime_report, top_table
from stalloc.tools.report.tokens import known_ranks, read_tokens

EXAMPLES = ("report run1 --open", "report run1 --md", "report run1 --leaks")

_EPILOG = """
The command reads DIR/trace and, if they exist, DIR/output/plan and DIR/log_output. The table of ranks shows all;
details are those of the rank with the highest peak unless --rank or --all names others. --html writes
DIR/output/report/report.html (one file that needs no network), --per-rank a directory for each rank:
DIR/output/report/rank00000/runtime_report.json, runtime_report.md and memory.log (totals by class where phases begin).
runtime_report.json has MemScope's keys (runtime_trace, peak, top_events, comparisons, metadata) in addition to those of
--json. The other forms print. For a single TRACE the files lie next to it. Give options of Megatron-LM that the traced
command line lacks after -- (for the estimate).
"""
_TOP = 20  # as MemScope's


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EPILOG + leaks.ABOUT
    options.add_run(parser)
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--rank",
        type=options.at_least(0),
        metavar="R",
        help="show details of rank R (default: the one with the highest peak)",
    )
    which.add_argument(
        "--all", action="store_true", help="show details of every rank, and of equal ranks only the first"
    )
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--html", dest="form", action="store_const", const="html", help="write one HTML file (default)")
    form.add_argument("--md", dest="form", action="store_const", const="md", help="print Markdown")
    form.add_argument(
        "--json", dest="form", action="store_const", const="json", help="print all data of the page as JSON"
    )
    form.add_argument(
        "--per-rank",
        dest="form",
        action="store_const",
        const="per-rank",
        help="write files for every rank with MemScope's names and keys",
    )
    options.add_count(parser, "--top-k", f"put N events into top_events of --per-rank (default {_TOP})", least=0)
    parser.add_argument(
        "--output", "-o", metavar="FILE", help="write to FILE; with --per-rank, to a folder of this name"
    )
    parser.add_argument(
        "--tokens",
        type=Path,
        metavar="DIR",
        help="read Megatron-LM's tokens_per_expert/rank0.jsonl in this --save directory (default: next to the traces)",
    )
    parser.add_argument(
        "--leaks",
        action="store_true",
        help="print the blocks that make live bytes grow from iteration to iteration",
    )
    parser.add_argument("--open", action="store_true", help="show the HTML file in a browser")
    parser.set_defaults(form="html", parser=parser)


def run(arguments: argparse.Namespace) -> int:
    if arguments.open and arguments.form != "html":
        arguments.parser.error("--open needs --html")
    if arguments.top_k is not None and arguments.form != "per-rank":
        arguments.parser.error("--top-k needs --per-rank")
    if arguments.leaks:
        return _leaks(arguments)
    if arguments.output is not None:
        _take_output(arguments)
    try:
        if arguments.form == "per-rank":
            return _write_ranks(arguments)
        text = _render(arguments)
        path = _output(arguments)
        if path is None:
            sys.stdout.write(text)
            return 0
        write_whole(path, text.encode())
    except (collect.CollectError, OSError) as error:
        return options.refuse("report", error)
    print(path)
    if arguments.open:
        webbrowser.open(path.resolve().as_uri())
    return 0


def _leaks(arguments: argparse.Namespace) -> int:
    others = (arguments.all, arguments.output, arguments.tokens, arguments.open)
    if arguments.form not in ("html", "json") or any(others):
        arguments.parser.error("--leaks goes with --rank and --json alone")
    arguments.json = arguments.form == "json"
    return leaks.answer("report", arguments)


def _take_output(arguments: argparse.Namespace) -> None:
    """Leaves by SystemExit where it cannot be written."""
    kind = options.output_folder if arguments.form == "per-rank" else options.output_file
    try:
        arguments.output = kind(arguments.output)
    except argparse.ArgumentTypeError as error:
        arguments.parser.error(f"argument --output: {error}")


def _output(arguments: argparse.Namespace) -> Optional[Path]:
    if arguments.output is None and arguments.form == "html":
        directory: Path = arguments.path
        return directory.with_suffix(".html") if directory.is_file() else _folder(directory) / "report.html"
    output: Optional[Path] = arguments.output
    return output


def _folder(path: Path) -> Path:
    return path.parent if path.is_file() else path / "output" / "report"


def _name(path: Path) -> str:
    return path.stem if path.is_file() else path.resolve().name


def _render(arguments: argparse.Namespace) -> str:
    directory, rank = arguments.path, arguments.rank
    files = collect.find_ranks(directory)
    if rank is not None and rank not in [entry.rank for entry in files]:
        raise collect.CollectError(f"rank {rank} has no trace in {directory}/trace; traced: {_listed(files)}")
    views = collect.views(files)
    ranks = _rank_rows(views, arguments.tokens, _traces(arguments.path))
    highest = max(ranks, key=lambda row: int(row["peak_live_bytes"]))["rank"]
    wanted = highest if rank is None else rank
    shown = [view for view in views if arguments.all and "equal_to" not in view]  # a page for each kind of rank
    details = shown or [view for view in views if view["rank"]["rank"] == wanted]
    for view in details:
        _complete(view, arguments)
    payload = {"ranks": ranks, "views": details}
    title = f"Memory of {_name(directory)}"
    if arguments.form == "md":
        return markdown.render(details, ranks, title)
    if arguments.form == "json":
        return json.dumps(payload) + "\n"
    return page.render(payload, title)


def _traces(path: Path) -> Path:
    """Where the recorded tokens of a run lie."""
    return path.parent if path.is_file() else path / "trace"


def _rank_rows(views: Sequence[dict[str, Any]], tokens: Optional[Path], next_to: Path) -> list[dict[str, Any]]:
    """figures.rank_rows with the tokens of each rank's experts: most in an iteration, and how uneven."""
    rows = figures.rank_rows(views)
    if tokens is not None:
        known_ranks(tokens)
    for row in rows:
        known = read_tokens(tokens or next_to, row["rank"]).values()
        row["tokens"] = max((entry["tokens"] for entry in known), default=None)
        row["uneven"] = max((entry["uneven"] for entry in known), default=None)
    return rows


def _complete(view: dict[str, Any], arguments: argparse.Namespace) -> None:
    """Adds what every form shows: figures, advice, leaks and iterations of each device."""
    options.warn("report", collect.broken_off(view))
    directory = arguments.tokens or _traces(arguments.path)
    view["added_options"] = arguments.program
    view["estimate"] = comparison.of_view(view)
    view["figures"] = [figures.device_figures(view, index) for index in range(len(view["devices"]))]
    view["advice"] = [advice.advise(view, index, of_device) for index, of_device in enumerate(view["figures"])]
    view["graphs"] = [graphs.finding(view, index) for index in range(len(view["devices"]))]
    view["best_changes"] = [first_look.best_changes(rows) for rows in view["advice"]]
    view["peak_often"] = [figures.often(view, index) for index in range(len(view["devices"]))]
    view["inside"] = [findings.growth_inside(view, index) for index in range(len(view["devices"]))]
    view["hints"] = [first_look.hints(view, index) for index in range(len(view["devices"]))]
    known = tokens.read_tokens(directory, view["rank"]["rank"])
    view["iterations"] = [tokens.iteration_rows(drawn, known) for drawn in view["devices"]]
    view["correlation"] = [tokens.correlation(rows) for rows in view["iterations"]]
    placed = card.read(_traces(arguments.path), view["rank"]["rank"])
    view["card"] = [card.rows(placed.get(drawn["device"])) for drawn in view["devices"]]
    view["leaks"] = [findings.leaks(view, index) for index in range(len(view["devices"]))]


def _write_ranks(arguments: argparse.Namespace) -> int:
    directory = arguments.path
    files = collect.find_ranks(directory)
    views = collect.views(files)
    top = _TOP if arguments.top_k is None else arguments.top_k
    ranks = _rank_rows(views, arguments.tokens, _traces(arguments.path))
    for of_rank, view in zip(files, views):
        _complete(view, arguments)
        found = runtime_report(view, dump_lines(of_rank.trace), top)
        folder = (arguments.output or _folder(directory)) / f"rank{view['rank']['rank']:05d}"
        title = f"Memory of {_name(directory)}, rank {view['rank']['rank']}"
        write_whole(folder / "runtime_report.json", (json.dumps({**found, **view}) + "\n").encode())
        content = markdown.render([view], ranks, title) + top_table(found)
        write_whole(folder / "runtime_report.md", content.encode())
        write_whole(folder / "memory.log", memory_log.render(view).encode())
        print(folder)
    return 0


def _listed(files: Sequence[Any]) -> str:
    return ", ".join(str(entry.rank) for entry in files)
