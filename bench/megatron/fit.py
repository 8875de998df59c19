"""A card as large as named: who trains a workload in it, and how fast.

    python bench/megatron/fit.py --card 79G --output DIR --size h200-short --report OUT -- --micro-batch-size 8

Each mode trains --iterations of --workload with so much of the GPU (bench/occupied.py). A mode that runs out of memory
then recomputes attention's scores (--selective), and more and more layers of each model chunk, until it trains; what
cannot even be traced, over a heap that wastes nothing, is tried in no other mode. Throughput is tokens per second of
quiet steps, their mean. OUT/fit.json and OUT/fit.txt are written anew after each run; what OUT/fit.json has of the same
workload and card is not run again.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from pathlib import Path
from typing import Any

from compare import Comparison, add_arguments
from documents import write_json
from figures import GIB, Result, quiet_steps_ms
from predicted import Traced, predicted
from workloads import WORKLOADS

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from occupied import parse_bytes

MODES = ("alloc", "expandable", "native")  # where time runs out, the last is not known
_SCORES = "attention's scores recomputed"


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workload", choices=WORKLOADS, default="pp2-vpp4")
    parser.add_argument("--card", type=parse_bytes, required=True, help="as if the GPU had so much (80G)")
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
        help="read another such trace, with micro-batches of N, to learn how the device's times grow",
    )
    parser.add_argument("--report", type=Path, required=True)
    add_arguments(parser)
    return parser.parse_args()


class Fit:
    def __init__(self, chosen: argparse.Namespace) -> None:
        self.chosen, self.workload = chosen, chosen.workload
        self.runs: list[dict[str, Any]] = []

    def run(self) -> bool:
        """True where Alloc trained."""
        self._take_known()
        for mode in MODES:
            for layers, words in self._ladder():
                if not self._too_large(layers, words) and self._trained(mode, layers, words):
                    break
        return any(run["mode"] == "alloc" and run["trained"] for run in self.runs)

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
        return any(run["recomputed"] == _worded(layers, words) and run.get("untraceable") for run in self.runs)

    def _trained(self, mode: str, layers: int, words: list[str]) -> bool:
        known = [run for run in self.runs if run["mode"] == mode and run.get("recomputed") == _worded(layers, words)]
        return bool(known[-1]["trained"]) if known else self._train(mode, layers, words)["exit_code"] == 0

    def _train(self, mode: str, layers: int, recompute: list[str]) -> Result:
        """With so much recomputed, which needs a trace of its own for Alloc."""
        output = self.chosen.output / f"{mode}-recompute{layers}{'-selective' if recompute and not layers else ''}"
        modes = ["trace", "alloc"] if mode == "alloc" else [mode]
        extra = [*recompute, "--card", str(self.chosen.card)]
        comparison = Comparison(self.chosen, self.workload, modes, output=output, extra=extra)
        comparison.exact = True  # what fits is traced, though PyTorch's allocator could not hold it
        for each in comparison.modes:
            if comparison.run(each)["exit_code"]:
                break
        ran = set(comparison.results)
        comparison.results.setdefault(mode, comparison.results[each])  # without a trace there is no plan
        self._add(mode, layers, _worded(layers, recompute), comparison, ran)
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
        second = None if directory is None else Path(directory)
        traced = Traced(self.chosen.traced, self.chosen.traced_micro_batch, second, int(other))
        return predicted(traced, micro_batch, count, pattern)

    def _write(self) -> None:
        self.chosen.report.mkdir(parents=True, exist_ok=True)
        document = {
            **self._conditions(),
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
        return {**conditions, "cap_bytes": self.chosen.card}

    def _tokens_of_a_step(self) -> int:
        arguments = self._arguments()
        return _number(arguments, "--global-batch-size") * _number(arguments, "--seq-length")

    def _table(self) -> str:
        lines = [
            f"{self.workload}: a card of {self.chosen.card / GIB:.3f} GiB",
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


def _worded(layers: int, words: list[str]) -> str:
    if not words:
        return "nothing recomputed"
    return f"{layers} layers of a chunk recomputed" if layers else _SCORES


def _number(arguments: list[str], name: str) -> int:
    """The last one counts, as Megatron has it."""
    return int(arguments[len(arguments) - arguments[::-1].index(name)])


if __name__ == "__main__":
    sys.exit(not Fit(parse_arguments()).run())
