"""Runs any training program under each allocator; prints what it held, and what graphs and steps took.

    python bench/programs.py --json results.json -- train.py --steps 8
    python bench/programs.py --ranks 2 --modes native expandable auto auto-again -- train_fsdp.py   # with torchrun

Modes: native, expandable (PyTorch's expandable_segments:True), alloc (planned from a run that is traced whole, or with
the arguments of --trace-arguments behind its own), auto (one start that traces, plans and switches by itself),
auto-again (the next start of the same). E is peak live bytes / peak held bytes by PyTorch's own statistics; of auto
that since its plan, by stalloc's, is told as well. The program prints a line of JSON a rank, which may follow the word
RESULT: its `losses`, which are compared, `weights` (a digest) likewise where it has one, `ms` of its steps. Replays of
CUDA graphs are timed on the device by events, captures on the host from their begin to their end, less the first, in
which libraries are loaded.
"""

from __future__ import annotations

import argparse
import json
import os
import runpy
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from starts import await_planners

AUTO = ("auto", "auto-again")
MODES = ["native", "expandable", "alloc", *AUTO]
DEFAULT_MODES = ["native", "expandable", "alloc"]
COMPARED = ("losses", "weights")
GIB = 2**30


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--modes", nargs="+", choices=MODES, default=DEFAULT_MODES)
    parser.add_argument("--json", type=Path, help="write the results here, anew after each mode")
    parser.add_argument("--ranks", type=int, default=1, help="processes, one a GPU (default: 1, without torchrun)")
    parser.add_argument("--port", type=int, default=29611, help="of torchrun, where several run beside each other")
    parser.add_argument("--trace-arguments", type=shlex.split, default=[], help="for the traced run, as one word")
    parser.add_argument("--within", type=Path, help=argparse.SUPPRESS)  # where a child's ranks write
    parser.add_argument("program", nargs="+", help="a Python program and its arguments, after --")
    return parser.parse_args()


class GraphTimes:
    """Captures and replays of this process, from the moment this is made."""

    def __init__(self) -> None:
        import torch

        self.capture_ms: list[float] = []
        self._replays: list[tuple[Any, Any]] = []
        begun: list[float] = []
        graph = torch.cuda.CUDAGraph
        capture_begin, capture_end, replay = graph.capture_begin, graph.capture_end, graph.replay

        def timed_begin(graph: Any, *args: Any, **kwargs: Any) -> None:
            begun.append(time.perf_counter())
            capture_begin(graph, *args, **kwargs)

        def timed_end(graph: Any) -> None:
            capture_end(graph)
            self.capture_ms.append(1e3 * (time.perf_counter() - begun.pop()))

        def timed_replay(graph: Any) -> None:
            events = (torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True))
            events[0].record()
            replay(graph)
            events[1].record()
            self._replays.append(events)

        graph.capture_begin, graph.capture_end, graph.replay = timed_begin, timed_end, timed_replay

    def told(self) -> dict[str, Any]:
        """The device is done with all replays."""
        replays = [begin.elapsed_time(end) for begin, end in self._replays]
        return {
            "captures": len(self.capture_ms),
            "capture_ms": self.capture_ms[1:],
            "replays": len(replays),
            "replay_ms_median": statistics.median(replays) if replays else None,
        }


def run_here(program: list[str], results: Path) -> None:
    """The program in this process."""
    import torch

    times = GraphTimes()
    sys.argv = program
    sys.path[0] = str(Path(program[0]).parent)
    runpy.run_path(program[0], run_name="__main__")
    torch.cuda.synchronize()
    stats = torch.cuda.memory_stats()
    live, held = stats["allocated_bytes.all.peak"], stats["reserved_bytes.all.peak"]
    told = {"live_bytes": live, "held_bytes": held, "efficiency": live / held, **times.told()}
    (results / f"rank{int(os.environ.get('RANK', '0')):05}.json").write_text(json.dumps(told))


def stalloc_directory(mode: str, directory: Path) -> Path:
    return directory / ("auto" if mode in AUTO else "plan")


def environment(mode: str, directory: Path) -> dict[str, str]:
    left_out = ("STALLOC_MODE", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")
    settings = {key: value for key, value in os.environ.items() if key not in left_out}
    if mode == "expandable":
        settings["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
    if mode in ("trace", "alloc", *AUTO):
        settings["STALLOC_MODE"] = "Auto" if mode in AUTO else mode.capitalize()
        settings["STALLOC_MODEL_INFO_PATH"] = str(stalloc_directory(mode, directory))
        settings["STALLOC_TRACE_FAST_MODE"] = "1"
    return settings


def printed_of(output: str) -> list[dict[str, Any]]:
    """The lines of JSON with losses, one a rank, in the order of ranks where they tell it."""
    found = []
    for line in output.splitlines():
        text = line.strip().removeprefix("RESULT ")
        if text.startswith("{") and '"losses"' in text:
            found.append(json.loads(text))
    return sorted(found, key=lambda printed: int(printed.get("rank", 0)))


def command_of(mode: str, program: list[str], arguments: argparse.Namespace, results: Path) -> list[str]:
    command = [sys.executable]
    if arguments.ranks > 1:
        place = [f"--nproc-per-node={arguments.ranks}", f"--master-port={arguments.port}"]
        command = [sys.executable, "-m", "torch.distributed.run", *place]
    if mode in ("trace", "alloc", *AUTO):
        command += ["-m", "stalloc", "run"]
    return [*command, __file__, "--within", str(results), "--", *program]


def since_plan(mode: str, directory: Path, rank: int) -> dict[str, Any]:
    """What an auto run says of itself."""
    log = stalloc_directory(mode, directory) / "log_output"
    summary = json.loads((log / f"rank{rank:05}.summary.json").read_text())
    stages = json.loads((log / f"rank{rank:05}.auto.json").read_text())["stages"]
    return {"since_plan": summary.get("since_plan"), "stages": stages, "hits": summary["steady"]}


def run(mode: str, arguments: argparse.Namespace, directory: Path) -> list[dict[str, Any]]:
    """Of each rank."""
    results = directory / mode
    results.mkdir()
    program = arguments.program + (arguments.trace_arguments if mode == "trace" else [])
    command = command_of(mode, program, arguments, results)
    begin = time.perf_counter()
    done = subprocess.run(command, env=environment(mode, directory), stdout=subprocess.PIPE, text=True, check=True)
    seconds = time.perf_counter() - begin
    if mode in AUTO:
        await_planners(stalloc_directory(mode, directory))
    told = [json.loads(path.read_text()) for path in sorted(results.glob("rank*.json"))]
    printed = printed_of(done.stdout)
    for rank, of_rank in enumerate(told):
        of_rank.update({"wall_seconds": seconds, "printed": printed[rank] if rank < len(printed) else {}})
        if mode in AUTO:
            of_rank.update(since_plan(mode, directory, rank))
    return told


def compare(told: list[dict[str, Any]], native: list[dict[str, Any]]) -> None:
    """Writes into each rank's result which of what it computed equals that of the first mode."""
    for of_rank, first in zip(told, native):
        for name in COMPARED:
            if name in first["printed"]:
                of_rank[f"{name}_equal"] = of_rank["printed"].get(name) == first["printed"][name]


def describe(mode: str, rank: int, told: dict[str, Any]) -> str:
    parts = [
        f"{mode:10} rank {rank} E {100 * told['efficiency']:.2f} % "
        f"({told['live_bytes'] / GIB:.2f} of {told['held_bytes'] / GIB:.2f} GiB)"
    ]
    if since := told.get("since_plan"):
        parts.append(f"since its plan {100 * since['peak_live_bytes'] / since['held_peak_bytes']:.2f} %")
    if told["captures"]:
        parts.append(f"capture {sum(told['capture_ms']):.1f} ms, replay {told['replay_ms_median'] or 0:.3f} ms")
    if steps := told["printed"].get("ms"):
        parts.append(f"step {statistics.median(steps):.1f} ms")
    equal = [name for name in COMPARED if told.get(f"{name}_equal")]
    differ = [name.upper() for name in COMPARED if told.get(f"{name}_equal") is False]
    parts += [f"{' and '.join(equal)} equal"] if equal else []
    parts += [f"{' AND '.join(differ)} DIFFER"] if differ else []
    return ", ".join(parts)


def main() -> None:
    arguments = parse_arguments()
    if arguments.within is not None:
        run_here(arguments.program, arguments.within)
        return
    results: dict[str, Any] = {"program": arguments.program, "ranks": arguments.ranks, "modes": {}}
    with tempfile.TemporaryDirectory(prefix="stalloc-programs-") as temporary:
        directory = Path(temporary)
        for mode in arguments.modes:
            if mode == "alloc":
                run("trace", arguments, directory)
                planning = [sys.executable, "-m", "stalloc", "plan", str(stalloc_directory("alloc", directory))]
                subprocess.run(planning, env=environment("native", directory), stdout=subprocess.DEVNULL, check=True)
            told = run(mode, arguments, directory)
            results["modes"][mode] = told
            compare(told, next(iter(results["modes"].values())))
            for rank, of_rank in enumerate(told):
                print(describe(mode, rank, of_rank), flush=True)
            if arguments.json is not None:
                partial = arguments.json.with_suffix(".tmp")
                partial.write_text(json.dumps(results))
                partial.replace(arguments.json)


if __name__ == "__main__":
    main()
