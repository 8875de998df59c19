"""All the measured Megatron workloads in one go: native, expandable segments, trace and plan, Alloc.

    python bench/megatron/round.py --output DIR --size h200-short --report OUT

Evaluation every ten iterations, a checkpoint in the middle; `pp2-vpp4-recompute` is resumed from its checkpoint as
well. All processes are started at the beginning and wait for their turn (ranks.py). OUT/round.json (a document of
compare.py for each workload) and OUT/round.txt (the tables) are written anew after each run, logs.tgz, traces and plans
after each workload; so a round that is cut off loses what it has not run. Runs that would begin after --budget seconds
are left out.

Functions that Megatron compiles are compiled in the workloads of --compiled; in the others they run as written, which
saves a minute of each.
"""

from __future__ import annotations

import argparse
import sys
import tarfile
import time
from pathlib import Path

from compare import Comparison, add_arguments, write_json
from figures import table
from workloads import WORKLOADS

RESUMED = ["native", "trace", "alloc", "expandable", "native-resumed", "resumed"]
MODES = ["native", "trace", "alloc", "expandable"]
WORKLOADS_IN_ORDER = ["pp2-vpp4", "ep2-moe", "tp2", "pp2-vpp4-recompute", "dp2"]


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workloads", nargs="+", choices=WORKLOADS, default=WORKLOADS_IN_ORDER)
    parser.add_argument("--compiled", nargs="*", choices=WORKLOADS, default=["pp2-vpp4"])
    parser.add_argument("--report", type=Path, required=True, help="directory of what is to be kept")
    parser.add_argument("--budget", type=float, default=540, help="seconds")
    add_arguments(parser)
    return parser.parse_args()


class Round:
    def __init__(self, chosen: argparse.Namespace) -> None:
        self.begin = time.perf_counter()
        self.chosen = chosen
        self.notes: list[str] = []
        self.comparisons = [self._comparison(workload) for workload in chosen.workloads]

    def run(self) -> bool:
        """True where every run was made and ended well."""
        try:
            for comparison in self.comparisons:
                comparison.prepare()
            for comparison in self.comparisons:
                comparison.wait_until_ready()
            self._note("all processes wait")
            for comparison in self.comparisons:
                self._run_workload(comparison)
        finally:
            for comparison in self.comparisons:
                comparison.end()
        return all(comparison.document()["complete"] for comparison in self.comparisons) and not any(
            result["exit_code"] for comparison in self.comparisons for result in comparison.results.values()
        )

    def _comparison(self, workload: str) -> Comparison:
        # Once in the middle: a checkpoint at the end is none that anybody waits for.
        save_at = self.chosen.iterations // 2
        return Comparison(
            self.chosen,
            workload,
            RESUMED if workload == "pp2-vpp4-recompute" else MODES,
            output=self.chosen.output / workload,
            save_at=save_at,
            light_saves=True,
            environment={} if workload in self.chosen.compiled else {"TORCHDYNAMO_DISABLE": "1"},
        )

    def _run_workload(self, comparison: Comparison) -> None:
        for mode in comparison.modes:
            if self._seconds() > self.chosen.budget:
                self._note(f"{comparison.workload}: no time for {mode}")
                continue
            try:
                result = comparison.run(mode)
            except RuntimeError as error:  # no plan, say: the others need none
                self._note(f"{comparison.workload}: {mode}: {error}")
                continue
            trained = sum(result["step_ms"].values()) / 1e3
            self._note(f"{comparison.workload}: {mode}: {result['wall_seconds']:.1f} s, {trained:.1f} of them in steps")
            if result["exit_code"]:
                print((comparison.output / f"{mode}.log").read_text()[-3000:], file=sys.stderr, flush=True)
            self._write()
        print(table(comparison.results), flush=True)
        self._keep_files(comparison)

    def _note(self, text: str) -> None:
        self.notes.append(f"{self._seconds():6.1f} s  {text}")
        print(self.notes[-1], flush=True)

    def _seconds(self) -> float:
        return time.perf_counter() - self.begin

    def _write(self) -> None:
        self.chosen.report.mkdir(parents=True, exist_ok=True)
        done = [comparison for comparison in self.comparisons if comparison.results]
        documents = {comparison.workload: comparison.document() for comparison in done}
        write_json(self.chosen.report / "round.json", {"notes": self.notes, "workloads": documents})
        tables = [f"{comparison.workload}\n{table(comparison.results)}\n" for comparison in done]
        (self.chosen.report / "round.txt").write_text("\n".join([*tables, *self.notes, ""]))

    def _keep_files(self, comparison: Comparison) -> None:
        """Logs, traces and plans, small enough to be carried away."""
        path = self.chosen.report / f"{comparison.workload}.tgz"
        with tarfile.open(path, "w:gz") as archive:
            kept = [*comparison.output.glob("*.log"), comparison.output / "plan"]
            for source in (source for source in kept if source.exists()):
                archive.add(source, f"{comparison.workload}/{source.name}")


if __name__ == "__main__":
    sys.exit(not Round(parse_arguments()).run())
