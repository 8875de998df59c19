"""Megatron-LM's arguments that its memory depends on, and those that it settled, in a file next to a trace."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, Optional

from stalloc.core.json_files import read_object


def arguments_of(trace: Path) -> Path:
    """Where stalloc.megatron leaves the arguments that Megatron settled: an object of `argument_names`."""
    return trace.with_suffix(".megatron.json")


def argument_names() -> list[str]:
    """The attributes of the namespace of Megatron-LM's arguments."""
    return sorted(vars(parser().parse_args([])))


def read_settled(trace: Path) -> Optional[dict[str, Any]]:
    """None if none lie next to the trace. ValueError names a file that holds something else."""
    path = arguments_of(trace)
    return read_object(path) if path.is_file() else None


def parser() -> argparse.ArgumentParser:
    """The values of those arguments, with Megatron's defaults."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    for name in (
        "num-layers", "hidden-size", "num-attention-heads", "seq-length", "micro-batch-size", "global-batch-size",
        "vocab-size", "padded-vocab-size", "ffn-hidden-size", "kv-channels", "num-layers-per-virtual-pipeline-stage",
        "num-virtual-stages-per-pipeline-rank", "max-position-embeddings", "moe-ffn-hidden-size",
    ):  # fmt: skip
        parser.add_argument(f"--{name}", type=int)
    for name, default in (
        ("num-query-groups", 1), ("tensor-model-parallel-size", 1), ("pipeline-model-parallel-size", 1),
        ("context-parallel-size", 1), ("expert-model-parallel-size", 1), ("num-experts", 0), ("moe-router-topk", 1),
        ("moe-shared-expert-intermediate-size", 0), ("recompute-num-layers", 1),
    ):  # fmt: skip
        parser.add_argument(f"--{name}", type=int, default=default)
    for name in (
        "swiglu", "untie-embeddings-and-output-weights", "sequence-parallel", "use-distributed-optimizer",
        "group-query-attention", "bf16", "fp16", "accumulate-allreduce-grads-in-fp32",
        "attention-softmax-in-fp32",
    ):  # fmt: skip
        parser.add_argument(f"--{name}", action="store_true")
    parser.add_argument("--disable-bias-linear", action="store_false", dest="add_bias_linear")
    parser.add_argument("--normalization", default="LayerNorm")
    parser.add_argument("--hidden-dropout", type=float, default=0.1)
    parser.add_argument("--attention-dropout", type=float, default=0.1)
    parser.add_argument("--attention-backend", default="auto")
    parser.add_argument("--transformer-impl", default="transformer_engine")
    parser.add_argument("--position-embedding-type", default="learned_absolute")
    parser.add_argument("--recompute-granularity", default="")
    parser.add_argument("--recompute-method", default="")
    return parser
