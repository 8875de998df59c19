"""Runs one workload under each allocator, each in a fresh process; prints what it held, its speed and its losses.

    python bench/compare_modes.py --preset toy --iterations 20                 # CPU or GPU, whatever torch finds
    python bench/compare_modes.py --preset dense-1b --json results.json -- --seed 7

Modes: native, expandable (PyTorch's expandable_segments:True), trace-fast, trace-exact, alloc (planned from the fast
trace, else from the exact one), auto (a start that traces, plans and switches by itself; its figures are those from
then on), auto-again (the next start of the same). E is peak live bytes / peak held bytes; live bytes are those that
stalloc counts (each request rounded up to 512 B, from allocation to free). E and step time of every iteration: see
bench/iterations.py. The JSON is written anew after each mode, so that what is there when time runs out is not lost.
Arguments after `--` go to bench/train_gpt.py.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.util
import json
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from iterations import (
    efficiency_failures,
    iterations_of,
    least_efficiency,
    settled_ratio,
    slowest_step,
    slowest_window,
    time_failures,
)
from starts import await_planners

HERE = Path(__file__).resolve().parent
AUTO = ("auto", "auto-again")
UNDER_STALLOC = ("alloc", "trace-fast", "trace-exact", *AUTO)
MODES = ["native", "expandable", *UNDER_STALLOC]
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
    parser.add_argument("--max-step-ratio", type=float, help="with --check: Alloc's median step, in native's")
    parser.add_argument(
        "--max-window-ratio", type=float, help="with --check: Alloc's median of any five successive steps, in native's"
    )
    parser.add_argument(
        "--every-iteration",
        type=int,
        nargs="?",
        const=0,
        metavar="FIRST",
        help="with --check: Alloc's E is at least expandable's in every iteration from FIRST (0) on",
    )
    parser.add_argument("--set", nargs="+", default=[], metavar="NAME=VALUE", help="environment of the Alloc run")
    parser.add_argument("--plan-options", type=shlex.split, default=[], help="for stalloc plan, as one word")
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
        if mode in AUTO:
            inherited["STALLOC_MODE"] = "Auto"
        if mode == "alloc":
            inherited["STALLOC_MODE"] = "Alloc"
            inherited |= dict(setting.split("=", maxsplit=1) for setting in self.arguments.set)
        if "STALLOC_MODE" in inherited:
            inherited["STALLOC_MODEL_INFO_PATH"] = str(self.run_directory(mode))
        return inherited

    def run_directory(self, mode: str) -> Path:
        if mode == "alloc":
            mode = "trace-fast" if "trace-fast" in self.arguments.modes else "trace-exact"
        return self.directory / ("auto" if mode in AUTO else mode)

    def command(self, mode: str, output: Path) -> list[str]:
        iterations = self.arguments.trace_iterations if mode.startswith("trace") else self.arguments.iterations
        launcher = ["-m", "stalloc", "run"] if mode in UNDER_STALLOC else []
        command = [sys.executable, *launcher, os.path.relpath(HERE / "train_gpt.py"), "--preset", self.arguments.preset]
        command += ["--iterations", str(iterations), "--device", self.arguments.device, "--json", str(output)]
        return command + self.arguments.train

    def run(self, mode: str) -> None:
        if mode == "alloc":
            self.make_plan()
        if mode == "auto":
            shutil.rmtree(self.run_directory(mode), ignore_errors=True)  # else it is the next start
        output = self.directory / f"{mode}.json"
        begin = time.perf_counter()
        completed = subprocess.run(self.command(mode, output), env=self.environment(mode), check=False)
        if completed.returncode not in (0, EXIT_OUT_OF_MEMORY):
            raise SystemExit(f"compare_modes: the {mode} run failed with exit code {completed.returncode}")
        result: dict[str, Any] = json.loads(output.read_text())
        result["wall_seconds"] = time.perf_counter() - begin
        summary = self.run_directory(mode) / "log_output" / "rank00000.summary.json"
        if mode in UNDER_STALLOC and "out_of_memory" not in result:
            result["summary"] = json.loads(summary.read_text())
            shutil.copy(summary, self.directory / f"{mode}.summary.json")
        if mode in AUTO:
            await_planners(self.run_directory(mode))
            status = self.run_directory(mode) / "log_output" / "rank00000.auto.json"
            result["stages"] = json.loads(status.read_text())["stages"]
        self.results[mode] = result

    def make_plan(self) -> None:
        command = [sys.executable, "-m", "stalloc", "plan", str(self.run_directory("alloc")), "--json"]
        command += self.arguments.plan_options
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
    held = summary["held_peak_bytes"] if summary else result["memory"].get("held_peak")
    live = live_peak(results, mode)
    since = (summary or {}).get("since_plan")
    run_efficiency = live / held if live and held else None
    if since:
        live, held = since["peak_live_bytes"], since["held_peak_bytes"]
    native = results.get("native")
    if native is not None and "out_of_memory" in native:
        native = None
    row: dict[str, Any] = {
        "mode": mode,
        "live_bytes": live,
        "held_bytes": held,
        "efficiency": live / held if live and held else None,
        "step_seconds": result["step_seconds_median"],
        "step_ratio": settled_ratio(result["step_seconds"], native["step_seconds"]) if native else None,
        "last_loss": result["losses"][-1],
        "iterations": iterations_of(result),
    }
    if mode in AUTO:
        row |= {"run_efficiency": run_efficiency, "stages": result["stages"]}
    row["least_efficiency"] = least_efficiency(row["iterations"])
    if native:
        row["slowest_window"] = slowest_window(result["step_seconds"], native["step_seconds"])
        row["slowest_step"] = slowest_step(result["step_seconds"], native["step_seconds"])
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
    header = ["mode", "live GiB", "held GiB", "E %", "least E %", "step ms", "x native", "slowest", "hits %"]
    header += ["losses = native", "last loss"]

    def cell(value: Any, scale: float, digits: int) -> str:
        return "-" if value is None else f"{value * scale:.{digits}f}"

    def first(pair: Any) -> Any:
        return None if pair is None else pair[0]

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
                cell(first(row["least_efficiency"]), 100, 2),
                cell(row["step_seconds"], 1e3, 1),
                cell(row["step_ratio"], 1, 3),
                cell(first(row.get("slowest_window")), 1, 3),
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


def iteration_failures(rows: list[dict[str, Any]], arguments: argparse.Namespace) -> list[str]:
    """Of the alloc run against its peers, iteration by iteration, as far as that is asked for."""
    by_mode = {row["mode"]: row for row in rows if "iterations" in row}
    alloc, native, expandable = (by_mode.get(mode) for mode in ("alloc", "native", "expandable"))
    found = []
    if alloc and native:
        if arguments.max_step_ratio is not None and alloc["step_ratio"] > arguments.max_step_ratio:
            found.append(
                f"alloc: a step takes {alloc['step_ratio']:.4f} x native's, at most {arguments.max_step_ratio}"
            )
        if arguments.max_window_ratio is not None:
            own, peer = ([entry["step_seconds"] for entry in row["iterations"]] for row in (alloc, native))
            found += time_failures(own, peer, arguments.max_window_ratio)
    if alloc and expandable and arguments.every_iteration is not None:
        found += efficiency_failures(alloc["iterations"], expandable["iterations"], arguments.every_iteration)
    return found


def failures(rows: list[dict[str, Any]], arguments: argparse.Namespace) -> list[str]:
    found = iteration_failures(rows, arguments)
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


def write_document(comparison: Comparison, rows: list[dict[str, Any]], problems: list[str], complete: bool) -> None:
    document = {
        "command": [Path(sys.argv[0]).name, *sys.argv[1:]],
        "machine": machine(),
        "device": device_of(comparison),
        "complete": complete,  # false: more modes were to come
        "problems": problems,
        "rows": rows,
        "plan": comparison.plan,
        "results": comparison.results,
    }
    path = comparison.arguments.json
    partial = path.with_suffix(".tmp")
    partial.write_text(json.dumps(document, indent=1))
    partial.replace(path)


def add_device_efficiency(rows: list[dict[str, Any]], plan: dict[str, Any] | None) -> None:
    """E of the device, in runs whose trace captured graphs: what they need of it counts as well."""
    graphs = None if plan is None else plan["ranks"][0]["report"]["devices"][0]["graphs"]
    for row in rows:
        if graphs is not None and row.get("held_bytes"):
            row["needed_bytes"] = graphs["needed_bytes"]
            row["device_efficiency"] = min(graphs["needed_bytes"], row["held_bytes"]) / row["held_bytes"]


def tell_device_efficiency(rows: list[dict[str, Any]]) -> None:
    known = [row for row in rows if "device_efficiency" in row]
    if known:
        shares = ", ".join(f"{row['mode']} {100 * row['device_efficiency']:.2f} %" for row in known)
        print(f"captured graphs: the device needs {known[0]['needed_bytes'] / GIB:.3f} GiB; E of the device: {shares}")


def tell_report(comparison: Comparison) -> None:
    """What no row can say on a CPU, from the trace; and, where it stays and plotly is there, the page of the plan."""
    if comparison.plan is None:
        return
    (device, *_) = comparison.plan["ranks"][0]["report"]["devices"]
    if device["device"] < 0:
        native, share = device["simulated"]["native_bytes"], device["simulated"]["native_efficiency"]
        print(
            f"PyTorch's allocator would hold {native / GIB:.3f} GiB, E {100 * share:.2f} % (simulated from the trace)"
        )
    if comparison.arguments.directory is None or importlib.util.find_spec("plotly") is None:
        return
    command = [sys.executable, "-m", "stalloc", "report", str(comparison.run_directory("alloc"))]
    told = subprocess.run(command, capture_output=True, text=True, check=False)
    print(f"report: {told.stdout.strip()}" if told.returncode == 0 else told.stderr.strip())


def device_of(comparison: Comparison) -> str:
    return next((r["device"] for r in comparison.results.values() if "device" in r), "unknown device")


def main() -> int:
    arguments = parse_arguments()
    if arguments.directory:
        arguments.directory.mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="stalloc-compare-") as temporary:
        comparison = Comparison(arguments, arguments.directory or Path(temporary))
        for mode in arguments.modes:
            print(f"== {mode}", file=sys.stderr, flush=True)
            comparison.run(mode)
            rows = [row_of(comparison.results, mode) for mode in arguments.modes if mode in comparison.results]
            add_device_efficiency(rows, comparison.plan)
            if arguments.json:
                write_document(comparison, rows, [], complete=False)
    print(f"{arguments.preset} on {device_of(comparison)}, {arguments.iterations} iterations")
    print_table(rows, arguments.markdown)
    tell_device_efficiency(rows)
    tell_report(comparison)
    problems = failures(rows, arguments) + plan_failures(comparison.plan) if arguments.check else []
    if arguments.json:
        write_document(comparison, rows, problems, complete=True)
    for problem in problems:
        print(f"compare_modes: {problem}", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
