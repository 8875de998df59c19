"""Traces configurations whose next iteration no plan can know, as large as a CPU allows, to be replayed as large ones.

    python bench/megatron/unseen.py --size tiny --backend gloo --output DIR [--only NAME ...]
    python bench/unseen/replay.py DIR/traces --scale 64 --serve 4-12 --traced-by "bench/megatron/unseen.py"

Experts and their dispatchers, lengths and numbers of micro-batches that vary, and two dense ones. Each run's traces are
DIR/traces/NAME, where replay.py looks for those of rank 0. A configuration whose run fails is named at the end.
tests/python/test_megatron_real.py sets what lets Megatron run on a CPU.
"""

from __future__ import annotations

import argparse
import copy
import sys
from pathlib import Path

from compare import Comparison, add_arguments

# An eighth of the width and of the length of `h200-short`; --scale 64 makes up for both.
_MODEL = (
    "--hidden-size 128 --num-attention-heads 8 --seq-length 256 --max-position-embeddings 256 --vocab-size 4000 --bf16 "
    "--eval-iters 0 --num-layers {layers} --micro-batch-size {micro} "
)
# A learning rate at which routing drifts.
_EXPERTS = "--moe-ffn-hidden-size 256 --lr 3e-3 --min-lr 1e-3 --moe-aux-loss-coeff 1e-3 "
_BATCH = "--global-batch-size 16 "
_DENSE = _MODEL.format(layers=8, micro=4) + _BATCH
_SPARSE = _MODEL.format(layers=6, micro=4) + _BATCH + _EXPERTS
# Tokens seen, and the sequences of a step from then on: six iterations of 4, four of 8, three of 12.
_RAMP = "--step-batch-size-schedule 0:4,6144:8,14336:12,23552:16"
_LENGTHS = "--vary-lengths 0.25 0.5 0.75 1.0"

# Name: workload, processes, options.
CONFIGURATIONS: dict[str, tuple[str, int, str]] = {
    "moe-rampup": ("ep2-moe", 2, _MODEL.format(layers=6, micro=2) + _EXPERTS + _RAMP),
    "moe-allgather": ("ep2-moe", 2, f"{_SPARSE} --moe-token-dispatcher-type allgather"),
    "moe-32x4": (
        "ep2-moe",
        2,
        f"{_SPARSE} --num-experts 32 --moe-router-topk 4 --moe-shared-expert-intermediate-size 128 "
        "--moe-ffn-hidden-size 64",
    ),
    "moe-top1": (
        "ep2-moe",
        2,
        f"{_SPARSE} --moe-router-load-balancing-type sinkhorn --moe-router-topk 1 --moe-aux-loss-coeff 0",
    ),
    "moe-full": (
        "ep2-moe",
        2,
        f"{_SPARSE} --recompute-granularity full --recompute-method uniform --recompute-num-layers 1",
    ),
    "moe-capacity": ("ep2-moe", 2, f"{_SPARSE} --moe-expert-capacity-factor 1.25"),
    "moe-varlen": ("ep2-moe", 2, f"{_SPARSE} {_LENGTHS}"),
    "moe-mtp": ("ep2-moe", 2, f"{_SPARSE} --num-layers 4 --mtp-num-layers 1"),
    "moe-pp2": (
        "ep2-moe",
        4,
        f"{_SPARSE} --num-layers 8 --global-batch-size 32 --pipeline-model-parallel-size 2 "
        "--num-virtual-stages-per-pipeline-rank 2",
    ),
    "moe-tp2": (
        "ep2-moe",
        4,
        f"{_SPARSE} --tensor-model-parallel-size 2 --sequence-parallel --expert-tensor-parallel-size 1",
    ),
    "dense-varlen": ("dense", 1, f"{_DENSE} --num-layers 6 --vary-lengths 0.1 0.3 0.5 0.75 1.0"),
    "pp2-varlen": ("pp2-varlen", 2, _DENSE),
    "pp2-recompute-selective": (
        "pp2",
        2,
        f"{_DENSE} --global-batch-size 32 --recompute-granularity selective --recompute-modules core_attn mlp",
    ),
    "vpp-rampup": ("pp2-vpp4", 2, _MODEL.format(layers=8, micro=2) + _RAMP),
}


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=CONFIGURATIONS, default=list(CONFIGURATIONS), metavar="NAME")
    add_arguments(parser)
    parser.set_defaults(trace_iterations=16, iterations=16)
    return parser.parse_args()


def trace(common: argparse.Namespace, name: str) -> bool:
    """Whether all its ranks trained to the end."""
    workload, processes, options = CONFIGURATIONS[name]
    common = copy.copy(common)
    common.processes = processes
    comparison = Comparison(common, workload, ["trace"], output=common.output / name, extra=options.split())
    comparison.prepare()
    try:
        if comparison.run("trace")["exit_code"]:
            return False
    finally:
        comparison.end()
    link(common.output / "traces" / name, comparison.output / "plan")
    return True


def link(name: Path, directory: Path) -> None:
    name.parent.mkdir(parents=True, exist_ok=True)
    name.unlink(missing_ok=True)
    name.symlink_to(directory)


def main() -> int:
    chosen = parse_arguments()
    failed = []
    for number, name in enumerate(chosen.only, 1):
        print(f"{number}/{len(chosen.only)} {name}", file=sys.stderr, flush=True)
        if not trace(chosen, name):
            failed.append(name)
    if failed:
        print(f"unseen.py: failed: {', '.join(failed)}; see {chosen.output}/NAME/trace.log", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
