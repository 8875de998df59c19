"""What it costs to hand a device's memory over, and that it changes nothing.

    python bench/sleep/measure.py handover --gigabytes 20 --json handover20.json
    python bench/sleep/measure.py turns --trainer-gb 60 --generator-gb 60 --turns 5 --json turns.json  # a card of 80 GB
    python bench/sleep/measure.py cycles --cycles 100 --json cycles.json
    python bench/sleep/measure.py cycles --device cpu --cycles 5                                 # a try without a GPU

handover  A process holds so many GB of weights and state under a plan, sleeps and wakes three times; in between
          another process takes as many bytes as it has given back. The first sleep takes the host's memory, the others
          use it again. With it, the bandwidth of copies in the same run. Exit code 1 where a byte was lost.
turns     A trainer (under a plan) and a generator (under Auto; its weights are kept, its cache is dropped) alternately:
          the trainer trains and sleeps, the generator wakes, generates and sleeps, the trainer wakes. The host keeps
          three quarters of the trainer, whose gradients are freed then, and a quarter of the generator, page-locked.
          Exit code 1 where the generator's answers differ.
cycles    Training, sleep, another process that uses the memory, wake. Losses, and weights and state at the end, must
          be those of a run that never sleeps, to the last bit, and memory of the host and the device may not grow from
          the third cycle on. Exit code 1 where something is not so.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Optional

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from documents import write_json

ROOT = Path(__file__).resolve().parents[2]
GB = 10**9
_ROUNDS = 3
_MARGIN, _FACTOR = 0.05, 1.3  # of a hand-over: seconds, and times the copies
_SLACK = 16 << 20  # bytes: what an interpreter takes now and then
_DETERMINISTIC = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8", "OMP_NUM_THREADS": "1"}


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["handover", "turns", "cycles"])
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--width", type=int, help="of a layer (default: 8192, of cycles 4096; on a CPU: 256)")
    parser.add_argument("--gigabytes", type=float, default=20.0, metavar="GB", help="of a hand-over")
    parser.add_argument("--mode", default="Alloc", choices=["Alloc", "Auto"], help="of a hand-over")
    parser.add_argument("--trainer-gb", type=float, default=60.0, metavar="GB", help="weights, gradients, state")
    parser.add_argument("--generator-gb", type=float, default=60.0, metavar="GB", help="a quarter of it weights")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--steps", type=int, default=4, help="train N steps in a round")
    parser.add_argument("--tokens", type=int, default=256, help="generate N tokens in a round")
    parser.add_argument("--cycles", type=int, default=100)
    parser.add_argument("--layers", type=int, default=8, help="of cycles")
    return parser.parse_args()


class Worker:
    """A process of worker.py."""

    def __init__(self, role: str, device: str, *numbers: int, **environment: str) -> None:
        path = os.pathsep.join([str(ROOT / "patches"), os.environ.get("PYTHONPATH", "")])
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("worker.py")), role, device, *map(str, numbers)],
            env={**os.environ, "PYTHONPATH": path, "STALLOC_DEVICE": device, **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._ready = False

    def request(self, do: str, **details: Any) -> dict[str, Any]:
        """RuntimeError with the process's words where it could not."""
        if not self._ready:
            self._answer()
            self._ready = True
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": do, **details}) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):
                answer: dict[str, Any] = json.loads(line)
                if "error" in answer:
                    raise RuntimeError(answer["error"])
                return answer
        raise RuntimeError(f"{self._process.args} ended with {self._process.wait()}")

    def close(self) -> None:
        try:
            self._process.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()


def planned(role: str, device: str, numbers: list[int], order: dict[str, Any], directory: str) -> Worker:
    """Under the plan of a run that has been traced for so many iterations as the order says."""
    common = {"STALLOC_MODEL_INFO_PATH": directory, **_DETERMINISTIC}
    traced = Worker(role, device, *numbers, STALLOC_MODE="Trace", STALLOC_TRACE_FAST_MODE="1", **common)
    traced.request(**order)
    traced.close()
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "patches")}
    words = [sys.executable, "-m", "stalloc", "plan", directory]
    subprocess.run(words, env=environment, check=True, stdout=subprocess.DEVNULL)
    return Worker(role, device, *numbers, STALLOC_MODE="Alloc", STALLOC_STRICT="1", **common)


def handover(chosen: argparse.Namespace) -> tuple[dict[str, Any], bool]:
    size = int(chosen.gigabytes * GB) // 512 * 512
    occupant = Worker("occupant", chosen.device)
    with tempfile.TemporaryDirectory() as directory:
        if chosen.mode == "Alloc":
            holder = planned("holder", chosen.device, [size], {"do": "iterate", "count": 4}, directory)
        else:
            holder = Worker("holder", chosen.device, size, STALLOC_MODE="Auto", STALLOC_MODEL_INFO_PATH=directory)
        copies = holder.request("copies", size=min(size, GB))
        holder.request("iterate", count=3)
        rows = []
        for _ in range(_ROUNDS):
            slept = holder.request("sleep")
            got = int(slept["devices"][0]["given_back_bytes"] * 0.98)  # the context of the other one is larger by now
            occupant.request("take", size=got)
            occupant.request("give")
            rows.append({"sleep": slept, "wake": holder.request("wake"), "others_had_bytes": got})
        whole = holder.request("check")["whole"]
        holder.close()
    occupant.close()
    allowed = {way: _FACTOR * size / copies[way] + _MARGIN for way in ("to_host", "to_device")}
    sleep, wake = (min(row[what]["seconds"] for row in rows[first:]) for what, first in (("sleep", 1), ("wake", 0)))
    result = {
        **{"bytes": size, "mode": chosen.mode, "bandwidth": copies, "rounds": rows, "whole": whole},
        **{"first_sleep_seconds": rows[0]["sleep"]["seconds"], "sleep_seconds": sleep, "wake_seconds": wake},
        **{"allowed_sleep_seconds": allowed["to_host"], "allowed_wake_seconds": allowed["to_device"]},
        "within": sleep <= allowed["to_host"] and wake <= allowed["to_device"],
    }
    return result, whole


def one_round(trainer: Worker, generator: Worker, chosen: argparse.Namespace) -> dict[str, Any]:
    row: dict[str, Any] = {"train": trainer.request("train", steps=chosen.steps)["seconds"]}
    row["trainer_sleeps"] = trainer.request("sleep")
    row["generator_wakes"] = generator.request("wake")
    generated = generator.request("generate", tokens=chosen.tokens)
    row["generate"], row["sum"] = generated["seconds"], generated["sum"]
    row["generator_sleeps"] = generator.request("sleep")
    row["trainer_wakes"] = trainer.request("wake")
    hand_over = ("trainer_sleeps", "generator_wakes", "generator_sleeps", "trainer_wakes")
    row["hand_over_seconds"] = sum(row[name]["seconds"] for name in hand_over)
    row["hand_over_share"] = row["hand_over_seconds"] / (row["hand_over_seconds"] + row["train"] + row["generate"])
    return row


def turns(chosen: argparse.Namespace) -> tuple[dict[str, Any], bool]:
    device = chosen.device
    width = chosen.width or (256 if device == "cpu" else 8192)
    of_layer = 4 * width * width
    layers = max(1, int(chosen.trainer_gb * GB / 4 / of_layer))  # weights, gradients, two moments
    in_generator = max(1, int(chosen.generator_gb * GB / 4 / of_layer))
    cache = int(chosen.generator_gb * GB) - in_generator * of_layer
    with tempfile.TemporaryDirectory() as of_trainer, tempfile.TemporaryDirectory() as of_generator:
        trainer = planned("trainer", device, [width, layers], {"do": "train", "steps": 4}, of_trainer)
        trainer.request("train", steps=3)
        first = {"trainer": trainer.request("sleep")["seconds"]}  # it takes the host's memory, as the generator's does
        mode = {"STALLOC_MODE": "Auto", "STALLOC_MODEL_INFO_PATH": of_generator}
        generator = Worker("generator", device, width, in_generator, cache, **mode)
        generator.request("generate", tokens=2)
        first["generator"] = generator.request("sleep")["seconds"]
        trainer.request("wake")
        rows = [one_round(trainer, generator, chosen) for _ in range(chosen.turns)]
        trainer.close()
        generator.close()
    equal = len({row["sum"] for row in rows}) == 1
    sizes = {"trainer_bytes": 4 * layers * of_layer, "generator_bytes": in_generator * of_layer + cache}
    medians = {
        f"median_{what}": sorted(row[f"hand_over_{what}"] for row in rows)[len(rows) // 2]
        for what in ("seconds", "share")
    }
    return {**sizes, **medians, "answers_are_equal": equal, "first_sleep_seconds": first, "turns": rows}, equal


def train(trainer: Worker, cycles: int, occupant: Optional[Worker]) -> dict[str, Any]:
    """`occupant` takes what the trainer gives; without one it never sleeps."""
    rows = []
    for _ in range(cycles):
        trainer.request("train", steps=1)
        if occupant is None:
            continue
        slept = trainer.request("sleep")
        given = slept["devices"][0]["given_back_bytes"]
        occupant.request("take", size=int(given * 0.98))
        occupant.request("give")
        woken = trainer.request("wake")
        seconds = {"sleep_seconds": slept["seconds"], "wake_seconds": woken["seconds"]}
        rows.append({"given_back_bytes": given, **seconds, "asleep": slept["memory"], "awake": woken["memory"]})
    end = trainer.request("end")
    trainer.close()
    return {**end, "cycles": rows}


def growth(rows: list[dict[str, Any]], where: str, what: str) -> int:
    """Bytes, from the third cycle on."""
    figures = [row[where][what] for row in rows[2:]]
    return figures[-1] - figures[0] if figures else 0


def cycles(chosen: argparse.Namespace) -> tuple[dict[str, Any], bool]:
    numbers = [chosen.width or (256 if chosen.device == "cpu" else 4096), chosen.layers]
    with tempfile.TemporaryDirectory() as directory:
        never_sleeps = Worker("trainer", chosen.device, *numbers, **_DETERMINISTIC)
        occupant = Worker("occupant", chosen.device)
        sleeper = planned("trainer", chosen.device, numbers, {"do": "train", "steps": 4}, directory)
        plain = train(never_sleeps, chosen.cycles, None)
        slept = train(sleeper, chosen.cycles, occupant)
        occupant.close()
    rows = slept["cycles"]
    places = [(where, what) for where in ("asleep", "awake") for what in ("host", "device")]
    grown = {f"{where}_{what}": growth(rows, where, what) for where, what in places}
    result = {
        "cycles": chosen.cycles,
        "losses_are_equal": slept["losses"] == plain["losses"],
        "weights_are_equal": slept["digest"] == plain["digest"],
        "grown_bytes": grown,
        "grows": max(grown.values()) > _SLACK,
        "rows": rows,
    }
    return result, result["losses_are_equal"] and result["weights_are_equal"] and not result["grows"]


def main() -> int:
    chosen = parse_arguments()
    result, good = {"handover": handover, "turns": turns, "cycles": cycles}[chosen.what](chosen)
    result = {"what": chosen.what, "device": chosen.device, **result}
    print(json.dumps(result, indent=1))
    if chosen.json is not None:
        write_json(chosen.json, result)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
