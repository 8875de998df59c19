#!/usr/bin/env bash
# A Megatron run under stalloc, from its trace to its planned training, on one node or on each of several.
#
#   bench/megatron/trace_plan_alloc.sh WORKLOAD [argument of Megatron's ...]     # a name of workloads.py
#
#   NNODES=4 NODE_RANK=0 MASTER_ADDR=node0 GPUS_PER_NODE=8 ITERATIONS=1000 RUN=/scratch/run1 ...  # on each node
#
# Every rank writes its own trace and reads its own plan, by its global number, so ranks may share a directory and need
# not. Here each node gets a directory of its own (`-node0`, `-node1`, ...) and plans what is in it: its own ranks, on a
# node-local disk as well as on a shared file system, where no node waits for another's files.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
workload=${1:?a workload of workloads.py}
shift

nnodes=${NNODES:-1} node_rank=${NODE_RANK:-0}
export STALLOC_MODEL_INFO_PATH="${RUN:-run-$workload}-node$node_rank"
export CUDA_DEVICE_MAX_CONNECTIONS=${CUDA_DEVICE_MAX_CONNECTIONS:-1} # what Megatron wants; its FSDP wants more
read -r -a model <<<"$(python3 "$here/workloads.py" "$workload" --size "${SIZE:-h200}")"
iterations=${ITERATIONS:-30}

train() { # MODE ITERATIONS [argument ...]
  local mode=$1 iterations_now=$2
  shift 2
  STALLOC_MODE=$mode python3 -m torch.distributed.run --nnodes "$nnodes" --node-rank "$node_rank" \
    --master-addr "${MASTER_ADDR:-127.0.0.1}" --master-port "${MASTER_PORT:-29500}" \
    --nproc-per-node "${GPUS_PER_NODE:-2}" "${ENTRY:-$here/pretrain_mock.py}" "${model[@]}" \
    --train-iters "$iterations_now" --lr-decay-iters "$iterations" --eval-iters 1 "$@"
}

# Four iterations: the first differs (lazy state, workspaces), and what repeats has to be seen to repeat. At full speed;
# a run that PyTorch's allocator cannot hold is traced with STALLOC_TRACE_FAST_MODE=0.
STALLOC_TRACE_FAST_MODE=${STALLOC_TRACE_FAST_MODE:-1} train Trace 4 --eval-interval 1000 "$@"
python3 -m stalloc plan "$STALLOC_MODEL_INFO_PATH"
train Alloc "$iterations" --eval-interval "${EVAL_INTERVAL:-100}" "$@"
