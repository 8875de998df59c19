"""All the measured Megatron workloads in one go: native, expandable segments, trace and plan, Alloc.

    python bench/megatron/round.py --output DIR --size h200-short --report OUT

Evaluation every ten iterations, a checkpoint in the middle; `pp2-vpp4-recompute` is resumed from its checkpoint as
well. All processes are started at the beginning and wait for their turn (ranks.py), in the order of --workloads.
OUT/round.json (a document of compare.py for each workload) and OUT/round.txt (the tables) are written anew after each
run; logs, traces and plans (OUT/WORKLOAD.tgz) after each workload, and of the one under way where the round is
interrupted or terminated. After --budget seconds the run under way is ended, and no other begins.

Functions that Megatron compiles are compiled in the workloads of --compiled; in the others they run as written, which
saves a minute of each.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tarfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from compare import AUTO, Comparison, add_arguments, write_json
from figures import table
from workloads import WORKLOADS

MODES = ["native", "trace", "alloc", "expandable"]
RESUMED = {"native": "native-resumed", "alloc": "resumed"}  # from whose checkpoint
WORKLOADS_IN_ORDER = ["pp2-vpp4", "ep2-moe", "tp2", "pp2-vpp4-recompute", "dp2"]


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workloads", nargs="+", choices=WORKLOADS, default=WORKLOADS_IN_ORDER)
    parser.add_argument("--modes", nargs="+", choices=[*MODES, *AUTO], default=MODES, help="resumed runs come on top")
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
        self._write()  # --report is writable, and there
        try:
            for comparison in self.comparisons:
                comparison.prepare()
            for comparison in self.comparisons:
                self._attempt(comparison.workload, comparison.wait_until_ready)
            self._note("all processes wait")
            for comparison in self.comparisons:
                self._run_workload(comparison)
        finally:
            for comparison in self.comparisons:
                comparison.end()
            self._write()
        return all(comparison.document()["complete"] for comparison in self.comparisons) and not any(
            result["exit_code"] for comparison in self.comparisons for result in comparison.results.values()
        )

    def _comparison(self, workload: str) -> Comparison:
        # Once in the middle: a checkpoint at the end is none that anybody waits for.
        save_at = self.chosen.iterations // 2
        return Comparison(
            self.chosen,
            workload,
            self._modes(workload),
            output=self.chosen.output / workload,
            save_at=save_at,
            light_saves=True,
            environment={} if workload in self.chosen.compiled else {"TORCHDYNAMO_DISABLE": "1"},
        )

    def _modes(self, workload: str) -> list[str]:
        """Each mode that the next one needs comes before it."""
        modes = [mode for mode in (*MODES, *AUTO) if mode in self.chosen.modes]
        resumed = [RESUMED[mode] for mode in modes if mode in RESUMED] if workload == "pp2-vpp4-recompute" else []
        return modes + resumed

    def _run_workload(self, comparison: Comparison) -> None:
        try:
            for mode in comparison.modes:
                left = self.chosen.budget - self._seconds()
                if left <= 0:
                    self._note(f"{comparison.workload}: no time for {mode}")
                    continue
                self._attempt(f"{comparison.workload}: {mode}", partial(self._run_mode, comparison, mode, left))
        finally:
            if comparison.results:
                print(table(comparison.results), flush=True)
            self._keep_files(comparison)

    def _run_mode(self, comparison: Comparison, mode: str, seconds: float) -> None:
        result = comparison.run(mode, seconds)
        trained = sum(result["step_ms"].values()) / 1e3
        self._note(f"{comparison.workload}: {mode}: {result['wall_seconds']:.1f} s, {trained:.1f} of them in steps")
        if result["exit_code"]:
            print((comparison.output / f"{mode}.log").read_text()[-3000:], file=sys.stderr, flush=True)
        self._write()

    def _attempt(self, what: str, step: Callable[[], None]) -> None:
        """A step that fails (no plan, processes that cannot import) is noted; what does not need it goes on."""
        try:
            step()
        except (RuntimeError, OSError, ValueError) as error:
            self._note(f"{what}: {error}")

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
            for mode in comparison.modes:
                if not (comparison.output / f"{mode}.log").exists():  # cut off: there are the logs of its ranks
                    kept += comparison.output.glob(f"{mode}/log*.txt")
            for source in (source for source in kept if source.exists()):
                archive.add(source, f"{comparison.workload}/{source.relative_to(comparison.output)}")


def _terminated(number: int, _: Any) -> NoReturn:
    """As an interrupt: what was measured is written on the way out."""
    raise SystemExit(128 + number)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _terminated)
    sys.exit(not Round(parse_arguments()).run())
