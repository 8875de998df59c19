"""Replays traces of train.py without a GPU: a plan is made from the first iterations, and later ones are served.

    python bench/unseen/replay.py traces --build build/release --json unseen.json      # every workload below traces
    python bench/unseen/replay.py traces --build build/release --workloads var-pad gan
    python bench/unseen/replay.py traces --build build/release --without late-rooms   # what a rule is worth

TRACES/NAME is what STALLOC_MODEL_INFO_PATH was. Prints a table, whose columns bench/README.md explains; --json is
written after each workload. Exit codes: 0 all were replayed, 1 one was not, 2 a build or a trace is missing.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Optional

from halves import only_judges

GIB = float(1 << 30)
HEADER = [
    "workload",
    "live GiB",
    "E",
    "expandable E",
    "native E",
    "worst gap",
    "iteration",
    "slots",
    "growth GiB",
    "moves",
]
FAILED = "failed"


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("traces", type=Path, help="the directory of NAME/trace/rank00000.trace")
    parser.add_argument("--workloads", nargs="+", default=[], metavar="NAME", help="only these")
    parser.add_argument("--build", type=Path, default=Path("build/release"), help="has bench/replay_bench")
    parser.add_argument("--plan-from", default="0-3", help="iterations that the plan is made from")
    parser.add_argument("--serve", default="4-18", help="iterations that are served; one more must have been traced")
    parser.add_argument("--scale", type=int, default=256, help="every request so many times as large")
    parser.add_argument("--without", nargs="+", default=[], metavar="RULE", help="rules of the engine to leave out")
    parser.add_argument("--traced-by", default="train.py NAME", metavar="TEXT", help="what traced them, for FILE")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all results here")
    return parser.parse_args()


class MissingError(Exception):
    """There is no such build or trace."""


@dataclasses.dataclass(frozen=True)
class Traced:
    """The trace of one workload, and what its run says of itself."""

    name: str
    path: Path
    torch: str
    iterations: int


def traced(traces: Path, name: str) -> Traced:
    directory = traces / name
    if (directory / "plan").is_dir():  # of bench/megatron/compare.py
        directory /= "plan"
    path = directory / "trace" / "rank00000.trace"
    summary = directory / "log_output" / "rank00000.summary.json"
    for file in (path, summary):
        if not file.is_file():
            raise MissingError(f"{name}: expected a traced run of train.py with {file}, found none")
    run = json.loads(summary.read_text())
    return Traced(name, path, run["torch_version"], run["iterations"])


def traces_of(traces: Path, names: list[str]) -> list[Traced]:
    """All of the directory where none are named."""
    paths = [path for where in ("*", "*/plan") for path in traces.glob(f"{where}/trace/rank00000.trace")]
    found = sorted(path.relative_to(traces).parts[0] for path in paths)
    if not names and not found:
        raise MissingError(f"{traces}: expected NAME/trace/rank00000.trace of train.py, found none")
    return [traced(traces, name) for name in names or found]


def bench_of(build: Path) -> Path:
    program = build / "bench" / "replay_bench"
    if not program.is_file():
        raise MissingError(f"{program}: expected a build with replay_bench (see --build), found none")
    return program


class Replays:
    """Runs replay_bench over one trace after the other, and keeps what came out."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.program = bench_of(arguments.build)
        self.traces = traces_of(arguments.traces, arguments.workloads)
        self.flags = ["--scale", str(arguments.scale), "--plan-from", arguments.plan_from, "--serve", arguments.serve]
        self.flags += ["--notimes", "--threads", "1"]
        if arguments.without:
            self.flags += ["--without", ",".join(arguments.without)]
        self.file: Optional[Path] = arguments.json
        self.facts: dict[str, Any] = {
            "benchmark": "unseen",
            "traced_by": f"{arguments.traced_by} --iterations {'|'.join(distinct(t.iterations for t in self.traces))}",
            "torch": "|".join(distinct(t.torch for t in self.traces)),
            "command_line": " ".join(["replay_bench", *self.flags, "NAME/trace/rank00000.trace"]),
        }
        self.results: list[dict[str, Any]] = []

    def run(self) -> None:
        for number, trace in enumerate(self.traces, 1):
            begin = time.monotonic()
            result = self.replayed(trace)
            self.results.append(result)
            self.write()
            shown = result.get(FAILED) or f"E {100 * result['efficiency']:.2f} %"
            seconds = time.monotonic() - begin
            print(f"{number}/{len(self.traces)} {trace.name}: {shown} ({seconds:.0f} s)", file=sys.stderr, flush=True)

    def replayed(self, trace: Traced) -> dict[str, Any]:
        """The experiment as replay_bench writes it, under the workload's name; or why there is none."""
        with tempfile.TemporaryDirectory() as directory:
            output = Path(directory) / "result.json"
            command = [str(self.program), *self.flags, "--json", str(output), str(trace.path)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode != 0 or not output.exists():
                reason = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
                return {"name": trace.name, FAILED: reason[-1].replace(str(trace.path), trace.path.name)}
            written = json.loads(output.read_text())
        self.facts |= {key: written[key] for key in ("date", "version", "compiler")}
        (experiment,) = written["experiments"]
        del experiment["run"]
        return {"name": trace.name, **experiment}

    def write(self) -> None:
        """To a temporary name first, a line for each workload."""
        if self.file is None:
            return
        lines = ",\n".join(json.dumps(result) for result in self.results)
        facts = json.dumps(self.facts, indent=1).removesuffix("\n}")
        partial = self.file.with_suffix(".tmp")
        partial.write_text(f'{facts},\n "workloads": [\n{lines}\n ]\n}}\n')
        partial.replace(self.file)


def distinct(values: Any) -> list[str]:
    return sorted({str(value) for value in values})


def worst_gap(result: dict[str, Any]) -> tuple[float, int]:
    """Of all served iterations the least E above expandable_segments' (negative: below), and which one that is."""
    gaps = []
    for entry in result["iterations"]:
        own, peer = (entry["live_bytes"] / entry[key] for key in ("held_bytes", "expandable_held_bytes"))
        gaps.append((own - peer, entry["iteration"]))
    return min(gaps)


def row_of(result: dict[str, Any]) -> list[str]:
    if FAILED in result:
        return [result["name"], *["-"] * (len(HEADER) - 2), f"{FAILED}: {result[FAILED]}"]
    requests = {kind: served["requests"] for kind, served in result["served_by"].items()}
    efficiencies = [result["efficiency"], 1 / result["expandable_ratio"], 1 / result["native_ratio"]]
    gap, iteration = worst_gap(result)
    slots = requests["planned"] / max(1, sum(requests.values()))
    return [
        result["name"] + (" (plan given up)" if result["gave_up"] else ""),
        f"{result['peak_live_bytes'] / GIB:.2f}",
        *[f"{100 * efficiency:.2f}" for efficiency in efficiencies],
        f"{100 * gap:+.2f}",
        str(iteration),
        f"{100 * slots:.1f}",
        f"{result['growth_bytes'] / GIB:.2f}",
        str(result["moves"]),
    ]


def table(results: list[dict[str, Any]]) -> list[str]:
    """Markdown, a line for each workload."""
    rows = [HEADER, *map(row_of, results)]
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return [lines[0], "|---" + "|---:" * (len(HEADER) - 1) + "|", *lines[1:]]


def below_expandable(results: list[dict[str, Any]]) -> list[str]:
    """The workloads whose E of the whole run is below expandable_segments'."""
    return [r["name"] for r in results if FAILED not in r and r["efficiency"] * r["expandable_ratio"] < 1]


def halves(results: list[dict[str, Any]]) -> list[str]:
    """A line for those that may be looked at and one for those that only judge: what decides whether a rule stays."""
    lines = []
    for half, judges in (("may be looked at", False), ("only judge", True)):
        mine = [r for r in results if FAILED not in r and only_judges(r["name"]) == judges]
        if not mine:
            continue
        efficiencies = [100 * result["efficiency"] for result in mine]
        unmapped = sum(entry["driver_calls"]["unmap"] for result in mine for entry in result["iterations"])
        lines.append(
            f"{len(mine)} {half}: E {statistics.mean(efficiencies):.3f} %, worst {min(efficiencies):.2f} %, "
            f"{sum(result['moves'] for result in mine)} moves, {unmapped} chunks unmapped"
        )
    return lines


def main() -> int:
    try:
        replays = Replays(parse_arguments())
    except MissingError as error:
        print(f"replay.py: {error}", file=sys.stderr)
        return 2
    replays.run()
    print("\n".join(table(replays.results)))
    print("\n".join(["", *halves(replays.results)]))
    print(f"\nbelow expandable_segments: {', '.join(below_expandable(replays.results)) or 'none'}")
    return 1 if any(FAILED in result for result in replays.results) else 0


if __name__ == "__main__":
    sys.exit(main())
