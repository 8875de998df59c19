"""Configurations beside the workloads: each natively, traced, planned and under Alloc, and what became of it.

    python bench/megatron/variants.py --output DIR --report FILE.json [--only NAME ...] [-- argument of Megatron's ...]

For a machine without a GPU, with `--backend gloo` (test_megatron_real.py has the environment that this needs): are
losses and weights native's, does each rank find its slots, do forward and backward passes match in the trace? FILE is
written anew after each configuration, and keeps those of an earlier call that this one does not run; a table is
printed at the end. Sizes that small say nothing of efficiency: an arena grows by whole chunks of 2 MiB.
"""

from __future__ import annotations

import argparse
import collections
import copy
import datetime
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from compare import Comparison, add_arguments, write_json

MODES = ["native", "trace", "alloc"]
_LONGER = "--seq-length 256 --max-position-embeddings 256 --micro-batch-size 2 --global-batch-size 8"

# Name: workload, processes, options.
VARIANTS: dict[str, tuple[str, int, str]] = {
    "no accumulation": ("dense", 1, "--global-batch-size 1"),
    "8 micro-batches, loss per token": ("dense", 1, "--global-batch-size 8 --calculate-per-token-loss"),
    "the batch grows": ("dense", 1, "--step-batch-size-schedule 0:1,128:2,384:4"),
    "SGD, caches emptied, manual gc": (
        "dense",
        1,
        "--optimizer sgd --empty-unused-memory-level 2 --manual-gc --manual-gc-interval 2 --log-memory-interval 1",
    ),
    "logs of all kinds": (
        "dense",
        1,
        "--log-params-norm --log-num-zeros-in-grad --record-memory-history --log-memory-to-tensorboard",
    ),
    "results validated by reruns": ("dense", 1, "--rerun-mode validate_results"),
    "iterations skipped": ("dense", 1, "--iterations-to-skip 3 5"),
    "multi-token prediction": ("mtp", 1, ""),
    "multi-latent attention": ("mla", 1, ""),
    "lengths vary, pipeline": ("pp2-varlen", 2, ""),
    "pipeline, first stage of 3 layers": ("pp2", 2, "--decoder-first-pipeline-num-layers 3"),
    "uneven chunks": ("pp2-vpp2-uneven", 2, ""),
    "sequence parallel": ("tp2-sp", 2, ""),
    "recomputed, saved in parts": (
        "tp2",
        2,
        "--recompute-granularity full --recompute-method uniform --recompute-num-layers 2 "
        "--distribute-saved-activations",
    ),
    "fp16, steps skipped": ("dp2", 2, "--fp16 --initial-loss-scale 262144 --hysteresis 1"),
    "gradients reduced in bf16": ("dp2", 2, "--bf16 --grad-reduce-in-bf16 --ddp-average-in-collective"),
    "torch's FSDP2": ("fsdp2", 2, ""),
    "Megatron's FSDP": ("megatron-fsdp", 2, "--bf16"),
    "experts recomputed, shared experts": ("ep2-moe-recompute", 2, ""),
    "sinkhorn router": (
        "ep2-moe",
        2,
        f"--moe-router-load-balancing-type sinkhorn --moe-router-topk 1 --moe-aux-loss-coeff 0 {_LONGER}",
    ),
    "sigmoid router with expert bias": (
        "ep2-moe",
        2,
        "--moe-router-load-balancing-type none --moe-router-enable-expert-bias --moe-router-score-function sigmoid",
    ),
    "allgather, capacity factor": (
        "ep2-moe",
        2,
        "--moe-token-dispatcher-type allgather --moe-expert-capacity-factor 1.0",
    ),
    "groups of experts, capacity factor": (
        "ep2-moe",
        2,
        "--moe-router-num-groups 4 --moe-router-group-topk 2 --moe-router-score-function sigmoid "
        "--moe-router-load-balancing-type seq_aux_loss --moe-token-drop-policy position "
        "--moe-expert-capacity-factor 1.2 --moe-shared-expert-intermediate-size 32",
    ),
    "DP 4, two instances of the optimizer": (
        "dp2",
        4,
        "--num-distributed-optimizer-instances 2 --global-batch-size 8 --ddp-bucket-size 20000",
    ),
    "experts, TP 2 x EP 2": (
        "ep2-moe",
        4,
        "--tensor-model-parallel-size 2 --sequence-parallel --expert-tensor-parallel-size 1 --global-batch-size 4",
    ),
    "experts, PP 2 x VPP 2 x EP 2": (
        "ep2-moe",
        4,
        "--pipeline-model-parallel-size 2 --num-virtual-stages-per-pipeline-rank 2 --global-batch-size 8 "
        "--moe-z-loss-coeff 1e-3 --moe-layer-freq ([0,1]*2) --moe-router-pre-softmax",
    ),
}


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--report", type=Path, required=True)
    parser.add_argument("--only", nargs="+", choices=VARIANTS, default=list(VARIANTS))
    add_arguments(parser)
    parser.set_defaults(size="tiny", iterations=6, eval_interval=1000)
    return parser.parse_args()


def run(common: argparse.Namespace, name: str) -> dict[str, Any]:
    """One configuration, in all modes that can be run: the next one needs the one before."""
    workload, processes, options = VARIANTS[name]
    common = copy.copy(common)
    common.processes = processes
    output = common.output / re.sub(r"\W+", "-", name)
    extra = ["--eval-iters", "0", *options.split()]
    comparison = Comparison(common, workload, MODES, output=output, extra=extra)
    comparison.prepare()
    try:
        for mode in MODES:
            if comparison.run(mode)["exit_code"]:
                break
    finally:
        comparison.end()
    alike = "--step-batch-size-schedule" not in options
    return {
        "name": name,
        "workload": workload,
        "processes": processes,
        "options": options,
        "iterations": common.iterations,
        "exit_codes": {mode: result["exit_code"] for mode, result in comparison.results.items()},
        "warnings": comparison.results.get("alloc", {}).get("warnings", []),
        "ranks": list(_ranks(comparison, alike)),
        "versions": _versions(comparison),
    }


def _versions(comparison: Comparison) -> dict[str, str]:
    ranks = [rank for result in comparison.results.values() for rank in result["ranks"]]
    return {what: ranks[0][what] for what in ("megatron", "torch")} if ranks else {}


def _ranks(comparison: Comparison, alike: bool) -> Iterator[dict[str, Any]]:
    """What each rank of the Alloc run came to, and what its plan had said. `alike`: iterations have the same passes."""
    planned = {rank["rank"]: rank["report"]["devices"][0]["plan"] for rank in (comparison.plan or {}).get("ranks", [])}
    for row in comparison.document()["rows"]:
        if row["mode"] != "alloc":
            continue
        rank = row["rank"]
        ours = comparison.results["alloc"]["ranks"][rank]["stalloc"]
        yield {
            "losses_equal": row["losses_equal"],
            "weights_equal": row["weights_equal"],
            "efficiency": row["efficiency"],
            "predicted_efficiency": planned[rank]["predicted"]["efficiency"],
            "passes_match": _passes_match(comparison.output / "plan" / "trace" / f"rank{rank:05d}.trace", alike),
            **{key: ours[key] for key in ("peak_live_bytes", "held_peak_bytes", "steady", "gave_up", "degraded")},
            **{key: ours[key] for key in ("requests", "planned_hits", "dynamic_hits", "upstream")},
            "misses": {reason: count for reason, count in ours["misses"].items() if count},
        }


def _passes_match(trace: Path, alike: bool) -> bool:
    """Each forward pass has its backward pass, the same in all iterations if `alike`; an optimizer's step ends each."""
    environment = {name: value for name, value in os.environ.items() if name != "STALLOC_MODE"}
    command = [sys.executable, "-m", "stalloc", "dump", str(trace)]
    text = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout
    iterations = [_marks(part) for part in re.split(r"^Iteration Index", text, flags=re.MULTILINE)[1:]]
    return bool(iterations) and all(
        marks["F"] == marks["B"]
        and (not alike or marks["F"] == iterations[0]["F"])
        and marks["optimizer"] == iterations[0]["optimizer"] == [""]
        for marks in iterations
    )


def _marks(text: str) -> dict[str, list[str]]:
    found = collections.defaultdict(list)
    for kind, place in re.findall(r"^micro-batch : ([FB]) (.*)$", text, flags=re.MULTILINE):
        found[kind].append(place)
    found["optimizer"] = re.findall(r"^Optimizer : start()$", text, flags=re.MULTILINE)
    return {kind: sorted(found[kind]) for kind in ("F", "B", "optimizer")}


def table(runs: list[dict[str, Any]]) -> str:
    """As README.md has it."""
    lines = [
        "| configuration | workload, processes | from the plan, per rank | E predicted, measured | equal |",
        "|---|---|---|---|---|",
    ]
    for each in runs:
        ranks = each["ranks"]
        shares = ", ".join(f"{100 * r['steady']['hits'] / max(r['steady']['requests'], 1):.1f}" for r in ranks)
        ratios = "; ".join(f"{100 * r['predicted_efficiency']:.0f}, {100 * r['efficiency']:.0f}" for r in ranks)
        equal = bool(ranks) and all(r["losses_equal"] and r["weights_equal"] and r["passes_match"] for r in ranks)
        failed = ", ".join(mode for mode, code in each["exit_codes"].items() if code)
        said = f"failed: {failed}" if failed else "yes" if equal else "NO"
        lines.append(f"| {each['name']} | `{each['workload']}`, {each['processes']} | {shares} % | {ratios} | {said} |")
    return "\n".join(lines)


def main() -> int:
    chosen = parse_arguments()
    runs: dict[str, dict[str, Any]] = {}
    if chosen.report.exists():
        runs = {each["name"]: each for each in json.loads(chosen.report.read_text())["runs"]}
    for name in chosen.only:
        print(f"== {name}", file=sys.stderr, flush=True)
        runs[name] = run(chosen, name)
        ordered = [runs[each] for each in VARIANTS if each in runs]
        head = {"command": ["variants.py", *sys.argv[1:]], "date": datetime.date.today().isoformat()}
        write_json(chosen.report, {**head, "size": chosen.size, "backend": chosen.backend, "runs": ordered})
    print(table([runs[name] for name in chosen.only]))
    return max(code != 0 for name in chosen.only for code in runs[name]["exit_codes"].values())


if __name__ == "__main__":
    sys.exit(main())
