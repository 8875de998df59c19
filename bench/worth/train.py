"""Trains one program of programs.py for a few steps under whatever allocator the process has; JSON on one line.

    python bench/worth/train.py lora --micro-batch 4 --steps 6
    STALLOC_MODE=Trace STALLOC_MODEL_INFO_PATH=run1 stalloc run bench/worth/train.py lora --size toy --steps 3

Exit code 3: the memory was not enough. `--card 80G` leaves so much of a larger GPU.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Optional

import torch
import torch._functorch.config
from programs import PROGRAMS, Options, Program
from torch.optim.optimizer import register_optimizer_step_pre_hook

import stalloc
from stalloc.train.changes import state

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from occupied import occupy, parse_bytes

EXIT_OUT_OF_MEMORY = 3
# Retries: everything free is given back to the driver, after a wait for the device, and requested again.
_TORCH_COUNTS = ("num_alloc_retries", "num_device_alloc", "num_device_free", "num_sync_all_streams")
_OUR_COUNTS = (
    *("requests", "planned_hits", "dynamic_hits", "upstream", "stream_waits", "arena_times_grown"),
    *("arena_times_moved", "arena_moved_bytes", "arena_move_seconds", "arena_times_mapped_again", "arena_map_seconds"),
    *("arena_times_waited", "arena_wait_seconds"),
)
_NO_MEMORY = re.compile(r"out of memory|CUBLAS_STATUS_ALLOC_FAILED|CUDNN_STATUS_ALLOC_FAILED", re.IGNORECASE)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", choices=PROGRAMS)
    parser.add_argument("--size", choices=["real", "toy"], default="real")
    parser.add_argument("--micro-batch", type=int, default=1)
    changes = parser.add_mutually_exclusive_group()
    changes.add_argument("--fit", type=Path, help="what stalloc.apply does to the model")
    changes.add_argument("--recompute-all", action="store_true", help="recompute each layer as a whole")
    changes.add_argument(
        "--activation-budget", type=float, metavar="SHARE", help="compile each layer with torch's budget for it"
    )
    parser.add_argument(
        "--share", type=float, default=0.0, help="for a trace: two micro-batches a step, rows alike, so much as long"
    )
    parser.add_argument("--graphs", action="store_true", help="capture micro-batches, where the program can")
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--device", choices=["auto", "cuda", "cpu"], default="auto")
    parser.add_argument("--card", type=parse_bytes, help="of the GPU's memory, so much is there")
    parser.add_argument("--seed", type=int, default=7)
    return parser.parse_args()


def device_of(arguments: argparse.Namespace) -> torch.device:
    if arguments.device == "cpu" or not torch.cuda.is_available():
        return torch.device("cpu")
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
    torch.cuda.set_device(device)
    if arguments.card is not None:
        occupy(arguments.card, device)
    return device


def apply_choice(document: dict[str, Any], model: torch.nn.Module) -> None:
    """As `stalloc run --fit` does it: the optimizer is not there yet."""
    chosen = document["chosen"]

    def before_step(optimizer: torch.optim.Optimizer, *_: Any) -> None:
        state.offload(optimizer)

    if chosen.pop("offload_state"):
        register_optimizer_step_pre_hook(before_step)
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump({**document, "chosen": {**chosen, "offload_state": False}}, file)
        file.flush()
        stalloc.apply(file.name, model)


def change_by_hand(model: torch.nn.Module, recompute_all: bool, budget: Optional[float]) -> None:
    """Of the model's chain of layers."""
    chains = [module for module in model.modules() if isinstance(module, torch.nn.ModuleList)]
    layers = max(chains, key=lambda chain: sum(weight.numel() for weight in chain.parameters()))
    if recompute_all:
        for layer in layers:
            stalloc.recompute(layer)
    if budget is not None:
        torch._functorch.config.activation_memory_budget = budget
        for layer in layers:
            layer.compile()


def begin_ranks(device: torch.device, wanted: int) -> None:
    """A process group where the program is sharded; alone it is one rank."""
    if wanted == 1:
        return
    for name, value in {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29577"}.items():
        os.environ.setdefault(name, value)
    torch.distributed.init_process_group("nccl" if device.type == "cuda" else "gloo")


def measure(program: Program, steps: int, device: torch.device) -> dict[str, Any]:
    """Seconds, tokens and what allocators count, of each step."""
    seconds: list[float] = []
    tokens: list[int] = []
    counts = [counters(device)]
    began = 0.0

    def before() -> None:
        nonlocal began
        _synchronize(device)
        began = time.perf_counter()

    def after(count: int) -> None:
        _synchronize(device)
        seconds.append(time.perf_counter() - began)
        tokens.append(count)
        counts.append(counters(device))

    program.run(steps, before, after)
    counted = {
        name: [now.get(name, 0) - was.get(name, 0) for was, now in zip(counts, counts[1:])] for name in counts[-1]
    }
    return {"seconds": seconds, "tokens": tokens, "counted": counted}


def counters(device: torch.device) -> dict[str, float]:
    """What costs an allocator time, since the process began: by PyTorch's names and by stalloc's."""
    found: dict[str, float] = {}
    if device.type == "cuda":
        stats = torch.cuda.memory_stats(device)
        found |= {name: stats.get(name, 0) for name in _TORCH_COUNTS}
    ours = stalloc.stats()["devices"] if stalloc.installed() else []
    return found | {name: ours[0][name] for name in _OUR_COUNTS if ours}


def _synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def memory(device: torch.device) -> dict[str, int]:
    if device.type == "cuda":
        stats = torch.cuda.memory_stats(device)
        return {
            "live_bytes": stats["allocated_bytes.all.peak"],
            "held_bytes": stats["reserved_bytes.all.peak"],
            "alloc_retries": stats["num_alloc_retries"],
        }
    counted = stalloc.stats()["devices"] if stalloc.installed() else []
    return {"live_bytes": counted[0]["peak_live_bytes"], "held_bytes": counted[0]["held_peak_bytes"]} if counted else {}


def outside(device: torch.device, card: Optional[int]) -> int:
    """Of the card, what is no allocator's: CUDA's context, libraries, communicators."""
    if device.type != "cuda":
        return 0
    free, total = torch.cuda.mem_get_info(device)
    beyond = max(0, total - card) if card is not None else 0
    return int(total - beyond - free - torch.cuda.memory_reserved(device))


def train(arguments: argparse.Namespace) -> dict[str, Any]:
    device = device_of(arguments)
    options = Options(arguments.size, arguments.micro_batch, arguments.seed, arguments.share, arguments.graphs)
    make = PROGRAMS[arguments.program]
    begin_ranks(device, getattr(make, "gpus", 1))
    program = make(options, device)
    if arguments.fit is not None:
        apply_choice(json.loads(arguments.fit.read_text()), program.model)
    change_by_hand(program.model, arguments.recompute_all, arguments.activation_budget)
    program.prepare()
    _synchronize(device)
    found = measure(program, arguments.steps, device)
    return {**found, **memory(device), "outside_bytes": outside(device, arguments.card)}


def main() -> int:
    arguments = parse_arguments()
    try:
        result = train(arguments)
        code = 0
    except RuntimeError as error:  # torch.OutOfMemoryError is one, cuBLAS' another
        if not _NO_MEMORY.search(str(error)):
            raise
        result, code = {"out_of_memory": str(error).splitlines()[0]}, EXIT_OUT_OF_MEMORY
    result["rank"] = int(os.environ.get("RANK", "0"))
    print("RESULT " + json.dumps(result), flush=True)
    if code:
        os._exit(code)  # other ranks may wait in a collective: nothing ends in order
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
    return code


if __name__ == "__main__":
    sys.exit(main())
