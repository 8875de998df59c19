"""Trains a GPT in plain PyTorch under whatever allocator the process has, and reports losses, times and memory.

    python bench/train_gpt.py --preset toy --iterations 10 --json out.json
    STALLOC_MODE=Trace STALLOC_MODEL_INFO_PATH=run1 stalloc run bench/train_gpt.py --preset dense-1b --iterations 3
    python bench/train_gpt.py --preset toy --iterations 4 --memory-history run1.pickle      # for stalloc import

Every size can be overridden by a flag. The last line is what bench/run.py compares.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import hashlib
import json
import os
import statistics
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from workload import PRESETS, Gpt, MasterWeightAdamW, RoutingShift, WorkloadConfig, token_batches

EXIT_OUT_OF_MEMORY = 3
TYPES = {"int": int, "float": float, "str": str}  # of the workload's fields


class Marks:
    """Marks of the loop through stalloc's API at the requested level; nothing if stalloc is missing or not wanted."""

    def __init__(self, level: str) -> None:
        self._api: Any = None
        if level == "none":
            return
        with contextlib.suppress(ImportError):
            import stalloc

            self._api = stalloc
        self._full = level == "full"

    def iteration(self, index: int) -> None:
        if self._api is not None:
            self._api.iteration(index)

    def microbatch(self, kind: str, index: int) -> None:
        if self._api is not None and self._full:
            self._api.microbatch(kind, index)

    def optimizer(self) -> None:
        if self._api is not None and self._full:
            self._api.optimizer()

    def tokens(self, count: int) -> None:
        if self._api is not None:
            self._api.tokens(count)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", choices=sorted(PRESETS), default="toy")
    for field in dataclasses.fields(WorkloadConfig):
        flag = "--" + field.name.replace("_", "-")
        if field.type == "bool":
            parser.add_argument(flag, action=argparse.BooleanOptionalAction, default=None)
        else:
            parser.add_argument(flag, type=TYPES[str(field.type)], default=None)
    parser.add_argument("--iterations", type=int, default=10)
    parser.add_argument("--device", choices=["auto", "cuda", "cpu"], default="auto")
    parser.add_argument("--seed", type=int, default=1234)
    parser.add_argument("--deterministic", action="store_true", help="deterministic algorithms only")
    parser.add_argument("--marks", choices=["none", "iteration", "full"], default="full")
    parser.add_argument("--micro-batch-from", type=int, nargs=2, metavar=("ITERATION", "SIZE"), help="change the batch")
    parser.add_argument("--memory-history", type=Path, metavar="FILE", help="dump PyTorch's history of the memory")
    parser.add_argument("--json", type=Path, help="write the result here")
    return parser.parse_args()


def workload_of(arguments: argparse.Namespace) -> WorkloadConfig:
    overrides = {f.name: getattr(arguments, f.name) for f in dataclasses.fields(WorkloadConfig)}
    return dataclasses.replace(PRESETS[arguments.preset], **{k: v for k, v in overrides.items() if v is not None})


def digest_of(model: torch.nn.Module) -> str:
    """SHA-256 over the SHA-256 of each parameter's bytes: two runs with the same digest computed the same thing.

    On several threads (hashlib lets go of the interpreter): billions of parameters take a while on one.
    """

    def digest(parameter: torch.nn.Parameter) -> bytes:
        return hashlib.sha256(parameter.detach().cpu().contiguous().view(torch.uint8).numpy()).digest()

    with ThreadPoolExecutor(max_workers=min(8, os.cpu_count() or 1)) as threads:
        return hashlib.sha256(b"".join(threads.map(digest, model.parameters()))).hexdigest()


class IterationPeaks:
    """Peaks of each iteration on a GPU, in bytes: `live`, what the program requested and had not freed, and `held`. By
    PyTorch's own statistics, whose peaks are reset as an iteration begins (no block of this program is used by a second
    stream, so that requested bytes end with the program's free)."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.held_peak = 0  # of the whole run

    def begin(self) -> None:
        if self.device.type == "cuda":
            self.end()
            torch.cuda.reset_peak_memory_stats(self.device)

    def end(self) -> dict[str, int]:
        if self.device.type != "cuda":
            return {}
        stats = torch.cuda.memory_stats(self.device)
        held = int(stats["reserved_bytes.all.peak"])
        self.held_peak = max(self.held_peak, held)
        return {"live": int(stats["requested_bytes.all.peak"]), "held": held}


class Training:
    """One run: model, optimizer, data and the loop."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.arguments = arguments
        self.config = workload_of(arguments)
        cuda = arguments.device == "cuda" or (arguments.device == "auto" and torch.cuda.is_available())
        local_rank = int(os.environ.get("LOCAL_RANK", "0"))
        self.device = torch.device("cuda", local_rank) if cuda else torch.device("cpu")
        if cuda:
            torch.cuda.set_device(self.device)
            if arguments.memory_history is not None:
                torch.cuda.memory._record_memory_history(context="alloc", stacks="python")
        torch.manual_seed(arguments.seed)
        if arguments.deterministic:
            os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
            torch.use_deterministic_algorithms(True)
        self.marks = Marks(arguments.marks)
        self.model = Gpt(self.config, self.device)
        self.optimizer = MasterWeightAdamW(self.model, 1e-4)
        self.batches: Iterator[torch.Tensor] = token_batches(self.config, arguments.seed, self.device)
        self.shift = RoutingShift(self.config, arguments.seed) if self.config.shifts_routing else None
        self.peaks = IterationPeaks(self.device)

    def synchronize(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def step(self, iteration: int) -> float:
        self.marks.iteration(iteration)
        if self.shift is not None:
            self.model.shift_routing(self.shift.bias(iteration))
        change = self.arguments.micro_batch_from
        if change is not None and iteration == change[0]:
            self.config.micro_batch = change[1]
        total = torch.zeros((), device=self.device)
        for number in range(self.config.accumulation):
            self.marks.microbatch("F", number)
            loss = self.loss_of_next_batch() / self.config.accumulation
            self.marks.microbatch("B", number)
            loss.backward()
            total += loss.detach()
        self.marks.optimizer()
        self.optimizer.step()
        return total.item()

    def loss_of_next_batch(self) -> torch.Tensor:
        tokens = next(self.batches)
        if self.config.variable_length:
            self.marks.tokens(tokens[:, 1:].numel())
        return self.model(tokens)

    def run(self) -> dict[str, Any]:
        losses: list[float] = []
        seconds: list[float] = []
        peaks: list[dict[str, int]] = []
        for iteration in range(self.arguments.iterations):
            self.synchronize()
            self.peaks.begin()
            begin = time.perf_counter()
            losses.append(self.step(iteration))
            self.synchronize()
            seconds.append(time.perf_counter() - begin)
            peaks.append(self.peaks.end())
        memory = self.memory()  # before the digest
        if self.arguments.memory_history is not None and self.device.type == "cuda":
            torch.cuda.memory._dump_snapshot(str(self.arguments.memory_history))
        return {
            "config": dataclasses.asdict(self.config),
            "device": torch.cuda.get_device_name() if self.device.type == "cuda" else "cpu",
            "torch": torch.__version__,
            "losses": losses,
            "losses_hex": [loss.hex() for loss in losses],
            "weights_sha256": digest_of(self.model),
            "step_seconds": seconds,
            "iteration_peaks": peaks,
            "step_seconds_median": statistics.median(seconds[len(seconds) // 3 :]),
            "memory": memory,
        }

    def memory(self) -> dict[str, int]:
        """`held_peak` in bytes; empty on a CPU."""
        if self.device.type == "cpu":
            return {}
        self.peaks.end()
        stats = torch.cuda.memory_stats(self.device)
        return {"held_peak": self.peaks.held_peak, "allocations": stats["allocation.all.allocated"]}


def main() -> int:
    arguments = parse_arguments()
    try:
        result = Training(arguments).run()
        milliseconds = result["step_seconds_median"] * 1e3
        print(f"last loss {result['losses'][-1]:.6f}, median step {milliseconds:.1f} ms", flush=True)
        computed = {"losses": result["losses"], "weights": result["weights_sha256"]}
        print("RESULT " + json.dumps(computed), flush=True)
    except torch.OutOfMemoryError as error:
        result = {"out_of_memory": str(error)}
        print(f"out of memory: {error}", flush=True)
    if arguments.json is not None:
        temporary = arguments.json.with_suffix(".tmp")
        temporary.write_text(json.dumps(result, indent=1))
        temporary.replace(arguments.json)
    return EXIT_OUT_OF_MEMORY if "out_of_memory" in result else 0


if __name__ == "__main__":
    sys.exit(main())
