"""Runs small programs under native, expandable_segments and stalloc: JSON, and the table of docs/worked-numbers.md.

    python bench/worked_numbers.py --json worked.json --markdown table.md                    # the examples
    python bench/worked_numbers.py --cases FOLDER --json worked.json --markdown table.md     # and programs in a folder

On a GPU each program runs in every mode (bench/programs.py), a few minutes in all; of those that need packages, several
GPUs or a GPU that are not there, the table says so. On a CPU only the examples run, and what PyTorch's allocators would
hold is simulated from the trace. E is peak live / peak held bytes; of Auto, since its plan. Worst of all ranks.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib.util
import json
import os
import platform
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Optional

ROOT = Path(__file__).resolve().parents[1]
MODES = ["native", "expandable", "alloc", "auto"]
HEADS = {"native": "native", "expandable": "expandable_segments", "alloc": "**stalloc** Alloc", "auto": "stalloc Auto"}
LIMIT_S = 600  # of one program in all its modes
FIRST_PORT = 29611  # of torchrun; each program has its own


@dataclasses.dataclass(frozen=True)
class Program:
    """What runs, with which arguments on a GPU (on a CPU the program's own defaults)."""

    path: Path
    on_gpu: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    ranks: int = 1
    trace_arguments: str = ""

    @property
    def name(self) -> str:
        return self.path.name


def examples() -> list[Program]:
    folder = ROOT / "examples"
    large = ("--width", "2048", "--layers", "16")
    return [
        Program(folder / "plain_loop.py", (*large, "--batch", "8192", "--steps", "16")),
        Program(folder / "trainer.py", ("--width", "1024", "--layers", "12", "--length", "512"), ("transformers",)),
        Program(folder / "lightning_fit.py", ("--width", "1024", "--layers", "12"), ("lightning",)),
        Program(folder / "fsdp2.py", large, ranks=2),
        Program(folder / "megatron_core.py", ("--width", "1024", "--layers", "12"), ("megatron",)),
    ]


def cases(folder: Path) -> list[Program]:
    """The programs of a folder; one that speaks of torchrun's ranks gets two."""
    found = []
    for path in sorted(folder.resolve().glob("*.py")):
        text = path.read_text(encoding="utf-8")
        ranks = 2 if "LOCAL_RANK" in text else 1
        if '"--steps"' in text or "'--steps'" in text:
            found.append(Program(path, ("--steps", "24"), ranks=ranks, trace_arguments="--steps 4"))
        else:
            found.append(Program(path, ranks=ranks))
    return found


def gpus() -> int:
    import torch

    return int(torch.cuda.device_count())


def obstacle(program: Program, devices: int) -> Optional[str]:
    """Why a program does not run here."""
    missing = [name for name in program.needs if importlib.util.find_spec(name) is None]
    if missing:
        return f"needs {', '.join(missing)}"
    if program.name == "megatron_core.py" and not devices:
        return "needs a GPU"
    if devices and program.ranks > devices:
        return f"needs {program.ranks} GPUs"
    return None


def measure_on_gpu(program: Program, directory: Path, port: int) -> dict[str, Any]:
    output = directory / "result.json"
    command = [sys.executable, str(ROOT / "bench" / "programs.py"), "--modes", *MODES, "--ranks", str(program.ranks)]
    command += ["--json", str(output), "--trace-arguments", program.trace_arguments, "--port", str(port)]
    subprocess.run([*command, "--", str(program.path), *program.on_gpu], check=True, timeout=LIMIT_S, cwd=directory)
    modes = json.loads(output.read_text(encoding="utf-8"))["modes"]
    held = {mode: worst([_of_rank(mode, rank) for rank in ranks]) for mode, ranks in modes.items()}
    equal = [rank.get("losses_equal") for mode in MODES[1:] for rank in modes[mode]]
    known = [value for value in equal if value is not None]
    return {"modes": held, "losses_equal": all(known) if known else None, "simulated": False}


def _of_rank(mode: str, rank: dict[str, Any]) -> dict[str, Any]:
    figures = (rank.get("since_plan") if mode == "auto" else None) or {}
    live, held = figures.get("peak_live_bytes"), figures.get("held_peak_bytes")
    unplanned = mode == "auto" and not held
    if not live or not held:
        live, held = rank["live_bytes"], rank["held_bytes"]
    return {"live_bytes": live, "held_bytes": held, "efficiency": live / held, "unplanned": unplanned}


def worst(ranks: list[dict[str, Any]]) -> dict[str, Any]:
    return min(ranks, key=lambda rank: float(rank["efficiency"]))


def measure_on_cpu(program: Program, directory: Path) -> dict[str, Any]:
    """Alloc and Auto held what they say; the others are simulated from the trace."""
    environment = {**os.environ, "STALLOC_DEVICE": "cpu", "STALLOC_AUTO_WAIT": "1", "OMP_NUM_THREADS": "1"}

    def stalloc(*words: str, trains: bool = True) -> None:
        command = [sys.executable, "-m", "stalloc", *words]
        if trains and program.ranks > 1:
            launch = ["-m", "torch.distributed.run", "--nproc-per-node", str(program.ranks), "--no-python"]
            command = [sys.executable, *launch, *command]
        subprocess.run(command, check=True, timeout=LIMIT_S, cwd=directory, env=environment, stdout=subprocess.DEVNULL)

    stalloc("run", "--mode", "Trace", "--dir", "plan", str(program.path), "--steps", "5")
    stalloc("plan", "plan", trains=False)
    stalloc("run", "--mode", "Alloc", "--dir", "plan", str(program.path))
    stalloc("run", "--auto", "--dir", "auto", str(program.path))
    ranks = range(program.ranks)
    held = {"native": [_simulated(directory, rank, "native_bytes") for rank in ranks]}
    held["expandable"] = [_simulated(directory, rank, "expandable_segments_bytes") for rank in ranks]
    held["alloc"] = [_summary(directory / "plan", rank) for rank in ranks]
    held["auto"] = [_summary(directory / "auto", rank) for rank in ranks]
    return {"modes": {mode: worst(rows) for mode, rows in held.items()}, "losses_equal": None, "simulated": True}


def _simulated(directory: Path, rank: int, key: str) -> dict[str, Any]:
    path = directory / "plan" / "output" / "trace_analysis" / f"rank{rank:05d}.json"
    (device,) = json.loads(path.read_text(encoding="utf-8"))["devices"]
    live, held = device["peak"]["live_bytes"], device["simulated"][key]
    return {"live_bytes": live, "held_bytes": held, "efficiency": live / held}


def _summary(directory: Path, rank: int) -> dict[str, Any]:
    summary = json.loads((directory / "log_output" / f"rank{rank:05d}.summary.json").read_text(encoding="utf-8"))
    figures = summary.get("since_plan") or summary
    live, held = figures["peak_live_bytes"], figures["held_peak_bytes"]
    return {"live_bytes": live, "held_bytes": held, "efficiency": live / held}


def measured(program: Program, devices: int, port: int) -> dict[str, Any]:
    """One that fails is a row that says so; the others go on."""
    why = obstacle(program, devices)
    row: dict[str, Any] = {"program": program.name, "ranks": program.ranks, "not_run": why}
    if why is None:
        print(f"== {program.name}", file=sys.stderr, flush=True)
        with tempfile.TemporaryDirectory(prefix="stalloc-worked-") as temporary:
            directory = Path(temporary)
            try:
                row |= measure_on_gpu(program, directory, port) if devices else measure_on_cpu(program, directory)
            except (subprocess.SubprocessError, OSError, KeyError, ValueError) as error:
                row["not_run"] = f"failed: {type(error).__name__}: {error}"
    return row


def machine(devices: int) -> dict[str, Any]:
    import torch

    name = torch.cuda.get_device_name(0) if devices else platform.processor() or platform.machine()
    date = datetime.now(timezone.utc).isoformat(timespec="seconds")
    return {"device": name, "devices": devices, "torch": str(torch.__version__), "date": date}


def table(rows: list[dict[str, Any]]) -> str:
    lines = ["| program (live) | " + " | ".join(HEADS.values()) + " | losses |", "|---" * (len(HEADS) + 2) + "|"]
    for row in rows:
        name = f"`{row['program']}`" + (f", {row['ranks']} ranks" if row["ranks"] > 1 else "")
        if row["not_run"] is not None:
            lines.append(f"| {name} | {row['not_run'].splitlines()[0]} {'| ' * len(HEADS)}|")
            continue
        cells = [f"{size(row['modes'][mode]['held_bytes'])}, {percent(row['modes'][mode])}" for mode in HEADS]
        losses = {True: "equal", False: "**differ**", None: ""}[row["losses_equal"]]
        lines.append(f"| {name} ({size(row['modes']['native']['live_bytes'])}) | {' | '.join(cells)} | {losses} |")
    return "\n".join(lines) + "\n"


def size(count: int) -> str:
    return f"{count / 2**30:.2f} GiB" if count >= 2**30 else f"{count / 2**20:.1f} MiB"


def percent(figures: dict[str, Any]) -> str:
    return f"{100 * figures['efficiency']:.1f} %" + (", ended before its plan" if figures.get("unplanned") else "")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=Path, metavar="FOLDER", help="of further programs, on a GPU")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="these programs alone, without .py")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="programs side by side (default: 1)")
    parser.add_argument("--json", type=Path, metavar="FILE", required=True)
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="default: printed")
    options = parser.parse_args()
    devices = gpus()
    programs = examples() + (cases(options.cases) if options.cases is not None and devices else [])
    if options.only:
        programs = [program for program in programs if program.path.stem in options.only]
    document: dict[str, Any] = {"machine": machine(devices), "rows": []}
    ports = range(FIRST_PORT, FIRST_PORT + len(programs))
    with ThreadPoolExecutor(options.jobs) as pool:
        for row in pool.map(lambda program, port: measured(program, devices, port), programs, ports):
            document["rows"].append(row)
            partial = options.json.with_suffix(".tmp")
            partial.write_text(json.dumps(document, indent=1), encoding="utf-8")
            partial.replace(options.json)
    text = table(document["rows"])
    if options.markdown is not None:
        options.markdown.write_text(text, encoding="utf-8")
    else:
        print(text, end="")
    return int(any((row["not_run"] or "").startswith("failed") for row in document["rows"]))


if __name__ == "__main__":
    sys.exit(main())
