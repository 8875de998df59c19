"""How long it takes to give a device's memory away and to have it again, beside the bandwidth of the same run.

    python bench/sleep/handover.py --gigabytes 20 --json handover20.json
    python bench/sleep/handover.py --device cpu --gigabytes 0.05        # a try without a GPU

A process holds so many GB of weights and state under a plan, sleeps and wakes three times; in between another process
takes as many bytes as it has given back. The first sleep takes the host's memory, the others use it again. Beside it,
with the same tensors: torch_memory_saver, where it can be imported, and module.to("cpu") with the optimizer's state.
Exit code 1 where a byte was lost, or the other process did not get the memory.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
import tempfile
from pathlib import Path
from typing import Any

from parts import GB, Worker, plan, write

_ROUNDS = 3
_MARGIN, _FACTOR = 0.05, 1.3  # seconds, and times the copies


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gigabytes", type=float, nargs="+", default=[20.0], metavar="GB")
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--mode", default="Alloc", choices=["Alloc", "Auto"], help="of the process that sleeps")
    parser.add_argument("--alone", action="store_true", help="without the others beside it")
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


def rounds_of(holder: Worker, occupant: Worker, taken: int) -> list[dict[str, Any]]:
    rows = []
    for _ in range(_ROUNDS):
        given = holder.ask("give")
        got = taken if "devices" not in given else given["devices"][0]["given_back_bytes"]
        occupant.ask("take", size=int(got * 0.98))  # the context of the other one is larger by now
        occupant.ask("give")
        had = holder.ask("take")
        rows.append({"sleep": given, "wake": had, "others_had_bytes": int(got * 0.98)})
    return rows


def of_stalloc(arguments: argparse.Namespace, size: int, occupant: Worker) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as directory:
        words = ("holder.py", arguments.device, str(size), "stalloc")
        common = {"STALLOC_MODEL_INFO_PATH": directory, "STALLOC_DEVICE": arguments.device, "STALLOC_STRICT": "1"}
        if arguments.mode == "Alloc":
            traced = Worker(*words, STALLOC_MODE="Trace", STALLOC_TRACE_FAST_MODE="1", **common)
            traced.ask("iterate", count=4)
            traced.close()
            plan(Path(directory))
        holder = Worker(*words, STALLOC_MODE=arguments.mode, **common)
        try:
            copies = holder.ask("copies", size=min(size, GB))
            holder.ask("iterate", count=3)
            rows = rounds_of(holder, occupant, size)
            whole = holder.ask("check")["whole"]
        finally:
            holder.close()
    return {"bandwidth": copies, "rounds": rows, "whole": whole, **judged(size, copies, rows)}


def judged(size: int, copies: dict[str, float], rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The best of the sleeps whose host memory was there, against the copies alone."""
    sleep = min(row["sleep"]["seconds"] for row in rows[1:])
    wake = min(row["wake"]["seconds"] for row in rows)
    allowed = {way: _FACTOR * size / copies[way] + _MARGIN for way in ("to_host", "to_device")}
    return {
        "sleep_seconds": sleep,
        "wake_seconds": wake,
        "first_sleep_seconds": rows[0]["sleep"]["seconds"],
        "allowed_sleep_seconds": allowed["to_host"],
        "allowed_wake_seconds": allowed["to_device"],
        "within": sleep <= allowed["to_host"] and wake <= allowed["to_device"],
    }


def of_other(arguments: argparse.Namespace, size: int, how: str, occupant: Worker) -> dict[str, Any]:
    holder = Worker("holder.py", arguments.device, str(size), how)
    try:
        rows = rounds_of(holder, occupant, size)
        whole = holder.ask("check")["whole"]
    finally:
        holder.close()
    return {
        "sleep_seconds": min(row["sleep"]["seconds"] for row in rows),
        "wake_seconds": min(row["wake"]["seconds"] for row in rows),
        "rounds": rows,
        "whole": whole,
    }


def others(arguments: argparse.Namespace) -> list[str]:
    if arguments.alone:
        return []
    has_saver = arguments.device != "cpu" and importlib.util.find_spec("torch_memory_saver") is not None
    return (["memory_saver"] if has_saver else []) + ["to_cpu"]


def main() -> int:
    arguments = parse_arguments()
    result: dict[str, Any] = {"device": arguments.device, "mode": arguments.mode, "sizes": []}
    occupant = Worker("occupant.py", arguments.device)
    try:
        for gigabytes in arguments.gigabytes:
            size = int(gigabytes * GB) // 512 * 512
            row: dict[str, Any] = {"bytes": size, "stalloc": of_stalloc(arguments, size, occupant)}
            for how in others(arguments):
                try:
                    row[how] = of_other(arguments, size, how, occupant)
                except RuntimeError as error:
                    row[how] = {"error": str(error)}
            result["sizes"].append(row)
    finally:
        occupant.close()
    write(arguments.json, result)
    return 0 if all(row["stalloc"]["whole"] for row in result["sizes"]) else 1


if __name__ == "__main__":
    sys.exit(main())
