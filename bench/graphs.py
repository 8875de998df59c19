"""Runs a program with CUDA graphs under each allocator; prints what it held, and what captures and replays took.

    python bench/graphs.py --json results.json -- train.py --steps 8

Modes: native, expandable (PyTorch's expandable_segments:True), alloc (planned from a run that is traced whole, so that
the plan knows what is eager before, between and after the graphs). E is peak live bytes / peak held bytes by PyTorch's
own statistics. Replays are timed on the device by events, captures on the host from their begin to their end, less the
first, in which libraries are loaded. What the program prints last is compared: a line of JSON with its losses.
"""

from __future__ import annotations

import argparse
import json
import os
import runpy
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

MODES = ["native", "expandable", "alloc"]


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--modes", nargs="+", choices=MODES, default=MODES)
    parser.add_argument("--json", type=Path, help="write the results here")
    parser.add_argument("--within", type=Path, help=argparse.SUPPRESS)  # a child's result
    parser.add_argument("program", nargs="+", help="a Python program and its arguments, after --")
    return parser.parse_args()


def run_here(program: list[str], result: Path) -> None:
    """The program in this process, its graphs timed."""
    import torch

    captures: list[float] = []
    replays: list[tuple[Any, Any]] = []
    begun: list[float] = []
    graph = torch.cuda.CUDAGraph
    capture_begin, capture_end, replay = graph.capture_begin, graph.capture_end, graph.replay

    def timed_begin(self: Any, *args: Any, **kwargs: Any) -> None:
        begun.append(time.perf_counter())
        capture_begin(self, *args, **kwargs)

    def timed_end(self: Any) -> None:
        capture_end(self)
        captures.append(1e3 * (time.perf_counter() - begun.pop()))

    def timed_replay(self: Any) -> None:
        events = (torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True))
        events[0].record()
        replay(self)
        events[1].record()
        replays.append(events)

    graph.capture_begin, graph.capture_end, graph.replay = timed_begin, timed_end, timed_replay
    sys.argv = program
    runpy.run_path(program[0], run_name="__main__")
    torch.cuda.synchronize()
    stats = torch.cuda.memory_stats()
    live, held = stats["allocated_bytes.all.peak"], stats["reserved_bytes.all.peak"]
    milliseconds = [begin.elapsed_time(end) for begin, end in replays]
    told = {"live_bytes": live, "held_bytes": held, "efficiency": live / held, "captures": len(captures)}
    told |= {"replays": len(replays), "capture_ms": captures[1:]}
    told["replay_ms_median"] = statistics.median(milliseconds) if milliseconds else None
    result.write_text(json.dumps(told))


def environment(mode: str, directory: Path) -> dict[str, str]:
    settings = {
        key: value for key, value in os.environ.items() if key not in ("STALLOC_MODE", "PYTORCH_CUDA_ALLOC_CONF")
    }
    if mode == "expandable":
        settings["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
    if mode in ("trace", "alloc"):
        settings |= {"STALLOC_MODE": mode.capitalize(), "STALLOC_MODEL_INFO_PATH": str(directory)}
        settings["STALLOC_TRACE_FAST_MODE"] = "1"
    return settings


def run(mode: str, program: list[str], directory: Path) -> dict[str, Any]:
    launcher = ["-m", "stalloc", "run"] if mode in ("trace", "alloc") else []
    result = directory / f"{mode}.json"
    command = [sys.executable, *launcher, __file__, "--within", str(result), "--", *program]
    done = subprocess.run(command, env=environment(mode, directory), stdout=subprocess.PIPE, text=True, check=True)
    told: dict[str, Any] = json.loads(result.read_text())
    told["printed"] = json.loads(done.stdout.strip().splitlines()[-1])
    return told


def main() -> None:
    arguments = parse_arguments()
    if arguments.within is not None:
        run_here(arguments.program, arguments.within)
        return
    results: dict[str, Any] = {"program": arguments.program, "modes": {}}
    with tempfile.TemporaryDirectory() as temporary:
        directory = Path(temporary)
        for mode in arguments.modes:
            if mode == "alloc":
                run("trace", arguments.program, directory)
                planning = [sys.executable, "-m", "stalloc", "plan", str(directory)]
                subprocess.run(planning, env=environment("native", directory), stdout=subprocess.DEVNULL, check=True)
            told = results["modes"][mode] = run(mode, arguments.program, directory)
            losses = [each["printed"]["losses"] for each in results["modes"].values()]
            told["losses_equal"] = all(other == losses[0] for other in losses)
            gib = f"{told['live_bytes'] / 2**30:.2f} of {told['held_bytes'] / 2**30:.2f} GiB"
            times = f"capture {sum(told['capture_ms']):.1f} ms, replay {told['replay_ms_median'] or 0:.3f} ms"
            equal = "losses equal" if told["losses_equal"] else "LOSSES DIFFER"
            print(f"{mode:10} E {100 * told['efficiency']:.2f} % ({gib}), {times}, {equal}", flush=True)
            if arguments.json is not None:
                arguments.json.write_text(json.dumps(results))


if __name__ == "__main__":
    main()
