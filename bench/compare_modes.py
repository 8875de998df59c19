"""Runs one workload under each allocator, each in a fresh process; prints what it held, its speed and its losses.

    python bench/compare_modes.py --preset toy --iterations 20                 # CPU or GPU, whatever torch finds
    python bench/compare_modes.py --preset dense-1b --json results.json -- --seed 7

Modes: native, expandable (PyTorch's expandable_segments:True), trace-fast, trace-exact, alloc (planned from the fast
trace, else from the exact one). E is peak live bytes / peak held bytes; live bytes are those that stalloc counts (each
request rounded up to 512 B, from allocation to free). Arguments after `--` go to bench/train_gpt.py.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
MODES = ["native", "expandable", "trace-fast", "trace-exact", "alloc"]
GIB = float(1 << 30)
EXIT_OUT_OF_MEMORY = 3  # of train_gpt.py


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", default="toy", help="workload of bench/train_gpt.py")
    parser.add_argument("--iterations", type=int, default=30)
    parser.add_argument("--trace-iterations", type=int, default=4)
    parser.add_argument("--modes", nargs="+", choices=MODES, default=["native", "expandable", "trace-fast", "alloc"])
    parser.add_argument("--device", choices=["auto", "cuda", "cpu"], default="auto")
    parser.add_argument("--directory", type=Path, help="where traces and plans go (default: a temporary directory)")
    parser.add_argument("--json", type=Path, help="write all results here")
    parser.add_argument("--markdown", action="store_true", help="print the table as Markdown")
    parser.add_argument("--check", action="store_true", help="exit 1 unless losses are equal and the plan held")
    parser.add_argument("--min-efficiency", type=float, default=0.0, help="with --check: Alloc's least E, in percent")
    parser.add_argument("--min-hits", type=float, default=99.9, help="with --check: Alloc's least hit rate, percent")
    parser.add_argument("train", nargs="*", help="arguments for train_gpt.py, after --")
    return parser.parse_args()


class Comparison:
    """The runs of one workload; results by mode."""

    def __init__(self, arguments: argparse.Namespace, directory: Path) -> None:
        self.arguments = arguments
        self.directory = directory
        self.results: dict[str, dict[str, Any]] = {}
        self.plan: dict[str, Any] | None = None

    def environment(self, mode: str) -> dict[str, str]:
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("STALLOC_") or k == "STALLOC_LIB_PATH"}
        inherited["PYTHONUNBUFFERED"] = "1"
        for name in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"):
            inherited.pop(name, None)
        if mode == "expandable":
            inherited["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
        if mode.startswith("trace"):
            inherited |= {"STALLOC_MODE": "Trace", "STALLOC_TRACE_FAST_MODE": "1" if mode == "trace-fast" else "0"}
        if mode == "alloc":
            inherited["STALLOC_MODE"] = "Alloc"
        if "STALLOC_MODE" in inherited:
            inherited["STALLOC_MODEL_INFO_PATH"] = str(self.run_directory(mode))
        return inherited

    def run_directory(self, mode: str) -> Path:
        if mode == "alloc":
            mode = "trace-fast" if "trace-fast" in self.arguments.modes else "trace-exact"
        return self.directory / mode

    def command(self, mode: str, output: Path) -> list[str]:
        iterations = self.arguments.trace_iterations if mode.startswith("trace") else self.arguments.iterations
        launcher = ["-m", "stalloc", "run"] if mode in ("alloc", "trace-fast", "trace-exact") else []
        command = [sys.executable, *launcher, os.path.relpath(HERE / "train_gpt.py"), "--preset", self.arguments.preset]
        command += ["--iterations", str(iterations), "--device", self.arguments.device, "--json", str(output)]
        return command + self.arguments.train

    def run(self, mode: str) -> None:
        if mode == "alloc":
            self.make_plan()
        output = self.directory / f"{mode}.json"
        begin = time.perf_counter()
        completed = subprocess.run(self.command(mode, output), env=self.environment(mode), check=False)
        if completed.returncode not in (0, EXIT_OUT_OF_MEMORY):
            raise SystemExit(f"compare_modes: the {mode} run failed with exit code {completed.returncode}")
        result: dict[str, Any] = json.loads(output.read_text())
        result["wall_seconds"] = time.perf_counter() - begin
        summary = self.run_directory(mode) / "log_output" / "rank00000.summary.json"
        if mode in ("alloc", "trace-fast", "trace-exact") and "out_of_memory" not in result:
            result["summary"] = json.loads(summary.read_text())
            shutil.copy(summary, self.directory / f"{mode}.summary.json")
        self.results[mode] = result

    def make_plan(self) -> None:
        command = [sys.executable, "-m", "stalloc", "plan", str(self.run_directory("alloc")), "--json"]
        begin = time.perf_counter()
        environment = {k: v for k, v in os.environ.items() if k != "STALLOC_MODE"}
        completed = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=False)
        if completed.returncode != 0:
            raise SystemExit(f"compare_modes: planning failed with exit code {completed.returncode}")
        self.plan = json.loads(completed.stdout)
        self.plan["wall_seconds"] = time.perf_counter() - begin


def live_peak(results: dict[str, dict[str, Any]], mode: str) -> int | None:
    """Peak live bytes of the workload: a run's own where stalloc counted them, else those of Alloc or of the trace."""
    for source in (mode, "alloc", "trace-fast", "trace-exact"):
        if "summary" in results.get(source, {}):
            return int(results[source]["summary"]["peak_live_bytes"])
    return None


def row_of(results: dict[str, dict[str, Any]], mode: str) -> dict[str, Any]:
    """One line of the table; ratios are against native where it was run."""
    result = results[mode]
    if "out_of_memory" in result:
        return {"mode": mode, "out_of_memory": result["out_of_memory"]}
    summary = result.get("summary")
    held = summary["held_peak_bytes"] if summary else result["memory"]["held_peak"]
    live = live_peak(results, mode)
    native = results.get("native")
    if native is not None and "out_of_memory" in native:
        native = None
    row: dict[str, Any] = {
        "mode": mode,
        "live_bytes": live,
        "held_bytes": held,
        "efficiency": live / held if live and held else None,
        "step_seconds": result["step_seconds_median"],
        "step_ratio": result["step_seconds_median"] / native["step_seconds_median"] if native else None,
        "last_loss": result["losses"][-1],
    }
    if native:
        shared = min(len(native["losses_hex"]), len(result["losses_hex"]))
        row["losses_equal"] = native["losses_hex"][:shared] == result["losses_hex"][:shared]
        if len(native["losses_hex"]) == len(result["losses_hex"]):
            row["weights_equal"] = native["weights_sha256"] == result["weights_sha256"]
    if mode == "alloc" and summary:
        steady = summary["steady"]
        row["hit_rate"] = steady["hits"] / max(steady["requests"], 1)
        row["misses"] = summary["misses"]
    return row


def print_table(rows: list[dict[str, Any]], markdown: bool) -> None:
    header = ["mode", "live GiB", "held GiB", "E %", "step ms", "x native", "hits %", "losses = native", "last loss"]

    def cell(value: Any, scale: float, digits: int) -> str:
        return "-" if value is None else f"{value * scale:.{digits}f}"

    lines = [header]
    for row in rows:
        if "out_of_memory" in row:
            lines.append([row["mode"], "-", "out of memory", *["-"] * (len(header) - 3)])
            continue
        equal = row.get("losses_equal")
        lines.append(
            [
                row["mode"],
                cell(row["live_bytes"], 1 / GIB, 3),
                cell(row["held_bytes"], 1 / GIB, 3),
                cell(row["efficiency"], 100, 2),
                cell(row["step_seconds"], 1e3, 1),
                cell(row["step_ratio"], 1, 3),
                cell(row.get("hit_rate"), 100, 3),
                "-" if equal is None else ("yes" if equal else "NO"),
                f"{row['last_loss']:.6f}",
            ]
        )
    if markdown:
        lines.insert(1, ["---"] * len(header))
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    for line in lines:
        cells = [text.rjust(width) for text, width in zip(line, widths)]
        print("| " + " | ".join(cells) + " |" if markdown else "  ".join(cells))


def machine() -> dict[str, str]:
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "system": platform.platform(),
        "cpu_count": str(os.cpu_count()),
    }


def plan_failures(plan: dict[str, Any] | None) -> list[str]:
    """An arena of more than 1.01 x the lower bound of its packing is a planner gone wrong."""
    devices = [device for rank in (plan or {"ranks": []})["ranks"] for device in rank["report"]["devices"]]
    ratios = [float(device["plan"]["ratio"]) for device in devices]
    return [f"plan: the arena is {r:.4f} x its lower bound, expected at most 1.01" for r in ratios if r > 1.01]


def failures(rows: list[dict[str, Any]], arguments: argparse.Namespace) -> list[str]:
    found = []
    for row in rows:
        if "out_of_memory" in row:
            found.append(f"{row['mode']}: out of memory")
            continue
        if row.get("losses_equal") is False:
            found.append(f"{row['mode']}: losses differ from native's")
        if row.get("weights_equal") is False:
            found.append(f"{row['mode']}: weights differ from native's at the end")
        if row["mode"] == "alloc":
            if row["hit_rate"] * 100 < arguments.min_hits:
                found.append(f"alloc: steady hit rate {row['hit_rate']:.5%}, expected at least {arguments.min_hits} %")
            if row["efficiency"] is None or row["efficiency"] * 100 < arguments.min_efficiency:
                found.append(f"alloc: E {row['efficiency']}, expected at least {arguments.min_efficiency} %")
    return found


def main() -> int:
    arguments = parse_arguments()
    if arguments.directory:
        arguments.directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="stalloc-compare-") as temporary:
        comparison = Comparison(arguments, arguments.directory or Path(temporary))
        for mode in arguments.modes:
            print(f"== {mode}", file=sys.stderr, flush=True)
            comparison.run(mode)
    rows = [row_of(comparison.results, mode) for mode in arguments.modes]
    device = next((r["device"] for r in comparison.results.values() if "device" in r), "unknown device")
    print(f"{arguments.preset} on {device}, {arguments.iterations} iterations")
    print_table(rows, arguments.markdown)
    if arguments.json:
        document = {
            "command": [Path(sys.argv[0]).name, *sys.argv[1:]],
            "machine": machine(),
            "device": device,
            "rows": rows,
            "plan": comparison.plan,
            "results": comparison.results,
        }
        partial = arguments.json.with_suffix(".tmp")
        partial.write_text(json.dumps(document, indent=1))
        partial.replace(arguments.json)
    problems = failures(rows, arguments) + plan_failures(comparison.plan) if arguments.check else []
    for problem in problems:
        print(f"compare_modes: {problem}", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
