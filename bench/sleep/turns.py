"""A trainer and a generator in turns on one device, each of which needs most of it: what the hand-over costs a step.

    python bench/sleep/turns.py --trainer-gb 60 --generator-gb 60 --turns 5 --json turns.json    # a card of 80 GB
    python bench/sleep/turns.py --device cpu --trainer-gb 0.1 --generator-gb 0.1 --turns 2

A turn: the trainer trains and sleeps, the generator wakes, generates and sleeps, the trainer wakes. The trainer runs
under a plan, the generator under Auto; its weights are kept, its cache is dropped. Exit code 1 where the generator's
answers differ from turn to turn, although its weights do not.

The host keeps three quarters of the trainer (its gradients are freed before it sleeps) and a quarter of the generator,
page-locked: 60 GB for 60 and 60. AdamW's step needs another quarter of the trainer on the device for a moment.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from parts import GB, Worker, available_host_bytes, plan, write


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--trainer-gb", type=float, default=60.0, metavar="GB", help="weights, gradients, state")
    parser.add_argument("--generator-gb", type=float, default=60.0, metavar="GB", help="a quarter of it weights")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--steps", type=int, default=4, help="of training, in a turn")
    parser.add_argument("--tokens", type=int, default=256, help="generated in a turn")
    parser.add_argument("--width", type=int, help="of a layer (default: 8192; CPU: 512)")
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


def start_trainer(words: list[str], device: str, directory: str) -> Worker:
    common = {"STALLOC_MODEL_INFO_PATH": directory, "STALLOC_DEVICE": device}
    traced = Worker("trainer.py", *words, STALLOC_MODE="Trace", STALLOC_TRACE_FAST_MODE="1", **common)
    traced.ask("train", steps=4)
    traced.close()
    plan(Path(directory))
    return Worker("trainer.py", *words, STALLOC_MODE="Alloc", STALLOC_STRICT="1", **common)


def turn(trainer: Worker, generator: Worker, arguments: argparse.Namespace) -> dict[str, Any]:
    row: dict[str, Any] = {"train": trainer.ask("train", steps=arguments.steps)["seconds"]}
    row["trainer_sleeps"] = trainer.ask("sleep")
    row["generator_wakes"] = generator.ask("wake")
    generated = generator.ask("generate", tokens=arguments.tokens)
    row["generate"], row["sum"] = generated["seconds"], generated["sum"]
    row["generator_sleeps"] = generator.ask("sleep")
    row["trainer_wakes"] = trainer.ask("wake")
    hand_over = ("trainer_sleeps", "generator_wakes", "generator_sleeps", "trainer_wakes")
    row["hand_over_seconds"] = sum(row[name]["seconds"] for name in hand_over)
    row["hand_over_share"] = row["hand_over_seconds"] / (row["hand_over_seconds"] + row["train"] + row["generate"])
    return row


def check_host(arguments: argparse.Namespace) -> None:
    """Ends the program where the host cannot keep both."""
    needed = int((0.75 * arguments.trainer_gb + 0.25 * arguments.generator_gb) * GB)
    there = available_host_bytes()
    if needed > 0.9 * there:
        sys.exit(f"turns.py: the host keeps {needed / GB:.1f} GB page-locked, and has {there / GB:.1f} GB available")


def main() -> int:
    begin = time.perf_counter()
    arguments = parse_arguments()
    check_host(arguments)
    width = arguments.width or (512 if arguments.device == "cpu" else 8192)
    of_layer = 4 * width * width
    layers = max(1, int(arguments.trainer_gb * GB / 4 / of_layer))  # weights, gradients, two moments
    in_generator = max(1, int(arguments.generator_gb * GB / 4 / of_layer))
    cache = int(arguments.generator_gb * GB) - in_generator * of_layer
    with tempfile.TemporaryDirectory() as of_trainer, tempfile.TemporaryDirectory() as of_generator:
        device = arguments.device
        trainer = start_trainer([device, str(width), str(layers), "64"], device, of_trainer)
        trainer.ask("train", steps=3)
        first = {"trainer": trainer.ask("sleep")["seconds"]}  # it takes the host's memory, as the generator's does
        generator = Worker(
            "generator.py",
            *(device, str(width), str(in_generator), str(cache)),
            STALLOC_MODE="Auto",
            STALLOC_MODEL_INFO_PATH=of_generator,
            STALLOC_DEVICE=device,
        )
        generator.ask("generate", tokens=2)
        first["generator"] = generator.ask("sleep")["seconds"]
        trainer.ask("wake")
        rows = [turn(trainer, generator, arguments) for _ in range(arguments.turns)]
        trainer.close()
        generator.close()
    sums = {row["sum"] for row in rows}
    median = sorted(row["hand_over_seconds"] for row in rows)[len(rows) // 2]
    write(
        arguments.json,
        {
            "device": device,
            "trainer_bytes": 4 * layers * of_layer,
            "generator_bytes": in_generator * of_layer + cache,
            "median_hand_over_seconds": median,
            "median_share": sorted(row["hand_over_share"] for row in rows)[len(rows) // 2],
            "answers_are_equal": len(sums) == 1,
            "first_sleep_seconds": first,
            "wall_seconds": time.perf_counter() - begin,
            "turns": rows,
        },
    )
    return 0 if len(sums) == 1 else 1


if __name__ == "__main__":
    sys.exit(main())
