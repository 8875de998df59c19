"""What offloading costs a step, on Llama 3 8B's layers in bfloat16: saved tensors of some layers go to the host. Prints
JSON: seconds a step, bytes copied, peaks, and whether gradients are equal, bit for bit.

    python bench/worth/offload_overlap.py --layers 8 --rows 1 --length 8192          # one GPU
    python bench/worth/offload_overlap.py --device cpu --tiny                        # numbers without a meaning
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "patches"), str(Path(__file__).resolve().parent)]

from models import Decoder, Shape  # noqa: E402

import stalloc  # noqa: E402
from stalloc.train.changes import offload, transfers  # noqa: E402

WARM_UP = 2  # steps; in the first the pool is taken


def main() -> None:
    arguments = _arguments()
    if arguments.device == "cpu":  # the host's own tensors stay elsewhere
        offload._can_leave = lambda tensor: tensor.layout is torch.strided
    chosen = {
        "none": [],
        "every third": list(range(0, arguments.layers, 3)),
        "every second": list(range(0, arguments.layers, 2)),
        "all": list(range(arguments.layers)),
    }
    for layers in arguments.offload or []:
        chosen[layers] = [int(layer) for layer in layers.split(",")]
    only = arguments.only or list(chosen)
    rows = [_row(name, chosen[name], arguments) for name in chosen if name == "none" or name in only]
    first = rows[0]
    for row in rows:
        row["overhead_percent"] = round(100 * (row["step_seconds"] / first["step_seconds"] - 1), 2)
        row["equal"] = row.pop("checked") == first["checked"] if row is not first else True
        if row["alone_seconds"]:  # of the copies: what the step is longer by
            row["exposed_share"] = round((row["step_seconds"] - first["step_seconds"]) / row["alone_seconds"], 3)
    first.pop("checked")
    print(json.dumps({"torch": torch.__version__, "device": _name(arguments.device), **vars(arguments), "rows": rows}))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--rows", type=int, default=1)
    parser.add_argument("--length", type=int, default=8192)
    parser.add_argument("--vocabulary", type=int, default=128256)
    parser.add_argument("--steps", type=int, default=10, help="that count, after two that do not")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--tiny", action="store_true", help="layers of 64 instead of 4096")
    parser.add_argument("--offload", nargs="*", metavar="0,4", help="these layers, too")
    parser.add_argument("--only", nargs="*", help="some of the rows: none, every third, every second, all")
    arguments = parser.parse_args()
    if arguments.tiny:
        arguments.layers, arguments.length, arguments.vocabulary = min(arguments.layers, 4), 64, 128
        arguments.steps = 2
    return arguments


def _row(name: str, layers: list[int], arguments: argparse.Namespace) -> dict[str, Any]:
    device = torch.device(arguments.device)
    torch.manual_seed(1)
    shape = Shape(arguments.layers, 4096, 32, 8, 14336, arguments.vocabulary)
    if arguments.tiny:
        shape = Shape(arguments.layers, 64, 4, 2, 128, arguments.vocabulary)
    with device:
        model = Decoder(shape).to(torch.bfloat16)
        tokens = torch.randint(arguments.vocabulary, (arguments.rows, arguments.length))
    if layers:
        _apply(model, [f"blocks.{layer}" for layer in layers])
    lane = transfers.lane_of(device)
    seconds, peaks, sent, fetched = [], [], 0, 0
    checked = None
    for step in range(WARM_UP + arguments.steps):
        model.zero_grad(set_to_none=True)
        sent, fetched = lane.sent, lane.fetched
        torch.use_deterministic_algorithms(step == 0, warn_only=True)  # gradients of this one are compared
        _settle(device)
        begin = time.perf_counter()
        model(tokens, tokens).backward()
        held = _held(device)
        _synchronize(device)
        if step >= WARM_UP:
            seconds.append(time.perf_counter() - begin)
            peaks.append(held)
        if step == 0:
            checked = [parameter.grad.view(torch.int16).long().sum().item() for parameter in model.parameters()]
    sent, fetched = lane.sent - sent, lane.fetched - fetched
    row = {
        "name": name,
        "offloaded": layers,
        "step_seconds": statistics.median(seconds),
        "sent_bytes": sent,
        "fetched_bytes": fetched,
        "alone_seconds": _alone(device, sent) + _alone(device, fetched, back=True),
        "peak_bytes": max(peaks),
        "host_bytes": lane.pool.size,
        "checked": checked,
    }
    del model
    gc.collect()
    return row


def _apply(model: Any, paths: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "fit.json"
        chosen = {"recompute": [], "offload": paths, "offload_state": False}
        path.write_text(json.dumps({"version": 1, "chosen": chosen}))
        stalloc.apply(path, model)


def _alone(device: torch.device, count: int, back: bool = False) -> float:
    """Seconds for so many bytes with nothing else under way."""
    if device.type != "cuda" or count == 0:
        return 0.0
    size = min(count, 256 << 20)
    host, there = (
        torch.empty(size, dtype=torch.uint8, pin_memory=True),
        torch.empty(size, dtype=torch.uint8, device=device),
    )
    source, target = (host, there) if back else (there, host)
    target.copy_(source, non_blocking=True)
    _synchronize(device)
    begin = time.perf_counter()
    for _ in range(4):
        target.copy_(source, non_blocking=True)
    _synchronize(device)
    return (time.perf_counter() - begin) * count / (4 * size)


def _settle(device: torch.device) -> None:
    _synchronize(device)
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)


def _synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _held(device: torch.device) -> int:
    return torch.cuda.max_memory_allocated(device) if device.type == "cuda" else 0


def _name(device: str) -> str:
    return torch.cuda.get_device_name(device) if device.startswith("cuda") else device


if __name__ == "__main__":
    main()
