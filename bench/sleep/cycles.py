"""Cycles of training, sleep, another process that uses the memory, and wake: nothing changes, nothing grows.

    python bench/sleep/cycles.py --cycles 100 --json cycles.json
    python bench/sleep/cycles.py --device cpu --cycles 5

Losses, and weights and state at the end, must be those of a run that never sleeps, to the last bit. Memory of the host
and the device is looked at in each cycle, asleep and awake: from the third on it may not grow. Exit code 1 where
something is not so.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any, Optional

from parts import Worker, plan, write

_SLACK = 16 << 20  # bytes: what an interpreter takes now and then


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--cycles", type=int, default=100)
    parser.add_argument("--width", type=int, help="of a layer (default: 4096; CPU: 256)")
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


def train(trainer: Worker, cycles: int, occupant: Optional[Worker]) -> dict[str, Any]:
    """`occupant` takes what the trainer gives; without one it never sleeps."""
    rows = []
    try:
        for _ in range(cycles):
            trainer.ask("train", steps=1)
            if occupant is None:
                continue
            slept = trainer.ask("sleep")
            given = slept["devices"][0]["given_back_bytes"]
            occupant.ask("take", size=int(given * 0.98))
            occupant.ask("give")
            woken = trainer.ask("wake")
            rows.append(
                {
                    "given_back_bytes": given,
                    "sleep_seconds": slept["seconds"],
                    "wake_seconds": woken["seconds"],
                    "asleep": slept["memory"],
                    "awake": woken["memory"],
                }
            )
        return {**trainer.ask("end"), "cycles": rows}
    finally:
        trainer.close()


def growth(rows: list[dict[str, Any]], where: str, what: str) -> int:
    """Bytes, from the third cycle on."""
    figures = [row[where][what] for row in rows[2:]]
    return figures[-1] - figures[0] if figures else 0


def main() -> int:
    arguments = parse_arguments()
    device = arguments.device
    width = arguments.width or (256 if device == "cpu" else 4096)
    words = [device, str(width), str(arguments.layers), "64"]
    deterministic = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8", "OMP_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory() as directory:
        own = {"STALLOC_MODEL_INFO_PATH": directory, "STALLOC_DEVICE": device, **deterministic}
        # Most of a short run is the starting of processes.
        traced = Worker("trainer.py", *words, STALLOC_MODE="Trace", STALLOC_TRACE_FAST_MODE="1", **own)
        never_sleeps = Worker("trainer.py", *words, **deterministic)
        occupant = Worker("occupant.py", device)
        traced.ask("train", steps=4)
        traced.close()
        plan(Path(directory))
        sleeper = Worker("trainer.py", *words, STALLOC_MODE="Alloc", STALLOC_STRICT="1", **own)
        plain = train(never_sleeps, arguments.cycles, None)
        slept = train(sleeper, arguments.cycles, occupant)
        occupant.close()
    rows = slept.pop("cycles")
    grown = {
        f"{where}_{what}": growth(rows, where, what) for where in ("asleep", "awake") for what in ("host", "device")
    }
    result = {
        "device": device,
        "cycles": arguments.cycles,
        "losses_are_equal": slept["losses"] == plain["losses"],
        "weights_are_equal": slept["digest"] == plain["digest"],
        "grown_bytes": grown,
        "grows": max(grown.values()) > _SLACK,
        "rows": rows,
    }
    write(arguments.json, result)
    return 0 if result["losses_are_equal"] and result["weights_are_equal"] and not result["grows"] else 1


if __name__ == "__main__":
    sys.exit(main())
