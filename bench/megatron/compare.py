"""Runs one Megatron workload under each allocator on the GPUs of one machine, and compares ranks, speed and losses.

    python bench/megatron/compare.py --workload pp2-vpp4 --output DIR                      # two GPUs
    python bench/megatron/compare.py --workload ep2-moe --output DIR --iterations 30 --save-at 10

Modes, each in fresh processes: native, expandable (expandable_segments:True), trace (fast), alloc (planned from the
trace), auto (one start that traces, plans and switches by itself; its figures are those from then on), auto-again (the
next start of the same), resumed (Alloc again, from the checkpoint that the alloc run saved at --save-at) and its peer
native-resumed, native-again (are native's own losses the same twice?). DIR gets a log per mode, what each rank wrote,
traces and plans, and results.json, which is written anew after each mode. E is peak live bytes / peak held bytes per
rank; live bytes are those that stalloc counts, in the Alloc run or else in the trace. Losses are compared as Megatron
prints them, weights bit by bit. Step times are medians of the iterations that follow neither an evaluation nor a
checkpoint. `in slots`: % of the training's requests over 512 B, from the second iteration on, that got the slots
planned for them; `fenced`: how many evaluations and checkpoints had besides, which have no slots.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[1]))
from documents import write_json
from figures import Result, read_log, rows_of, table
from modes import Modes, await_planners
from ranks import run_ranks
from workloads import SIZES, WORKLOADS

HERE = Path(__file__).resolve().parent
AUTO = ("auto", "auto-again")
MODES = ["native", "native-again", "native-resumed", "expandable", "trace", "alloc", *AUTO, "resumed"]
_KEPT = ("STALLOC_DEVICE", "STALLOC_ROOT")
_ports = itertools.count()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Those that all scripts here share."""
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--size", choices=SIZES, default="h200")
    parser.add_argument("--processes", type=int, help="ranks (default: the workload's)")
    parser.add_argument("--iterations", type=int, default=30)
    parser.add_argument("--trace-iterations", type=int, default=4)
    parser.add_argument("--eval-interval", type=int, default=10)
    parser.add_argument(
        "--layers",
        action="store_true",
        help="for `stalloc fit`: a trace knows layers, at the device's time; half of its iterations run untraced",
    )
    parser.add_argument("--entry", type=Path, default=HERE / "pretrain_mock.py")
    parser.add_argument("--backend", default="nccl")
    gpus = "ranks share the first N GPUs (default: 1), see ranks.py"
    parser.add_argument("--share-gpus", type=int, nargs="?", const=1, default=0, metavar="N", help=gpus)
    parser.add_argument("--port", type=int, default=29517, help="the first; each run takes the next one")
    parser.add_argument("--time-limit", type=float, default=600, help="seconds for each run")
    parser.add_argument("megatron", nargs="*", help="more of Megatron's arguments, after --")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workload", choices=WORKLOADS, required=True)
    parser.add_argument("--save-at", type=int, help="save a checkpoint at this iteration, which `resumed` starts from")
    parser.add_argument("--modes", nargs="+", choices=MODES, default=["native", "expandable", "trace", "alloc"])
    add_arguments(parser)
    chosen = parser.parse_args()
    if "resumed" in chosen.modes and (chosen.save_at is None or "alloc" not in chosen.modes):
        parser.error("the mode resumed needs the mode alloc and --save-at")
    return chosen


class Comparison:
    """The runs of one workload; results by mode.

    `common` is what `add_arguments` gives.
    """

    def __init__(
        self,
        common: argparse.Namespace,
        workload: str,
        modes: Sequence[str],
        *,
        output: Path | None = None,
        save_at: int | None = None,
        extra: Sequence[str] = (),
    ) -> None:
        self.common, self.workload, self.modes = common, workload, list(modes)
        self.processes = common.processes or WORKLOADS[workload].processes
        self.output: Path = (output or common.output).resolve()
        self.save_at = save_at
        self.extra = [*common.megatron, *extra]
        self.results: dict[str, Result] = {}
        self.plan: dict[str, Any] | None = None
        self.exact = False  # the trace is over a heap without fragmentation: slower

    def run(self, mode: str) -> Result:
        """One mode, once; writes results.json. It is ended after --time-limit."""
        if mode == "alloc":
            self.make_plan()
        directory = self.output / mode
        shutil.rmtree(directory, ignore_errors=True)
        begin = time.perf_counter()
        code, text = run_ranks(
            [str(self.common.entry), *self._arguments(mode)],
            self.processes,
            {**self._environment(mode), **self._stalloc_variables(mode)},
            directory,
            port=self.common.port + next(_ports),
            limit_seconds=self.common.time_limit,
            share_gpus=self.common.share_gpus,
        )
        if mode in AUTO:
            await_planners(self.output / "auto-plan")
        (self.output / f"{mode}.log").write_text(text)
        result = {"exit_code": code, "wall_seconds": time.perf_counter() - begin, **read_result(text)}
        result["disturbed_every"] = [self.common.eval_interval, self.save_at]
        paths = sorted((self.output / mode).glob("rank*.json"))
        result["ranks"] = [json.loads(path.read_text()) for path in paths]
        self.results[mode] = result
        if code != 0:
            print(f"compare: the {mode} run ended with {code}, see {self.output / mode}.log", file=sys.stderr)
        self._remove_checkpoint_after(mode)
        write_json(self.output / "results.json", self.document())
        return result

    def make_plan(self) -> None:
        begin = time.perf_counter()
        environment = {k: v for k, v in os.environ.items() if k != "STALLOC_MODE"}
        command = [sys.executable, "-m", "stalloc", "plan", str(self.output / "plan"), "--json"]
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"planning {self.output / 'plan'} failed with exit code {done.returncode}")
        self.plan = {**json.loads(done.stdout), "wall_seconds": time.perf_counter() - begin}

    def document(self) -> dict[str, Any]:
        return {
            "command": [Path(sys.argv[0]).name, *sys.argv[1:]],
            "workload": [*WORKLOADS[self.workload].arguments(self.common.size), *self.extra],
            "complete": all(mode in self.results for mode in self.modes),
            "rows": rows_of(self.results),
            "plan": self.plan,
            "results": self.results,
        }

    def _environment(self, mode: str) -> dict[str, str]:
        variables = Modes(self.output).environment(mode if mode == "expandable" else "native")
        variables |= {name: os.environ[name] for name in _KEPT if name in os.environ}
        variables["CUDA_DEVICE_MAX_CONNECTIONS"] = "1"  # Megatron wants it for its overlaps
        variables["TORCHINDUCTOR_COMPILE_THREADS"] = "1"  # else every process brings a pool of its own
        return {**variables, **WORKLOADS[self.workload].environment}

    def _stalloc_variables(self, mode: str) -> dict[str, str]:
        if mode in AUTO:
            return {"STALLOC_MODE": "Auto", "STALLOC_MODEL_INFO_PATH": str(self.output / "auto-plan")}
        if mode not in ("trace", "alloc", "resumed"):
            return {}
        layers = {}
        if mode == "trace" and self.common.layers:
            layers = {"STALLOC_TRACE_MODULES": "1", "STALLOC_TRACE_TIMES": "1"}
            layers["STALLOC_TRACE_STEPS"] = str(self.common.trace_iterations // 2)
        return {
            **layers,
            "STALLOC_MODE": "Trace" if mode == "trace" else "Alloc",
            "STALLOC_TRACE_FAST_MODE": "0" if self.exact else "1",
            "STALLOC_MODEL_INFO_PATH": str(self.output / "plan"),
        }

    def _arguments(self, mode: str) -> list[str]:
        common, traced = self.common, mode == "trace"
        arguments = WORKLOADS[self.workload].arguments(common.size)
        if "--step-batch-size-schedule" in [*arguments, *self.extra]:  # which Megatron takes alone
            at = arguments.index("--global-batch-size")
            del arguments[at : at + 2]
        arguments += ["--train-iters", str(common.trace_iterations if traced else common.iterations)]
        arguments += ["--lr-decay-iters", str(common.iterations)]  # the same learning rates in a shorter run
        if "--eval-iters" not in arguments:
            arguments += ["--eval-iters", "1"]
        arguments += ["--eval-interval", str(1000 if traced else common.eval_interval)]
        arguments += ["--distributed-backend", common.backend, "--result-dir", str(self.output / mode)]
        return arguments + self._checkpoint_arguments(mode) + self.extra

    def _checkpoint_arguments(self, mode: str) -> list[str]:
        if self.save_at is None or mode == "trace":
            return []
        if mode.endswith("resumed"):
            saved = self.output / f"checkpoint-{_SAVED_BY[mode]}"
            return ["--load", str(saved), "--ckpt-step", str(self.save_at)]
        return ["--save", str(self.output / f"checkpoint-{mode}"), "--save-interval", str(self.save_at)]

    def _remove_checkpoint_after(self, mode: str) -> None:
        """Once nobody loads it any more: checkpoints are larger than everything else here."""
        saved = _SAVED_BY.get(mode, mode)
        if not any(_SAVED_BY.get(other) == saved for other in self.modes if other not in self.results):
            shutil.rmtree(self.output / f"checkpoint-{saved}", ignore_errors=True)


_SAVED_BY = {"resumed": "alloc", "native-resumed": "native"}


def read_result(text: str) -> Result:
    warnings = sorted(
        {line for line in text.splitlines() if "[stalloc]" in line and (" warning: " in line or " error: " in line)}
    )[:50]
    return {**read_log(text), "out_of_memory": "OutOfMemoryError" in text, "warnings": warnings}


def main() -> int:
    chosen = parse_arguments()
    comparison = Comparison(chosen, chosen.workload, chosen.modes, save_at=chosen.save_at)
    for mode in chosen.modes:
        print(f"== {chosen.workload}: {mode}", file=sys.stderr, flush=True)
        if comparison.run(mode)["exit_code"]:
            print((comparison.output / f"{mode}.log").read_text()[-3000:], file=sys.stderr)
    print(f"{chosen.workload}, {comparison.processes} processes, {chosen.iterations} iterations")
    print(table(comparison.results))
    return max(result["exit_code"] != 0 for result in comparison.results.values())


if __name__ == "__main__":
    sys.exit(main())
