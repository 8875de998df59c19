"""What `stalloc run --fake` says of twenty models of libraries, against the same programs run for real.

    python bench/estimates/estimates.py --json estimates.json [--markdown] [NAME ...]      # on the CPU: minutes
    python bench/estimates/estimates.py --device cuda --json estimates-cuda.json           # on a GPU

Each program (programs.py) is traced twice, for as many iterations: on fake tensors, and where it really trains. What is
compared are peaks of live bytes. A program that the fake run refuses counts as refused, with the reason. Needs timm,
torchvision, transformers, accelerate, diffusers and torch_geometric. Exit code 1: a real run failed.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Optional

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parents[1] / "patches")]

from documents import aligned, cell, machine, write_json  # noqa: E402
from programs import ASSUMED, PROGRAMS  # noqa: E402

from stalloc.tools.report.collect import find_ranks, traced_view  # noqa: E402

LIBRARIES = ("torch", "timm", "torchvision", "transformers", "accelerate", "diffusers", "torch_geometric")
_ITERATIONS = "4"
_MIB = 1 / (1 << 20)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="of programs.py (default: all)")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument(
        "--json", type=Path, required=True, help="write all results here; with NAMEs, what is there of others is kept"
    )
    parser.add_argument("--markdown", action="store_true", help="print the table as Markdown")
    parser.add_argument("--time-limit", type=float, default=600, help="seconds of a run")
    chosen = parser.parse_args()
    unknown = [name for name in chosen.names if name not in PROGRAMS]
    if unknown:
        parser.error(f"there is no program {', '.join(unknown)}; there are {', '.join(PROGRAMS)}")
    return chosen


def run(name: str, chosen: argparse.Namespace, *options: str) -> dict[str, Any]:
    """The peak of live bytes of a traced run on the device, or why there is none."""
    path = os.pathsep.join([str(HERE.parents[1] / "patches"), os.environ.get("PYTHONPATH", "")])
    variables = {"PYTHONPATH": path, "STALLOC_TRACE_STEPS": _ITERATIONS, "STALLOC_MODE": "Trace"}
    with tempfile.TemporaryDirectory() as directory:
        command = [sys.executable, "-m", "stalloc", "run", "--dir", directory, "--device", chosen.device, *options]
        begin = time.perf_counter()
        try:
            done = subprocess.run(
                [*command, str(HERE / "programs.py"), name, "--device", chosen.device],
                env={**os.environ, **variables},
                capture_output=True,
                text=True,
                check=False,
                timeout=chosen.time_limit,
            )
        except subprocess.TimeoutExpired:
            return {"why": f"it took more than {chosen.time_limit:g} s"}
        found: dict[str, Any] = {"seconds": round(time.perf_counter() - begin, 1)}
        if done.returncode != 0:
            lines = [line for line in done.stderr.splitlines() if line.startswith("stalloc: ") or "Error: " in line]
            return {**found, "why": lines[-1] if lines else f"exit code {done.returncode}"}
        rank = traced_view(find_ranks(Path(directory))[0].trace)["rank"]
        peaks = {device["device"]: device["peak"]["live_bytes"] for device in rank["devices"]}
        return {**found, "peak_live_bytes": peaks[-1 if chosen.device == "cpu" else 0], "events": rank["events"]}


def off(row: dict[str, Any]) -> Optional[float]:
    """By how much the estimate is more than what was live; None where one of the two is not there."""
    fake, real = (row[kind].get("peak_live_bytes") for kind in ("fake", "real"))
    return None if not fake or not real else fake / real - 1


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    errors = [abs(error) for error in map(off, rows) if error is not None]
    return {
        "programs": len(rows),
        "refused": sum("why" in row["fake"] for row in rows),
        "median_error": statistics.median(errors) if errors else None,
        "worst_error": max(errors, default=None),
    }


def table(rows: list[dict[str, Any]], markdown: bool) -> str:
    lines: list[list[str]] = [["program", "assumed", "fake: MiB live", "real: MiB live", "off", "s: fake, real"]]
    for row in rows:
        peaks = [cell(row[kind].get("peak_live_bytes"), _MIB, 2) for kind in ("fake", "real")]
        error = off(row)
        shown = f"{100 * error:+.2f} %" if error is not None else f"refused: {row['fake'].get('why', row['real'])}"
        seconds = ", ".join(f"{row[kind].get('seconds', 0):.0f}" for kind in ("fake", "real"))
        lines.append([row["program"], row["assumed"] or "-", *peaks, shown, seconds])
    return aligned(lines, markdown)


def versions() -> dict[str, str]:
    """Of the libraries that are installed; a program of another one fails, and says so."""
    return {name: importlib.metadata.version(name) for name in LIBRARIES if importlib.util.find_spec(name)}


def kept(chosen: argparse.Namespace) -> list[dict[str, Any]]:
    """The rows of programs that are not run again; none where all are."""
    if not chosen.names or not chosen.json.is_file():
        return []
    rows: list[dict[str, Any]] = json.loads(chosen.json.read_text(encoding="utf-8"))["rows"]
    return [row for row in rows if row["program"] not in chosen.names]


def main() -> int:
    chosen = parse_arguments()
    rows = kept(chosen)
    for name in chosen.names or PROGRAMS:
        assumed = ["--assume", ASSUMED[name]] if name in ASSUMED else []
        fake = run(name, chosen, "--fake", *assumed)
        rows.append({"program": name, "assumed": ASSUMED.get(name), "fake": fake, "real": run(name, chosen)})
        rows.sort(key=lambda row: list(PROGRAMS).index(row["program"]))
        print(f"{name}: {fake} assumed {ASSUMED.get(name)}", file=sys.stderr, flush=True)
        about = {"machine": machine(), "versions": versions(), "device": chosen.device}
        write_json(chosen.json, {**about, "summary": summary(rows), "rows": rows})
    found = summary(rows)
    print(table(rows, chosen.markdown))
    print(
        f"{found['programs']} programs, {found['refused']} refused; error: median "
        f"{cell(found['median_error'], 100, 2)} %, worst {cell(found['worst_error'], 100, 2)} %"
    )
    return 1 if any("why" in row["real"] for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
