"""The peak that is predicted of a program with parts of its layers recomputed, and the one that comes: both on fake
tensors, so without a GPU (`stalloc run --fake`). Bytes, live.

    python bench/worth/peaks.py lora --micro-batch 2 --recompute 'blocks.*.mlp' 'blocks.1?.attention'
    python bench/worth/peaks.py experts --micro-batch 48 --recompute 'blocks.*.attention' --assume nonzero=1/16

Patterns are those of file names, and of paths of modules. What --directory has is not traced again.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from documents import write_json
from kinds import KINDS

from stalloc.core.module_paths import CHOICE_VERSION
from stalloc.tools.fitting.replayed import Change, Planner, TracedRun

WORTH = Path(__file__).resolve().parent


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", choices=[name for name, kind in KINDS.items() if kind.ranks == 1])
    parser.add_argument("--micro-batch", type=int, required=True, help="of the run that is predicted")
    parser.add_argument("--recompute", nargs="+", required=True, metavar="PATTERN", help="of paths of modules")
    parser.add_argument("--size", choices=["real", "toy"], default="real")
    parser.add_argument("--assume", help="of values that a fake run does not have: as of stalloc run")
    parser.add_argument("--directory", type=Path, default=Path("build/peaks"), help="for traces (%(default)s)")
    parser.add_argument("--json", type=Path, help="write the result there, too")
    return parser.parse_args()


class Fake:
    """Traces a program on fake tensors."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self._arguments = arguments
        self._directory: Path = arguments.directory.absolute()
        self._directory.mkdir(parents=True, exist_ok=True)

    def traced(self, name: str, words: list[str]) -> Path:
        """The trace. Its request is stored with it: another request is traced anew."""
        arguments, directory = self._arguments, self._directory / name
        requested = [arguments.program, "--size", arguments.size, *words, "--device", "cuda"]
        trace, stored = directory / "trace" / "rank00000.trace", directory / "requested.json"
        if stored.is_file() and json.loads(stored.read_text()) == [requested, arguments.assume]:
            return trace
        how = ["--fake", *(["--assume", arguments.assume] if arguments.assume else []), "--dir", str(directory)]
        command = [sys.executable, "-m", "stalloc", "run", *how, str(WORTH / "train.py"), *requested]
        environment = {**os.environ, "STALLOC_TRACE_MODULES": "1"}
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
        if done.returncode:
            raise SystemExit(f"{name}: {done.stderr.strip() or done.stdout.strip()}")
        write_json(stored, [requested, arguments.assume])
        return trace


def peak_of(planner: Planner) -> dict[str, Any]:
    """Of the device that holds most: its number, peak and layers."""
    return max(planner.traced()["devices"], key=lambda device: int(device["peak"]))


def compare(arguments: argparse.Namespace) -> dict[str, Any]:
    fake, kind = Fake(arguments), KINDS[arguments.program]
    prefix = f"{arguments.program}-{arguments.size}"
    made: list[Path] = []
    for which in (kind.traced, kind.beside):
        made.append(fake.traced(f"{prefix}-{len(made)}", [*which.words(), "--steps", "3"]))
    tokens = [_tokens(TracedRun(trace)) for trace in made]
    with Planner(TracedRun(made[0], made[1], tokens[1] / tokens[0])) as planner:
        return _compared(arguments, fake, prefix, planner, tokens[0])


def _compared(arguments: argparse.Namespace, fake: Fake, prefix: str, planner: Planner, tokens: int) -> dict[str, Any]:
    """`tokens`: of the largest traced micro-batch."""
    device = peak_of(planner)
    layers = [layer["name"] for layer in device["layers"]]
    chosen = [name for name in layers if any(fnmatch.fnmatch(_path(name), each) for each in arguments.recompute)]
    if not chosen:
        raise SystemExit(f"expected modules like {arguments.recompute[0]}, found for example {', '.join(layers[:3])}")
    fit = arguments.directory / f"{prefix}.json"
    change = {"recompute": [_path(name) for name in chosen], "offload": [], "offload_state": False}
    write_json(fit, {"version": CHOICE_VERSION, "chosen": {"micro_batch": arguments.micro_batch, **change}})
    digest = re.sub(r"[^\w]+", "_", "-".join(arguments.recompute))
    words = ["--micro-batch", str(arguments.micro_batch), "--steps", "2", "--fit", str(fit.absolute())]
    came = TracedRun(fake.traced(f"{prefix}-{arguments.micro_batch}-{digest}", words))
    scale = _tokens(came) / tokens
    predicted = planner.outcome(Change(scale, tuple(chosen)), device["device"], plans=False).live
    with Planner(came) as again:
        live = peak_of(again)["peak"]
    return {
        "program": arguments.program,
        "micro_batch": arguments.micro_batch,
        "recompute": arguments.recompute,
        "modules": len(chosen),
        "predicted_live_bytes": predicted,
        "live_bytes": live,
        "off": predicted / live - 1,
    }


def _path(layer: str) -> str:
    """Without the model's class."""
    return layer.partition(".")[2]


def _tokens(run: TracedRun) -> int:
    most = run.most_tokens()
    assert most is not None, "programs report their tokens"
    return most


def main() -> int:
    arguments = parse_arguments()
    result = compare(arguments)
    if arguments.json is not None:
        write_json(arguments.json, result)
    print(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
