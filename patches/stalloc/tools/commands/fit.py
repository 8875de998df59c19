"""`stalloc fit`: the cheapest change that fits into the given memory, or the best use of memory that is left."""

from __future__ import annotations

import argparse
import json
import textwrap
from pathlib import Path
from typing import Any, Optional

from stalloc.core import megatron_arguments, sizes
from stalloc.core.files import write_whole
from stalloc.core.module_paths import pattern_of
from stalloc.core.sizes import size
from stalloc.tools.commands import options
from stalloc.tools.fitting import choose, replayed, settings, ways
from stalloc.tools.fitting.document import document_of
from stalloc.tools.fitting.replayed import Bus, TracedRun
from stalloc.tools.fitting.work import Lengths, Work
from stalloc.tools.report import collect, graph_choice, select, text
from stalloc.tools.report.certainty import worded
from stalloc.tools.report.figures import device_name

EXAMPLES = (
    "fit run1 --memory 80G --micro-batch 4 --output fit.json",
    "fit run1 --memory 40G --keep-micro-batch --for trainer",
)

_EPILOG = """
For each choice stalloc edits the traced run and plans the edited run. It predicts the peak of live bytes and the memory
that the plan reserves. The seconds of a step follow from traced times of passes and layers. Choosing layers to
recompute needs a trace with STALLOC_TRACE_MODULES=1. On a GPU, STALLOC_TRACE_TIMES=1 measures times on the device.
"""
_MOST = 12
_FREE = 1 << 30  # bytes of a card that CUDA's context and libraries take in addition to the allocator
_CARD = 16 << 30  # a smaller value is a limit on a card, not a card


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EPILOG
    parser.set_defaults(least=1)
    options.add_run(parser)
    options.add_memory(parser)
    parser.add_argument(
        "--headroom",
        type=sizes.parse,
        metavar="2G",
        help="leave this much memory free (default: 1G on a card of 16G or more)",
    )
    options.add_count(parser, "--micro-batch", "take N for the traced micro-batch (default: Megatron-LM's, or 1)")
    options.add_count(parser, "--accumulation", "take N for the micro-batches of a step", 1)
    options.add_count(parser, "--rows", "give a step N rows for any micro-batch: the global batch")
    parser.add_argument(
        "--lengths",
        type=Path,
        metavar="FILE",
        help="read the tokens of each row from FILE, one a line; a micro-batch is padded to its longest row",
    )
    parser.add_argument("--packed", action="store_true", help="pack rows one after the other, without padding")
    parser.add_argument(
        "--in-order", action="store_true", help="take the rows in the order of --lengths (default: any order)"
    )
    parser.add_argument("--keep-micro-batch", action="store_true", help="do not change the micro-batch")
    parser.add_argument(
        "--longest", action="store_true", help="choose the largest micro-batch (or sequence) that fits, however slow"
    )
    parser.add_argument(
        "--sequence",
        type=options.at_least(1),
        metavar="TOKENS",
        help="search for the longest rows that fit, as many as were traced; a traced row has TOKENS tokens",
    )
    parser.add_argument(
        "--graphs", action="store_true", help="make captured graphs of all passes fit as well, in a pool of their own"
    )
    options.add_second_traces(parser, "sizes and times")
    options.add_bus(parser, "--bus-bandwidth", None)
    parser.add_argument(
        "--host-memory",
        type=sizes.parse,
        metavar="64G",
        help="let each process offload into this much memory of the host (default: what was free after the trace)",
    )
    parser.add_argument(
        "--allocator",
        choices=replayed.ALLOCATORS,
        default="stalloc",
        help="make the run fit under this allocator",
    )
    parser.add_argument(
        "--for", dest="kind", choices=settings.KINDS, default="torch", help="print the settings for this framework"
    )
    options.add_rank(parser)
    parser.add_argument(
        "--output",
        type=options.output_file,
        metavar="fit.json",
        help='write the choice: stalloc.apply("fit.json", model)',
    )
    options.add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """0: it fits; 1: bad input, or nothing fits."""
    try:
        document = _document(arguments)
    except (choose.FitError, collect.CollectError, OSError) as error:
        choose.progress("")
        return options.refuse("fit", error)
    if document["truncation"]:
        options.warn("fit", f"{document['truncation']}. The choice holds for these events alone")
    if arguments.output is not None:
        write_whole(arguments.output, (json.dumps(document, indent=1) + "\n").encode())
    if arguments.json:
        print(json.dumps(document))
    else:
        _show(document, arguments)
    return 0 if document["fits"] else 1


def document_by(words: list[str], least: int = 1, offloads: bool = True) -> dict[str, Any]:
    """What the command with these words prints as JSON. FitError, CollectError, OSError.

    Args:
        words: after `stalloc fit`.
        least: with --rows no smaller micro-batch is tried.
        offloads: whether anything may go to the host.
    """
    parser = argparse.ArgumentParser()
    prepare_parser(parser)
    arguments = parser.parse_args(words)
    if not offloads:
        arguments.bus_bandwidth = 0.0
    arguments.least = least
    return _document(arguments)


def _document(arguments: argparse.Namespace) -> dict[str, Any]:
    files, traced = _traced_run(arguments)
    micro_batch = arguments.micro_batch or _megatron_s_micro_batch(files) or 1
    headroom = arguments.headroom
    if headroom is None:
        headroom = _FREE if arguments.memory >= _CARD else 0
    unit = _unit_of_length(arguments.sequence) if arguments.sequence else 0
    if unit and (arguments.lengths or arguments.keep_micro_batch or arguments.rows):
        raise choose.FitError("--sequence changes the length alone: omit --lengths, --rows and --keep-micro-batch")
    longest = choose.Goal.LONGEST if arguments.longest or unit else choose.Goal.FASTEST
    bus = _bus(arguments.bus_bandwidth, files.trace)
    graphs = _graphs(files, arguments, arguments.memory - headroom)
    wish = choose.Wish(
        memory=arguments.memory - headroom,
        work=_work(arguments, arguments.sequence // unit if unit else micro_batch, bool(unit)),
        goal=choose.Goal.TRACED if arguments.keep_micro_batch else longest,
        bus=bus.bytes_per_second,
        way=ways.other_way(graphs, files.trace),
        host=arguments.host_memory if arguments.host_memory is not None else bus.host_bytes,
        allocator=arguments.allocator,
        graphs=arguments.graphs,
        sequence_unit=unit,
    )
    choice = choose.choose(traced(arguments.sequence or micro_batch), wish, choose.progress)
    document = document_of(choice, wish, arguments.kind, headroom, str(arguments.path))
    document["bus"] = {"bytes_per_second": bus.bytes_per_second, "measured": bus.measured}
    document["graphs"] = graphs
    return _with_rows(document, micro_batch) if unit else document


def _bus(wanted: Optional[float], trace: Path) -> Bus:
    """`wanted`: GB/s. CollectError."""
    measured = Bus.measured_with(trace)
    return measured if wanted is None else Bus(wanted * 1e9, measured=False, host_bytes=measured.host_bytes)


def _work(arguments: argparse.Namespace, micro_batch: int, longer: bool) -> Work:
    """`longer`: sizes are lengths; a traced row has `micro_batch` units."""
    tokens = () if arguments.lengths is None else _lengths(arguments.lengths)
    return Work(
        micro_batch,
        arguments.accumulation,
        arguments.rows,
        least=arguments.least,
        divides=arguments.kind != "torch",
        keeps_accumulation=longer,
        lengths=Lengths(tokens, packed=arguments.packed, in_order=arguments.in_order),
        longer=longer,
    )


def _graphs(files: Any, arguments: argparse.Namespace, memory: int) -> Optional[dict[str, Any]]:
    """Compares both runs as traced, on the device with the highest peak. CollectError."""
    if arguments.graphs_beside is None:
        return None
    view = collect.view(files)
    peaks = [drawn["peak"]["live_bytes"] for drawn in view["devices"]]
    return graph_choice.choice(view, files.trace, arguments.graphs_beside, peaks.index(max(peaks)), memory)


def _unit_of_length(sequence: int) -> int:
    """The step between two lengths that are tried: about a 32nd of the traced length, and a divisor of it."""
    return next(unit for unit in range(max(1, sequence // 32), 0, -1) if sequence % unit == 0)


def _with_rows(document: dict[str, Any], micro_batch: int) -> dict[str, Any]:
    """The document of a search over lengths: its settings have the traced rows and the chosen length."""
    document["chosen"]["micro_batch"] = document["micro_batch"] = micro_batch
    document["settings"] = settings.with_rows(document["for"], document["settings"], document["chosen"])
    return document


def _traced_run(arguments: argparse.Namespace) -> Any:
    """The files of the requested rank, and a function from a micro-batch to the run."""
    files = _rank_of(arguments.path, arguments.rank)

    def traced(micro_batch: int) -> Any:
        if arguments.beside is None:
            return TracedRun(files.trace)
        other, count = _rank_of(Path(arguments.beside[0]), files.rank), arguments.beside[1]
        ratio = _ratio(TracedRun(files.trace).most_tokens(), TracedRun(other.trace).most_tokens(), micro_batch, count)
        if ratio in (0, 1):
            raise collect.CollectError(f"--beside needs a micro-batch other than the traced one: {count}")
        rows = int(count) / micro_batch if count.isdigit() and not arguments.sequence else 0
        return TracedRun(files.trace, other.trace, ratio, rows or 1.0)

    return files, traced


def _ratio(tokens: Optional[int], others: Optional[int], micro_batch: int, count: str) -> float:
    """The second trace's micro-batch over the first's: by their tokens if both are known; 0: `count` is no number."""
    if tokens is not None and others is not None:
        return others / tokens
    return int(count) / micro_batch if count.isdigit() else 0


def _rank_of(path: Path, rank: Optional[int]) -> Any:
    found = collect.find_ranks(path)
    if len(found) == 1:
        return found[0]
    if rank is None:
        rank = select.view_of(path, None)["rank"]["rank"]
    chosen = [files for files in found if files.rank == rank]
    if not chosen:
        raise collect.CollectError(f"rank {rank} has no trace in {path}/trace")
    return chosen[0]


def _megatron_s_micro_batch(files: Any) -> Optional[int]:
    try:
        settled = megatron_arguments.read_settled(files.trace)
    except ValueError as error:
        raise collect.CollectError(str(error)) from error
    found = (settled or {}).get("micro_batch_size")
    return found if isinstance(found, int) and found > 0 else None


def _lengths(path: Path) -> tuple[int, ...]:
    """Reads one number a line. CollectError."""
    words = path.read_text(encoding="utf-8").split()
    wrong = next((word for word in words if not word.isdigit() or int(word) < 1), None)
    if wrong is not None or not words:
        found = "nothing" if wrong is None else repr(wrong)
        raise collect.CollectError(f"{path}: expected the tokens of each row, one whole number a line, found {found}")
    return tuple(map(int, words))


# -- As text


def _show(document: dict[str, Any], arguments: argparse.Namespace) -> None:
    traced, predicted, chosen = document["traced"], document["predicted"], document["chosen"]
    print(
        f"{device_name(document['device'])}: traced with micro-batches of {document['micro_batch']}: "
        f"{size(traced['peak_live_bytes'])} live at the peak, {traced['step_seconds']:.3f} s a step; "
        f"limit {size(document['room_bytes'])}\n"
    )
    _show_tried(document)
    _show_candidates(document)
    if document["graphs"] is not None:
        graph_choice.show(document["graphs"])
        print()
    if not document["fits"]:
        least = size(predicted["peak_live_bytes"])
        print(f"no known change makes it fit: at least {least} are live, in {document['bound']}")
        _show_note(document)
        return
    sure = document["certainty"]
    micro_batch = worded(sure["micro_batch"], str(chosen["micro_batch"]))
    print(f"chosen: micro-batches of {micro_batch}, {chosen['accumulation']} a step")
    if "sequence_length" in chosen:
        print(f"  rows of {chosen['sequence_length']} tokens")
    for word in ("recompute", "offload"):
        if chosen[word]:
            print(f"  {word} {brief(chosen[word])}")
    if chosen["offload_state"]:
        print("  offload the optimizer's state")
    if chosen["graphs"] is not None:
        print(f"  {'with' if chosen['graphs'] else 'without'} captured graphs")
    if chosen["offload"] or chosen["offload_state"]:
        known = "as measured" if document["bus"]["measured"] else "not measured"
        print(f"  copies to the host: {document['bus']['bytes_per_second'] / 1e9:.1f} GB/s, {known}")
    reserved = ", ".join(f"{name} {size(count)}" for name, count in predicted["held_bytes"].items())
    print(
        f"predicted: {worded(sure['peak'], size(predicted['peak_live_bytes']))} live at the peak "
        f"({document['bound']}); reserved under {worded(sure['peak'], reserved)}\n"
        f"           {step_text(predicted)}, {predicted['tokens_per_second']:.3f} x the tokens/s"
    )
    if document["host"]["binds"]:
        print(f"  {host_note(document['host'])}")
    if predicted["step_at_least"]:
        print("  the host bounds the traced steps, not the device: trace larger micro-batches for a better estimate")
    _show_note(document)
    _show_graphs(predicted["graphs"])
    print(f"set ({arguments.kind}): {json.dumps(document['settings'])}")


def step_text(predicted: dict[str, Any]) -> str:
    share = predicted["host_share"]
    waits = "" if share is None else f" (the host bounds {100 * share:.0f} % of it)"
    return f"{'at least ' if predicted['step_at_least'] else ''}{predicted['step_seconds']:.3f} s a step{waits}"


def host_note(host: dict[str, Any]) -> str:
    """Where it binds."""
    there, needed = (size(host[name]) for name in ("available_bytes", "needed_bytes"))
    return f"the host's memory keeps more from being offloaded: {needed} of {there} are taken for copies"


def _show_note(document: dict[str, Any]) -> None:
    note = document["certainty"]["note"]
    if note:
        print(textwrap.fill(note, 120, initial_indent="  ", subsequent_indent="  "))


def _show_graphs(graphs: dict[str, Any]) -> None:
    verdict = "fit" if graphs["fit"] else "do not fit"
    print(f"graphs of all passes in one pool: {size(graphs['held_bytes'])} with all else, which {verdict}")
    traced = graphs["traced"]
    if traced is None:
        print("  the traced run captured no graph: the real size of their pools is not known")
    else:
        print(f"  traced: {traced['pools']} pools with {size(traced['bytes'])}, {size(traced['held'])} with all else")


def _show_tried(document: dict[str, Any]) -> None:
    rows = [
        (
            f"{row['accumulation']} x {row['micro_batch']}{', graphs' if row['graphs'] else ''}",
            str(len(row["recompute"])),
            str(len(row["offload"]) + row["offload_state"]),
            size(row["peak_live_bytes"]),
            f"{row['step_seconds']:.3f}",
            f"{row['tokens_per_second']:.3f} x",
            "yes" if row["fits"] else "no",
            row["bound"],
        )
        for row in document["tried"]
    ]
    header = ("micro-batch", "recomputed", "offloaded", "live", "step s", "tokens/s", "fits", "peak in")
    print(text.table(header, rows, text_columns=(6, 7)))


def _show_candidates(document: dict[str, Any]) -> None:
    rows = [
        (
            f"{row['use']} {row['layers']} ({row['count']})",
            size(row["away_bytes"]),
            ("at most " if row["at_least"] else "") + size(row["peak_live_bytes"]),
            f"{row['seconds']:.3f}",
        )
        for row in document["candidates"][:_MOST]
    ]
    if rows:
        header = ("each alone, micro-batch as traced", "away", "live then", "seconds more")
        print(text.table(header, rows))


def brief(paths: list[str]) -> str:
    """ "blocks.*.mlp: 0-3, 5": the numbers of each kind of path."""
    kinds: dict[str, list[int]] = {}
    for path in paths:
        numbers = [int(part) for part in path.split(".") if part.isdigit()]
        kinds.setdefault(pattern_of(path), []).extend(numbers[-1:])
    return "; ".join(f"{kind}: {_ranges(sorted(set(numbers)))}" if numbers else kind for kind, numbers in kinds.items())


def _ranges(numbers: list[int]) -> str:
    found: list[list[int]] = []
    for number in numbers:
        if found and found[-1][1] == number - 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in found)
