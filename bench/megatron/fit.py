"""A memory cap between what Alloc holds and what expandable segments hold: who trains under it, and how fast.

    python bench/megatron/fit.py --round DIR --output DIR2 --size h200-short --report OUT     # behind round.py
    python bench/megatron/fit.py --card 79G --output DIR2 --size h200-short --report OUT -- --micro-batch-size 8

The workload is the one of --round (round.py's --output) whose peers hold most beyond Alloc, and its plans are used;
where there is no round, --workload is traced and measured first. The cap is the most that an Alloc rank held, plus
--margin: `torch.cuda.set_per_process_memory_fraction` in all modes; or --card, which binds the arena, too, and needs
nothing measured: the workload may need more than the card has. Each mode trains --iterations under it. A mode that runs
out of memory then recomputes attention's scores (--selective), and more and more layers of each model chunk, until it
trains; what cannot even be traced, over a heap that wastes nothing, is tried in no other mode. Throughput is tokens per
second of quiet steps, their mean. OUT/fit.json and OUT/fit.txt are written anew after each run; what OUT/fit.json has
of the same workload and cap is not run again.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from compare import Comparison, add_arguments, write_json
from figures import GIB, Result, quiet_steps_ms
from predicted import Traced, predicted
from workloads import WORKLOADS

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from occupied import parse_bytes

MODES = ("alloc", "expandable", "native")  # where time runs out, the last is not known
_SCORES = "attention's scores recomputed"
_MARGIN = 64 << 20  # bytes; what PyTorch's allocator takes at a time is at most 20 MiB for small blocks


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--round", type=Path, help="what round.py has left")
    parser.add_argument("--workload", choices=WORKLOADS, default="pp2-vpp4", help="where there is no round")
    parser.add_argument("--margin", type=int, default=_MARGIN, help="bytes beside what Alloc held")
    parser.add_argument("--fraction", type=float, help="the cap, as a part of the device's memory")
    parser.add_argument(
        "--card", type=parse_bytes, help="as if the GPU had so much, for every allocator alike; else a fraction (80G)"
    )
    parser.add_argument("--most-recomputed", type=int, default=3, help="layers of a chunk")
    parser.add_argument("--least-recomputed", type=int, default=0, help="layers of a chunk, to begin with")
    parser.add_argument("--selective", action="store_true", help="attention's scores alone, before whole layers")
    parser.add_argument(
        "--traced",
        type=Path,
        help="a trace with layers (compare.py --layers) of smaller micro-batches: predict from it",
    )
    parser.add_argument("--traced-micro-batch", type=int, default=1, help="of that trace; as many of them in a step")
    parser.add_argument(
        "--beside",
        nargs=2,
        metavar=("DIR", "N"),
        help="another such trace, with micro-batches of N: tells how the device's times grow",
    )
    parser.add_argument("--report", type=Path, required=True)
    add_arguments(parser)
    return parser.parse_args()


def held_by_mode(document: dict[str, Any]) -> dict[str, int]:
    """The most that a rank held, per mode that ended well."""
    held: dict[str, int] = {}
    for row in document["rows"]:
        if row["held_bytes"] and document["results"][row["mode"]]["exit_code"] == 0:
            held[row["mode"]] = max(held.get(row["mode"], 0), row["held_bytes"])
    return held


def rounds_documents(directory: Path | None) -> dict[str, dict[str, Any]]:
    """Of the workloads that can serve: measured, and not already recomputed."""
    paths = sorted(directory.glob("*/results.json")) if directory is not None else []
    documents = {path.parent.name: json.loads(path.read_text()) for path in paths}
    return {
        name: document
        for name, document in documents.items()
        if {"alloc", "expandable"} <= held_by_mode(document).keys() and "--recompute-method" not in document["workload"]
    }


def waste(document: dict[str, Any]) -> float:
    held = held_by_mode(document)
    return held["expandable"] / held["alloc"]


class Fit:
    def __init__(self, chosen: argparse.Namespace) -> None:
        self.chosen = chosen
        self.runs: list[dict[str, Any]] = []
        self.environment: dict[str, str] = {}
        documents = rounds_documents(chosen.round)
        if documents:
            self.workload = max(documents, key=lambda name: waste(documents[name]))
            self.measured = documents[self.workload]
            self.plan = chosen.round / self.workload / "plan"
            self.environment = self.measured["environment"]
        else:
            self.workload = chosen.workload
            self.measured = {"rows": [], "results": {}} if chosen.card else self._measure()
            self.plan = None if chosen.card else chosen.output / "measured" / "plan"

    def run(self) -> bool:
        """True where Alloc trained under the cap."""
        self.held = held_by_mode(self.measured)
        if self.chosen.card:
            self.fraction, self.cap_bytes = None, self.chosen.card
        else:
            total = next(rank["device_bytes"] for rank in self.measured["results"]["alloc"]["ranks"])
            self.fraction = self.chosen.fraction or (self.held["alloc"] + self.chosen.margin) / total
            self.cap_bytes = int(self.fraction * total)
        self._take_known()
        for mode in MODES:
            for layers, words in self._ladder():
                if not self._too_large(layers, words) and self._trained(mode, layers, words):
                    break
        return any(run["mode"] == "alloc" and run["trained"] for run in self.runs)

    def _measure(self) -> dict[str, Any]:
        modes = ["trace", "alloc", "expandable"]
        comparison = Comparison(self.chosen, self.workload, modes, output=self.chosen.output / "measured")
        for mode in _running(comparison):
            comparison.run(mode)
        return comparison.document()

    def _ladder(self) -> list[tuple[int, list[str]]]:
        """What is recomputed, the least first: layers of a chunk, and Megatron's arguments."""
        found: list[tuple[int, list[str]]] = []
        for layers in range(self.chosen.least_recomputed, self.chosen.most_recomputed + 1):
            whole = f"--recompute-granularity full --recompute-method block --recompute-num-layers {layers}".split()
            found.append((layers, whole if layers else []))
            if not layers and self.chosen.selective:
                found.append((0, ["--recompute-granularity", "selective", "--recompute-modules", "core_attn"]))
        return found

    def _take_known(self) -> None:
        path = self.chosen.report / "fit.json"
        before = json.loads(path.read_text()) if path.is_file() else {}
        now = self._conditions()
        if before and all(before.get(name) == value for name, value in now.items()):
            self.runs = [run for run in before["runs"] if run["trained"] or run["out_of_memory"]]

    def _too_large(self, layers: int, words: list[str]) -> bool:
        """Not even the exact trace could be made, over a heap that wastes nothing: no mode can hold what is live."""
        return any(run["recomputed"] == _told(layers, words) and run.get("untraceable") for run in self.runs)

    def _trained(self, mode: str, layers: int, words: list[str]) -> bool:
        known = [run for run in self.runs if run["mode"] == mode and run.get("recomputed") == _told(layers, words)]
        return bool(known[-1]["trained"]) if known else self._train(mode, layers, words)["exit_code"] == 0

    def _train(self, mode: str, layers: int, recompute: list[str]) -> Result:
        """Under the cap; with so much recomputed, which needs a trace of its own for Alloc."""
        output = self.chosen.output / f"{mode}-recompute{layers}{'-selective' if recompute and not layers else ''}"
        cap = ["--card", str(self.chosen.card)] if self.chosen.card else ["--memory-fraction", repr(self.fraction)]
        extra = [*recompute, *cap]
        planned = self.plan is not None and not recompute
        modes = ["trace", "alloc"] if mode == "alloc" and not planned else [mode]
        if mode == "alloc" and planned:
            shutil.copytree(self.plan, output / "plan", dirs_exist_ok=True)
        comparison = Comparison(
            self.chosen, self.workload, modes, output=output, extra=extra, environment=self.environment
        )
        comparison.exact = True  # what fits is traced, though PyTorch's allocator could not hold it
        for each in _running(comparison):
            if comparison.run(each)["exit_code"]:
                break
        ran = set(comparison.results)
        comparison.results.setdefault(mode, comparison.results[each])  # without a trace there is no plan
        self._add(mode, layers, _told(layers, recompute), comparison, ran)
        return comparison.results[mode]

    def _add(self, mode: str, layers: int, recomputed: str, comparison: Comparison, ran: set[str]) -> None:
        result = comparison.results[mode]
        quiet = quiet_steps_ms(result)
        # The mean: a step in which memory was given back and taken anew counts.
        step = statistics.fmean(quiet) if quiet else None
        tokens = self._tokens_of_a_step()
        rows = comparison.document()["rows"]
        self.runs.append(
            {
                "mode": mode,
                "recomputed_layers_of_a_chunk": layers,
                "recomputed": recomputed,
                "trained": result["exit_code"] == 0,
                "out_of_memory": result["out_of_memory"],
                "untraceable": mode == "alloc" and result["out_of_memory"] and "alloc" not in ran,
                "step_ms": step,
                "steps_ms": quiet,
                "tokens_per_second": tokens / step * 1e3 if step and result["exit_code"] == 0 else None,
                "held_bytes": [row["held_bytes"] for row in rows if row["mode"] == mode],
                "live_bytes": [row["live_bytes"] for row in rows if row["mode"] == mode],
                "predicted": self._predicted(layers, recomputed) if mode == "alloc" else None,
                "losses": result["losses"],
                "alloc_retries": [rank.get("alloc_retries") for rank in result["ranks"]],
                "wall_seconds": result["wall_seconds"],
            }
        )
        self._write()

    def _predicted(self, layers: int, recomputed: str) -> dict[str, Any] | None:
        """What `stalloc fit` makes of the trace with smaller micro-batches."""
        if self.chosen.traced is None:
            return None
        arguments = self._arguments()
        micro_batch = _number(arguments, "--micro-batch-size")
        count = _number(arguments, "--global-batch-size") // micro_batch
        names = "|".join(str(layer) for layer in range(layers))
        pattern = rf"\.layers\.({names})$" if layers else r"\.core_attention$" if recomputed == _SCORES else ""
        directory, other = self.chosen.beside or (None, 0)
        beside = None if directory is None else Path(directory)
        traced = Traced(self.chosen.traced, self.chosen.traced_micro_batch, beside, int(other))
        return predicted(traced, micro_batch, count, pattern)

    def _write(self) -> None:
        self.chosen.report.mkdir(parents=True, exist_ok=True)
        document = {
            **self._conditions(),
            "held_uncapped_bytes": self.held,
            "tokens_of_a_step": self._tokens_of_a_step(),
            "runs": self.runs,
        }
        write_json(self.chosen.report / "fit.json", document)
        (self.chosen.report / "fit.txt").write_text(self._table())
        print(self._table().splitlines()[-1], flush=True)

    def _arguments(self) -> list[str]:
        return [*WORKLOADS[self.workload].arguments(self.chosen.size), *self.chosen.megatron]

    def _conditions(self) -> dict[str, Any]:
        """Under which runs can be compared."""
        conditions = {"workload": self.workload, "arguments": self._arguments(), "iterations": self.chosen.iterations}
        return {**conditions, "fraction": self.fraction, "cap_bytes": self.cap_bytes}

    def _tokens_of_a_step(self) -> int:
        arguments = self._arguments()
        return _number(arguments, "--global-batch-size") * _number(arguments, "--seq-length")

    def _table(self) -> str:
        uncapped = ", ".join(f"{mode} {held / GIB:.3f}" for mode, held in self.held.items())
        how = "the card" if self.fraction is None else f"fraction {self.fraction:.5f}"
        lines = [
            f"{self.workload}: cap {self.cap_bytes / GIB:.3f} GiB ({how}); without: {uncapped or 'not measured'}",
            f"{'mode':12}{'recomputed':>32}{'held GiB, per rank':>24}{'step ms':>10}{'tokens/s':>10}  outcome",
        ]
        for run in self.runs:
            held = ", ".join(f"{count / GIB:.3f}" for count in run["held_bytes"] if count)
            speed = f"{run['tokens_per_second']:.0f}" if run["tokens_per_second"] else "-"
            step = f"{run['step_ms']:.1f}" if run["trained"] and run["step_ms"] else "-"
            failure = "out of memory" if run["out_of_memory"] else "failed"
            outcome = "trains" if run["trained"] else f"{failure} after {len(run['losses'])} iterations"
            lines.append(f"{run['mode']:12}{run['recomputed']:>32}{held:>24}{step:>10}{speed:>10}  {outcome}")
        return "\n".join([*lines, ""])


def _told(layers: int, words: list[str]) -> str:
    if not words:
        return "nothing recomputed"
    return f"{layers} layers of a chunk recomputed" if layers else _SCORES


def _running(comparison: Comparison) -> Iterator[str]:
    """Its modes, with their processes; those end with the loop."""
    comparison.prepare()
    try:
        yield from comparison.modes
    finally:
        comparison.end()


def _number(arguments: list[str], name: str) -> int:
    """The last one counts, as Megatron has it."""
    return int(arguments[len(arguments) - arguments[::-1].index(name)])


if __name__ == "__main__":
    sys.exit(not Fit(parse_arguments()).run())
