"""Runs one Megatron workload under each allocator on the GPUs of one machine, and compares ranks, speed and losses.

    python bench/megatron/compare.py --workload pp2-vpp4 --output DIR                      # two GPUs
    python bench/megatron/compare.py --workload ep2-moe --output DIR --iterations 30 --save-at 10

Modes, each in fresh processes started by torchrun: native, expandable (expandable_segments:True), trace (fast), alloc
(planned from the trace), resumed (Alloc again, from the checkpoint that the alloc run saved at --save-at) and its peer
native-resumed, native-again (are native's own losses the same twice?). DIR gets a log per mode, what each rank wrote,
traces and plans, and results.json, which is written anew after each mode. E is peak live bytes / peak held bytes per
rank; live bytes are those that stalloc counts, in the Alloc run or else in the trace. Losses are compared as Megatron
prints them, weights bit by bit.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from workloads import SIZES, WORKLOADS

HERE = Path(__file__).resolve().parent
MODES = ["native", "native-again", "native-resumed", "expandable", "trace", "alloc", "resumed"]
GIB = float(1 << 30)
_ITERATION = re.compile(
    r"iteration +(\d+)/ *\d+ .*elapsed time per iteration \(ms\): ([0-9.]+).*lm loss: (\S+) .*grad norm: (\S+) "
)
_EVALUATION = re.compile(r"validation loss at (.+?) \| lm loss value: (\S+)")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workload", choices=WORKLOADS, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--size", choices=SIZES, default="h200")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--iterations", type=int, default=30)
    parser.add_argument("--trace-iterations", type=int, default=4)
    parser.add_argument("--eval-interval", type=int, default=10)
    parser.add_argument("--save-at", type=int, help="save a checkpoint at this iteration, which `resumed` starts from")
    parser.add_argument("--modes", nargs="+", choices=MODES, default=["native", "expandable", "trace", "alloc"])
    parser.add_argument("--entry", type=Path, default=HERE / "pretrain_mock.py")
    parser.add_argument("--backend", default="nccl")
    parser.add_argument("--port", type=int, default=29517)
    parser.add_argument("--time-limit", type=float, default=600, help="seconds for each run")
    parser.add_argument("megatron", nargs="*", help="more of Megatron's arguments, after --")
    return parser.parse_args()


class Comparison:
    """The runs of one workload; results by mode."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.arguments = arguments
        self.output: Path = arguments.output.resolve()
        self.results: dict[str, dict[str, Any]] = {}
        self.plan: dict[str, Any] | None = None

    def environment(self, mode: str) -> dict[str, str]:
        kept = ("STALLOC_LIB_PATH", "STALLOC_DEVICE", "STALLOC_ROOT")
        variables = {k: v for k, v in os.environ.items() if not k.startswith("STALLOC_") or k in kept}
        for name in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"):
            variables.pop(name, None)
        variables["CUDA_DEVICE_MAX_CONNECTIONS"] = "1"  # Megatron wants it for its overlaps
        if mode == "expandable":
            variables["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
        if mode in ("trace", "alloc", "resumed"):
            variables["STALLOC_MODE"] = "Trace" if mode == "trace" else "Alloc"
            variables["STALLOC_TRACE_FAST_MODE"] = "1"
            variables["STALLOC_MODEL_INFO_PATH"] = str(self.output / "plan")
        return variables

    def command(self, mode: str) -> list[str]:
        chosen = self.arguments
        launcher = ["--nproc-per-node", str(chosen.processes), "--master-port", str(chosen.port)]
        command = [sys.executable, "-m", "torch.distributed.run", *launcher, str(chosen.entry)]
        command += WORKLOADS[chosen.workload].arguments(chosen.size)
        traced = mode == "trace"
        command += ["--train-iters", str(chosen.trace_iterations if traced else chosen.iterations)]
        command += ["--lr-decay-iters", str(chosen.iterations)]  # the same learning rates in a shorter run
        command += ["--eval-iters", "1", "--eval-interval", str(1000 if traced else chosen.eval_interval)]
        command += ["--distributed-backend", chosen.backend, "--result-dir", str(self.output / mode)]
        return command + self.checkpoint_arguments(mode) + chosen.megatron

    def checkpoint_arguments(self, mode: str) -> list[str]:
        if self.arguments.save_at is None or mode in ("trace", "expandable", "native-again"):
            return []
        if mode.endswith("resumed"):
            saved = "native" if mode == "native-resumed" else "alloc"
            return ["--load", str(self.output / f"checkpoint-{saved}"), "--ckpt-step", str(self.arguments.save_at)]
        return ["--save", str(self.output / f"checkpoint-{mode}"), "--save-interval", str(self.arguments.save_at)]

    def run(self, mode: str) -> None:
        if mode == "alloc":
            self.make_plan()
        begin = time.perf_counter()
        log = self.output / f"{mode}.log"
        with log.open("w") as stream:
            code = self.execute(mode, stream)
        text = log.read_text(errors="replace")
        ranks = sorted((self.output / mode).glob("rank*.json"))
        result = {"exit_code": code, "wall_seconds": time.perf_counter() - begin, **read_log(text)}
        result["out_of_memory"] = "OutOfMemoryError" in text
        result["warnings"] = sorted({line for line in text.splitlines() if "[stalloc]" in line})[:50]
        result["ranks"] = [json.loads(path.read_text()) for path in ranks]
        self.results[mode] = result
        if code != 0:
            print(f"compare: the {mode} run ended with {code}, see {log}", file=sys.stderr)
            print(text[-3000:], file=sys.stderr)

    def execute(self, mode: str, stream: Any) -> int:
        try:
            done = subprocess.run(
                self.command(mode),
                env=self.environment(mode),
                stdout=stream,
                stderr=subprocess.STDOUT,
                timeout=self.arguments.time_limit,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return 124
        return done.returncode

    def make_plan(self) -> None:
        begin = time.perf_counter()
        environment = {k: v for k, v in os.environ.items() if k != "STALLOC_MODE"}
        command = [sys.executable, "-m", "stalloc", "plan", str(self.output / "plan"), "--json"]
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=False)
        if done.returncode != 0:
            raise SystemExit(f"compare: planning failed with exit code {done.returncode}")
        self.plan = {**json.loads(done.stdout), "wall_seconds": time.perf_counter() - begin}


def read_log(text: str) -> dict[str, Any]:
    """What Megatron prints: per iteration the time, the loss and the gradients' norm, and the evaluations."""
    iterations = [match.groups() for match in _ITERATION.finditer(text)]
    return {
        "losses": {number: loss for number, _, loss, _ in iterations},
        "grad_norms": {number: norm for number, _, _, norm in iterations},
        "step_ms": {number: float(elapsed) for number, elapsed, _, _ in iterations},
        "evaluations": dict(_EVALUATION.findall(text)),
    }


def steady_step_ms(result: dict[str, Any]) -> float | None:
    """The median without the first three iterations."""
    times = [elapsed for number, elapsed in result["step_ms"].items() if int(number) > 3]
    return statistics.median(times) if times else None


def live_of_rank(results: dict[str, dict[str, Any]], rank: int) -> int | None:
    for mode in ("alloc", "trace"):
        ranks = results.get(mode, {}).get("ranks", [])
        if rank < len(ranks) and "stalloc" in ranks[rank]:
            return int(ranks[rank]["stalloc"]["peak_live_bytes"])
    return None


def rows_of(results: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """One line a mode and rank; ratios and equality are against native, of a resumed run against native's resumed."""
    rows = []
    for mode, result in results.items():
        native = results.get("native-resumed" if mode == "resumed" else "native")
        step, base = steady_step_ms(result), steady_step_ms(native) if native else None
        for rank, figures in enumerate(result["ranks"]):
            ours = figures.get("stalloc")
            held = ours["held_peak_bytes"] if ours else figures.get("held_peak_bytes")
            live = ours["peak_live_bytes"] if ours else live_of_rank(results, rank)
            row = {"mode": mode, "rank": rank, "live_bytes": live, "held_bytes": held, "step_ms": step}
            row["efficiency"] = live / held if live and held else None
            row["step_ratio"] = step / base if step and base else None
            if ours:
                row["hit_rate"] = ours["steady"]["hits"] / max(ours["steady"]["requests"], 1)
            if native and mode not in ("trace", "native-resumed") and rank < len(native["ranks"]):
                row["weights_equal"] = figures["weights_sha256"] == native["ranks"][rank]["weights_sha256"]
            row["losses_equal"] = same_losses(result, native) if native and mode != "native-resumed" else None
            rows.append(row)
    return rows


def same_losses(result: dict[str, Any], native: dict[str, Any]) -> bool:
    """To the last printed digit, in all iterations that both have; at least one."""
    shared = result["losses"].keys() & native["losses"].keys()
    evaluations = (
        result["evaluations"].keys() & native["evaluations"].keys() if len(shared) == len(native["losses"]) else ()
    )
    return (
        bool(shared)
        and all(result[key][number] == native[key][number] for key in ("losses", "grad_norms") for number in shared)
        and all(result["evaluations"][what] == native["evaluations"][what] for what in evaluations)
    )


def print_table(rows: list[dict[str, Any]]) -> None:
    names = f"{'live GiB':>10}{'held GiB':>10}{'E %':>9}{'step ms':>10}{'x native':>10}{'hits %':>9}"
    print(f"{'mode':15}{'rank':>5}{names}  equal")
    for row in rows:

        def cell(name: str, scale: float, width: int, digits: int, row: dict[str, Any] = row) -> str:
            value = row.get(name)
            return f"{'-':>{width}}" if value is None else f"{value * scale:{width}.{digits}f}"

        equal = {None: "-", True: "losses", False: "LOSSES DIFFER"}[row["losses_equal"]]
        equal += {None: "", True: ", weights", False: ", WEIGHTS DIFFER"}[row.get("weights_equal")]
        print(
            f"{row['mode']:15}{row['rank']:5}{cell('live_bytes', 1 / GIB, 10, 3)}{cell('held_bytes', 1 / GIB, 10, 3)}"
            f"{cell('efficiency', 100, 9, 2)}{cell('step_ms', 1, 10, 1)}{cell('step_ratio', 1, 10, 4)}"
            f"{cell('hit_rate', 100, 9, 3)}  {equal}"
        )


def write_document(comparison: Comparison, complete: bool) -> None:
    document = {
        "command": [Path(sys.argv[0]).name, *sys.argv[1:]],
        "workload": WORKLOADS[comparison.arguments.workload].arguments(comparison.arguments.size),
        "complete": complete,
        "rows": rows_of(comparison.results),
        "plan": comparison.plan,
        "results": comparison.results,
    }
    path = comparison.output / "results.json"
    path.with_suffix(".tmp").write_text(json.dumps(document, indent=1))
    path.with_suffix(".tmp").replace(path)


def main() -> int:
    arguments = parse_arguments()
    if "resumed" in arguments.modes and (arguments.save_at is None or "alloc" not in arguments.modes):
        raise SystemExit("compare: the mode resumed needs the mode alloc and --save-at")
    comparison = Comparison(arguments)
    comparison.output.mkdir(parents=True, exist_ok=True)
    for mode in arguments.modes:
        print(f"== {arguments.workload}: {mode}", file=sys.stderr, flush=True)
        comparison.run(mode)
        write_document(comparison, complete=mode == arguments.modes[-1])
    print(f"{arguments.workload}, {arguments.processes} processes, {arguments.iterations} iterations")
    print_table(rows_of(comparison.results))
    return max(result["exit_code"] != 0 for result in comparison.results.values())


if __name__ == "__main__":
    sys.exit(main())
