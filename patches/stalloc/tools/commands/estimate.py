"""`stalloc estimate`: the estimated memory of a Megatron-LM configuration, compared with the trace."""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Optional

from stalloc.core.sizes import size
from stalloc.tools.commands import options
from stalloc.tools.report import collect, layer_tape, select, text
from stalloc.tools.report.arguments import EstimateError, parse, traced_configuration
from stalloc.tools.report.comparison import compare
from stalloc.tools.report.configuration import Configuration
from stalloc.tools.report.estimate import estimate
from stalloc.tools.report.layer_tape import Operation

EXAMPLES = (
    "estimate run1",
    "estimate --world-size 8 -- --num-layers 32 --hidden-size 4096 --num-attention-heads 32 --seq-length 4096 "
    "--micro-batch-size 1 --vocab-size 32000 --bf16",
)

_EPILOG = """
With DIR or TRACE the configuration is that of rank00000.megatron.json next to the trace, else of the recorded
command line. The estimate is compared with the measurement; options after -- change the configuration.
Without DIR, give the whole configuration after --.
"""


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EPILOG
    parser.add_argument(
        "path", metavar="DIR|TRACE", type=Path, nargs="?", help="read this traced run, or one of its traces"
    )
    options.add_rank(parser, f"{options.HIGHEST}, else 0")
    options.add_count(parser, "--world-size", "take N ranks (default: the trace's, else 1)")
    parser.add_argument("--operations", action="store_true", help="show also what each operation of a layer keeps")
    options.add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    try:
        view = None if arguments.path is None else select.view_of(arguments.path, arguments.rank)
        if view is not None:
            options.warn("estimate", collect.broken_off(view))
        config = _configuration(view, arguments)
        result = estimate(config)
    except (collect.CollectError, EstimateError) as error:
        return options.refuse("estimate", error)
    rows = compare(config, result, view)
    operations = layer_tape.operations(config)
    if arguments.json:
        content = {"configuration": dataclasses.asdict(config), "estimate": dataclasses.asdict(result), "rows": rows}
        print(json.dumps({**content, "operations": [dataclasses.asdict(operation) for operation in operations]}))
        return 0
    _show(config.stage, result.parameters, rows)
    if arguments.operations:
        _show_operations(operations)
    return 0


def _configuration(view: Optional[dict[str, Any]], arguments: argparse.Namespace) -> Configuration:
    if view is None:
        return parse(arguments.program, arguments.world_size or 1, arguments.rank or 0)
    view["added_options"] = arguments.program
    return traced_configuration(view, arguments.world_size or 0)


def _show(stage: int, parameters: int, rows: Sequence[dict[str, Any]]) -> None:
    print(f"pipeline stage {stage}, {parameters / 1e9:.3f} G parameters\n")

    def cells(row: dict[str, Any]) -> tuple[str, str, str, str, str]:
        if row["measured"] is None:
            return row["name"], size(row["estimate"]), "-", "-", row["why"]
        off = row["estimate"] - row["measured"]
        share = f" ({100 * off / row['measured']:+.1f} %)" if row["measured"] else ""
        return (
            row["name"],
            size(row["estimate"]),
            size(row["measured"]),
            text.signed(size(abs(off)), off) + share,
            row["why"],
        )

    header = ("", "estimate", "measured at the peak", "estimate - measured", "what it is")
    print(text.table(header, [cells(row) for row in rows], text_columns=(0, 4)), end="")


def _show_operations(operations: Sequence[Operation]) -> None:
    rows = [(operation.name, size(round(operation.kept)), size(round(operation.backward))) for operation in operations]
    rows.append(("together", size(round(sum(operation.kept for operation in operations))), ""))
    header = ("of a layer and micro-batch", "keeps", "its backward needs besides")
    print("\n" + text.table(header, rows), end="")
