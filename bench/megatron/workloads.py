"""Megatron configurations by name; `python workloads.py NAME` prints one as arguments for pretrain_mock.py.

All run on the published megatron-core wheel alone, without TransformerEngine and Apex. Sizes: `h200` is a model of
1.7 billion parameters (experts: 3.5); `h200-short` fills as much memory in a fraction of the time, with narrower layers
and fewer micro-batches, for machines lent by the minute; `tiny` has the same structure, for two processes on a CPU.
"""

from __future__ import annotations

import argparse
import dataclasses

WITHOUT_EXTENSIONS = (
    "--transformer-impl local --no-persist-layer-norm --no-masked-softmax-fusion --no-gradient-accumulation-fusion "
    "--no-rope-fusion"
)
GPT = (
    "--disable-bias-linear --swiglu --position-embedding-type rope --normalization RMSNorm "
    "--untie-embeddings-and-output-weights --mock-data --tokenizer-type NullTokenizer --split 949,50,1 "
    "--lr 1e-4 --min-lr 1e-5 --lr-decay-style cosine --log-interval 1 --num-workers 0"
)
DISTRIBUTED_OPTIMIZER = "--use-distributed-optimizer"
MOE = (
    "--num-experts 8 --moe-router-topk 2 --moe-token-dispatcher-type alltoall "
    "--moe-router-load-balancing-type aux_loss --moe-aux-loss-coeff 1e-2"
)

SIZES = {
    "h200": "--hidden-size 2048 --num-attention-heads 16 --seq-length 2048 --max-position-embeddings 2048 "
    "--vocab-size 32000 --bf16",
    "h200-short": "--hidden-size 1024 --num-attention-heads 16 --seq-length 2048 --max-position-embeddings 2048 "
    "--vocab-size 32000 --bf16",
    "tiny": "--hidden-size 64 --num-attention-heads 4 --seq-length 64 --max-position-embeddings 64 "
    "--vocab-size 512 --no-bias-swiglu-fusion --no-bias-dropout-fusion",
}


@dataclasses.dataclass(frozen=True)
class Workload:
    """`micro` is the micro-batch size, `accumulated` how many of them make a step of one replica; per size."""

    layers: dict[str, int]
    parallel: str
    replicas: int
    micro: dict[str, int]
    accumulated: dict[str, int]
    options: str = ""
    of_size: dict[str, str] = dataclasses.field(default_factory=dict)  # further options
    environment: dict[str, str] = dataclasses.field(default_factory=dict)
    processes: int = 2
    further: str = ""  # options that come last, and win

    def arguments(self, size: str) -> list[str]:
        micro, batch = self.micro[size], self.micro[size] * self.accumulated[size] * self.replicas
        shape = f"--num-layers {self.layers[size]} --micro-batch-size {micro} --global-batch-size {batch}"
        parts = [shape, SIZES[size], self.parallel, self.options, self.of_size.get(size, ""), GPT, WITHOUT_EXTENSIONS]
        parts.append(self.further)
        return " ".join(parts).split()


_LAYERS = {"h200": 24, "h200-short": 24, "tiny": 8}
_MICRO = {"h200": 2, "h200-short": 2, "tiny": 1}
_DOUBLE_MICRO = {**_MICRO, "h200-short": 4}
_PIPELINED = {"h200": 16, "h200-short": 4, "tiny": 4}
_ACCUMULATED = {"h200": 4, "h200-short": 2, "tiny": 2}
_FOR_FSDP = {"CUDA_DEVICE_MAX_CONNECTIONS": "8"}  # Megatron refuses 1
_VPP = "--pipeline-model-parallel-size 2 --num-virtual-stages-per-pipeline-rank 4"

WORKLOADS = {
    # The case of the recorded traces: two pipeline ranks of four virtual stages each.
    "pp2-vpp4": Workload(_LAYERS, _VPP, 1, _MICRO, _PIPELINED, DISTRIBUTED_OPTIMIZER),
    # Checkpoints of the distributed optimizer are loaded only with Apex or TransformerEngine: the next two do without.
    "pp2-vpp4-recompute": Workload(
        _LAYERS,
        _VPP,
        1,
        _MICRO,
        _PIPELINED,
        "--recompute-granularity full --recompute-method block --recompute-num-layers 1",
    ),
    "pp2": Workload(_LAYERS, "--pipeline-model-parallel-size 2", 1, _MICRO, _PIPELINED),
    "tp2": Workload(
        _LAYERS,
        "--tensor-model-parallel-size 2",
        1,
        _DOUBLE_MICRO,
        _ACCUMULATED,
        DISTRIBUTED_OPTIMIZER,
    ),
    "dp2": Workload(
        _LAYERS,
        "",
        2,
        _MICRO,
        _ACCUMULATED,
        f"{DISTRIBUTED_OPTIMIZER} --overlap-grad-reduce --overlap-param-gather",
    ),
    "ep2-moe": Workload(
        {"h200": 8, "h200-short": 12, "tiny": 4},
        "--expert-model-parallel-size 2",
        2,
        _DOUBLE_MICRO,
        _ACCUMULATED,
        f"{DISTRIBUTED_OPTIMIZER} {MOE}",
        {"h200-short": "--moe-ffn-hidden-size 2048"},
    ),
    "ep2-moe-recompute": Workload(
        {"h200": 8, "h200-short": 12, "tiny": 4},
        "--expert-model-parallel-size 2",
        2,
        _DOUBLE_MICRO,
        _ACCUMULATED,
        f"{DISTRIBUTED_OPTIMIZER} {MOE} --recompute-granularity selective --recompute-modules moe "
        "--moe-shared-expert-intermediate-size 256",
        {"h200-short": "--moe-ffn-hidden-size 2048"},
    ),
    "fsdp2": Workload(
        _LAYERS, "", 2, _MICRO, _ACCUMULATED, "--use-torch-fsdp2 --ckpt-format torch_dist", environment=_FOR_FSDP
    ),
    "megatron-fsdp": Workload(
        _LAYERS,
        "",
        2,
        _MICRO,
        _ACCUMULATED,
        f"{DISTRIBUTED_OPTIMIZER} --use-megatron-fsdp --data-parallel-sharding-strategy optim_grads_params "
        "--ckpt-format fsdp_dtensor",
        environment=_FOR_FSDP,
    ),
    "tp2-sp": Workload(
        _LAYERS,
        "--tensor-model-parallel-size 2 --sequence-parallel",
        1,
        _DOUBLE_MICRO,
        _ACCUMULATED,
        DISTRIBUTED_OPTIMIZER,
    ),
    # Chunks of unequal depth: the embedding has a stage of its own.
    "pp2-vpp2-uneven": Workload(
        {"h200": 24, "h200-short": 24, "tiny": 8},
        "--pipeline-model-parallel-size 2",
        1,
        _MICRO,
        _PIPELINED,
        DISTRIBUTED_OPTIMIZER,
        {
            "h200": "--pipeline-model-parallel-layout E|t*8|t*9|t*7L",
            "h200-short": "--pipeline-model-parallel-layout E|t*8|t*9|t*7L",
            "tiny": "--pipeline-model-parallel-layout E|t*3|t*4|tL",
        },
    ),
    "pp2-varlen": Workload(
        _LAYERS,
        "--pipeline-model-parallel-size 2",
        1,
        _MICRO,
        _PIPELINED,
        f"{DISTRIBUTED_OPTIMIZER} --vary-lengths 0.25 0.5 0.75 1.0",
    ),
    "tp2-pp2-vpp2-recompute": Workload(
        _LAYERS,
        "--tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 --num-virtual-stages-per-pipeline-rank 2",
        1,
        _DOUBLE_MICRO,
        _PIPELINED,
        f"{DISTRIBUTED_OPTIMIZER} --sequence-parallel --recompute-granularity full --recompute-method block "
        "--recompute-num-layers 1",
        processes=4,
    ),
    "pp2-dp2": Workload(
        _LAYERS,
        "--pipeline-model-parallel-size 2 --num-virtual-stages-per-pipeline-rank 2",
        2,
        _MICRO,
        _PIPELINED,
        f"{DISTRIBUTED_OPTIMIZER} --overlap-grad-reduce --overlap-param-gather",
        processes=4,
    ),
    "ep4-moe": Workload(
        {"h200": 8, "h200-short": 12, "tiny": 4},
        "--expert-model-parallel-size 4",
        4,
        _DOUBLE_MICRO,
        _ACCUMULATED,
        f"{DISTRIBUTED_OPTIMIZER} {MOE.replace('--num-experts 8', '--num-experts 32')}",
        {"h200-short": "--moe-ffn-hidden-size 2048"},
        processes=4,
    ),
    "mtp": Workload(
        _LAYERS, "", 1, _MICRO, _ACCUMULATED, "--mtp-num-layers 2 --mtp-loss-scaling-factor 0.1", processes=1
    ),
    "mla": Workload(
        _LAYERS,
        "",
        1,
        _MICRO,
        _ACCUMULATED,
        "--multi-latent-attention --qk-layernorm --rope-type rope",
        {
            size: f"--q-lora-rank {4 * head} --kv-lora-rank {4 * head} --qk-head-dim {head // 2} "
            f"--qk-pos-emb-head-dim {head // 2} --v-head-dim {head} --kv-channels {head}"
            for size, head in {"h200": 128, "h200-short": 64, "tiny": 16}.items()
        },
        processes=1,
    ),
    "dense": Workload(_LAYERS, "", 1, _MICRO, _ACCUMULATED, processes=1),
}

WORKLOADS["tp2-pp2-dp2-vpp2-recompute"] = dataclasses.replace(
    WORKLOADS["tp2-pp2-vpp2-recompute"], replicas=2, processes=8
)

# What follows is for traces on a CPU (--size tiny), whose next iteration no plan can know: experts, lengths and numbers
# of micro-batches that vary. An eighth of the width and of the length of `h200-short`; replays with --scale 64.
_SMALL = (
    "--hidden-size 128 --num-attention-heads 8 --seq-length 256 --max-position-embeddings 256 --vocab-size 4000 --bf16 "
    "--eval-iters 0 "
)
_DENSE = f"{_SMALL} --num-layers 8 --micro-batch-size 4 --global-batch-size 16"
# A learning rate at which routing drifts.
_DRIFTS = "--moe-ffn-hidden-size 256 --lr 3e-3 --min-lr 1e-3 --moe-aux-loss-coeff 1e-3"
_SPARSE = f"{_SMALL} --num-layers 6 --micro-batch-size 4 --global-batch-size 16 {_DRIFTS}"
# Tokens seen, and the sequences of a step from then on: six iterations of 4, four of 8, three of 12.
_RAMP = "--step-batch-size-schedule 0:4,6144:8,14336:12,23552:16"
_UNKNOWN = {  # name: workload, processes, options
    "moe-rampup": ("ep2-moe", 2, f"{_SMALL} --num-layers 6 --micro-batch-size 2 {_DRIFTS} {_RAMP}"),
    "moe-allgather": ("ep2-moe", 2, f"{_SPARSE} --moe-token-dispatcher-type allgather"),
    "moe-32x4": (
        *("ep2-moe", 2),
        f"{_SPARSE} --num-experts 32 --moe-router-topk 4 --moe-shared-expert-intermediate-size 128 "
        "--moe-ffn-hidden-size 64",
    ),
    "moe-top1": (
        *("ep2-moe", 2),
        f"{_SPARSE} --moe-router-load-balancing-type sinkhorn --moe-router-topk 1 --moe-aux-loss-coeff 0",
    ),
    "moe-full": (
        *("ep2-moe", 2),
        f"{_SPARSE} --recompute-granularity full --recompute-method uniform --recompute-num-layers 1",
    ),
    "moe-capacity": ("ep2-moe", 2, f"{_SPARSE} --moe-expert-capacity-factor 1.25"),
    "moe-varlen": ("ep2-moe", 2, f"{_SPARSE} --vary-lengths 0.25 0.5 0.75 1.0"),
    "moe-mtp": ("ep2-moe", 2, f"{_SPARSE} --num-layers 4 --mtp-num-layers 1"),
    "moe-pp2": (
        *("ep2-moe", 4),
        f"{_SPARSE} --num-layers 8 --global-batch-size 32 --pipeline-model-parallel-size 2 "
        "--num-virtual-stages-per-pipeline-rank 2",
    ),
    "moe-tp2": (
        *("ep2-moe", 4),
        f"{_SPARSE} --tensor-model-parallel-size 2 --sequence-parallel --expert-tensor-parallel-size 1",
    ),
    "dense-varlen": ("dense", 1, f"{_DENSE} --num-layers 6 --vary-lengths 0.1 0.3 0.5 0.75 1.0"),
    "pp2-varlen-small": ("pp2-varlen", 2, _DENSE),
    "pp2-recompute-selective": (
        *("pp2", 2),
        f"{_DENSE} --global-batch-size 32 --recompute-granularity selective --recompute-modules core_attn mlp",
    ),
    "vpp-rampup": ("pp2-vpp4", 2, f"{_SMALL} --num-layers 8 --micro-batch-size 2 {_RAMP}"),
}
WORKLOADS |= {
    name: dataclasses.replace(WORKLOADS[of], processes=processes, further=further)
    for name, (of, processes, further) in _UNKNOWN.items()
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=WORKLOADS)
    parser.add_argument("--size", choices=SIZES, default="h200")
    chosen = parser.parse_args()
    print(" ".join(WORKLOADS[chosen.name].arguments(chosen.size)))


if __name__ == "__main__":
    main()
