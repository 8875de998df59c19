"""train.py's loop, which sleeps after every iteration; or says once that it trains, and takes orders. Writes JSON."""

from __future__ import annotations

import argparse
import hashlib
import json
import os
from pathlib import Path
from typing import Any

import torch
import train

import stalloc


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--iterations", type=int, default=8)
    parser.add_argument("--sleep-from", type=int, help="sleeps and wakes after each iteration from this one on")
    parser.add_argument("--drop", action="store_true", help="a cache of 1 MiB is dropped by each sleep")
    parser.add_argument("--ready", type=Path, help="written once the loop runs; has the process's number")
    parser.add_argument("--until", type=Path, help="goes on until this file is there")
    parser.add_argument("--json", type=Path, required=True)
    return parser.parse_args()


def loop_arguments() -> argparse.Namespace:
    return argparse.Namespace(
        marks="full", recompute=False, rows=4, rows_from=None, extra_from=None, workers="none", fence=True
    )


def resident_bytes() -> int:
    """Of the shared memory that arenas are made of on the CPU."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssShmem"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("the system does not tell")


class Sleeper:
    """Sleeps, looks what it did, wakes."""

    def __init__(self, drop: bool) -> None:
        self.rows: list[dict[str, Any]] = []
        self.cache = None
        if drop:
            with stalloc.region("cache", keep=False):
                self.cache = torch.full((1 << 18,), 3.0)

    def __call__(self) -> None:
        slept = stalloc.sleep()
        resident = resident_bytes()
        woken = stalloc.wake()
        self.rows.append({"slept": slept.to_dict(), "resident_bytes": resident, "woken": woken.to_dict()})
        if self.cache is not None:
            self.rows[-1]["cache_is_nan"] = bool(self.cache.isnan().all())
            self.cache.fill_(3.0)


def main() -> None:
    arguments = parse_arguments()
    loop = train.Loop(loop_arguments(), stalloc)
    sleeper = Sleeper(arguments.drop) if arguments.sleep_from is not None else None
    losses = []
    number = 0
    while number < arguments.iterations or (arguments.until is not None and not arguments.until.exists()):
        losses.append(loop.iteration(number).hex())
        if sleeper is not None and number >= arguments.sleep_from:
            sleeper()
        if arguments.ready is not None and number == 2:
            arguments.ready.with_suffix(".part").write_text(str(os.getpid()))
            arguments.ready.with_suffix(".part").rename(arguments.ready)
        number += 1
    digest = hashlib.sha256()
    for parameter in loop.model.parameters():
        digest.update(parameter.detach().numpy().tobytes())
    result = {
        "losses": losses,
        "weights": digest.hexdigest(),
        "sleeps": sleeper.rows if sleeper is not None else [],
        "figures": stalloc.stats(),
    }
    arguments.json.write_text(json.dumps(result))


if __name__ == "__main__":
    main()
