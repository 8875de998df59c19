"""Megatron's step times under native and Alloc where the machine's own speed changes: both runs at once, taking turns.

    python bench/megatron/paired.py --workload ep2-moe --size h200-short --iterations 40 --output DIR

Traces and plans first. Then one run under each allocator, on the same GPUs: each makes a step while the others wait,
and who goes first changes. Reported as by bench/paired_steps.py, with what the rank that spent most of its steps on its
arena spent. DIR/paired.json gets all step times. Several of these for other workloads can share the GPUs and one
--turns-lock: all start and trace at once, and then train one workload after the other.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from compare import Comparison, add_arguments, write_json
from turns import Turns
from workloads import WORKLOADS

sys.path.append(str(Path(__file__).resolve().parents[1]))
from compare_modes import machine
from paired_steps import arena_changes, compare, describe, take_turns

MODES = ("native", "native-again", "alloc")
# An evaluation is no step, and its time would be whoever's turn it is.
NOTHING_BETWEEN = ["--eval-iters", "0"]


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workload", choices=WORKLOADS, required=True)
    parser.add_argument("--modes", nargs="+", choices=MODES, default=["native", "alloc"])
    parser.add_argument("--warm-up", type=int, default=4, help="iterations that do not count")
    parser.add_argument("--turns-lock", type=Path, help="file; nothing is timed while another process has it")
    add_arguments(parser)
    chosen = parser.parse_args()
    if chosen.iterations <= chosen.warm_up:
        parser.error(f"--iterations {chosen.iterations} leaves nothing after --warm-up {chosen.warm_up}")
    if not {"native", "alloc"} <= set(chosen.modes):
        parser.error("--modes: alloc is compared with native")
    return chosen


@contextlib.contextmanager
def alone(lock: Path | None) -> Iterator[None]:
    """While no other process that asks for the same lock is in here."""
    with contextlib.ExitStack() as stack:
        if lock is not None:
            fcntl.flock(stack.enter_context(lock.open("w")), fcntl.LOCK_EX)
        yield


def train_in_turns(comparison: Comparison, chosen: argparse.Namespace) -> dict[str, list[float]]:
    """Step times by mode."""
    count = comparison.common.processes
    turns = {mode: Turns(comparison.output / mode / "turns", count) for mode in chosen.modes}
    runs = {mode: comparison.start(mode, {"TURNS": str(turns[mode].directory)}) for mode in chosen.modes}

    def check() -> None:
        for mode, run in runs.items():
            if run.failed():
                raise SystemExit(f"paired: the {mode} run failed:\n{run.output()[-3000:]}")

    try:
        with alone(chosen.turns_lock):
            return take_turns({mode: partial(turn.step, check) for mode, turn in turns.items()}, chosen.iterations)
    finally:
        for mode, run in runs.items():
            run.end()
            turns[mode].close()
            (comparison.output / f"{mode}.log").write_text(run.output())


def main() -> int:
    chosen = parse_arguments()
    comparison = Comparison(chosen, chosen.workload, ["trace", *chosen.modes], extra=NOTHING_BETWEEN)
    comparison.prepare()
    try:
        comparison.wait_until_ready()
        if comparison.run("trace")["exit_code"]:
            print((comparison.output / "trace.log").read_text()[-3000:], file=sys.stderr)
            return 1
        comparison.make_plan()
        seconds = train_in_turns(comparison, chosen)
    finally:
        comparison.end()
    rows = compare(seconds, chosen.warm_up)
    plans, spent = comparison.output / "plan", sum(seconds["alloc"])
    changes = [arena_changes(plans, spent, rank) for rank in range(chosen.processes)]
    rows["alloc"]["arena_changes"] = max(changes, key=lambda change: change["share_of_steps"])
    print("\n".join(describe(rows)))
    document = {"command": [Path(sys.argv[0]).name, *sys.argv[1:]], "machine": machine(), "rows": rows}
    write_json(comparison.output / "paired.json", {**document, "step_seconds": seconds})
    return 0


if __name__ == "__main__":
    sys.exit(main())
