"""Every STALLOC_* variable: the one table.

docs/variables.md, Megatron's arguments (`--stalloc-trace-steps`), files of settings (`stalloc run --config`) and the
warning about a misspelt name are made from it; tests hold the sources to it.
"""

from __future__ import annotations

import dataclasses
import difflib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Optional

from stalloc.core.json_files import read_yaml_or_json

_PREFIX = "STALLOC_"
SWITCH = ("0", "1")
_ON, _OFF = "`0`, `1` (default)", "`0` (default), `1`"


@dataclasses.dataclass(frozen=True)
class Variable:
    """One row."""

    name: str
    values: str  # what it takes, and its default: Markdown
    meaning: str  # one line, of an argument's help and the page
    choices: Optional[tuple[str, ...]] = (
        None  # all that is allowed; None: any text. A switch is 1 where it stands alone
    )
    details: str = ""  # what else the page says: Markdown, relative to docs/
    reader: str = "C++"  # who reads it: C++, Python or both


# Group: its variables, those that most need first.
GROUPS: dict[str, tuple[Variable, ...]] = {
    "What a run does": (
        Variable(
            "STALLOC_MODE",
            "`Torch` (default), `Auto`, `Trace`, `Alloc`",
            "run in this mode: Torch, Auto, Trace or Alloc",
            details="Torch changes nothing and reports utilisation per iteration. Case does not matter",
            reader="both",
        ),
        Variable(
            "STALLOC_MODEL_INFO_PATH",
            "directory",
            "keep traces and plans in this directory",
            details="Trace and Alloc need it; Auto's default lies below `~/.cache/stalloc/runs`, and is the run's "
            "with the same requests (`stalloc runs`). It holds "
            "`trace/rank00000.trace`, `output/plan/rank00000.plan`, `output/observed/rank00000.observed`, "
            "`log_output/rank00000.summary.json`; under Auto also `output/plan/rank00000.signature.json`, the requests "
            "of the plan's run, and `starts/`, the files of starts that run",
            reader="both",
        ),
        Variable(
            "STALLOC_STRICT",
            _OFF,
            "treat a missing or foreign plan as an error",
            SWITCH,
            "Default: a warning and an unplanned run. In mode Alloc the loop ends with an error after an iteration "
            "that differs from the plan, or gives it up",
            "both",
        ),
        Variable(
            "STALLOC_DEVICE",
            "`auto` (default), `cuda`, `cpu`",
            "replace torch's allocator of this device",
            ("auto", "cuda", "cpu"),
            "auto: CUDA where there is a GPU",
            "Python",
        ),
        Variable(
            "STALLOC_AUTO_WAIT",
            _OFF,
            "wait for the plan in mode Auto",
            SWITCH,
            "Every start then takes it up at the same iteration. The process also waits for the next start's plan",
            "Python",
        ),
        Variable(
            "STALLOC_SLEEP_SOCKET",
            "`0` (default), `1`, `once`",
            "accept `stalloc sleep PID` and `stalloc wake PID`",
            ("0", "1", "once"),
            "1: between two iterations; once: at once ([sleep.md](sleep.md))",
            "Python",
        ),
        Variable(
            "STALLOC_PLAN_RANK",
            "a rank",
            "serve this rank from the plan of another rank",
            details="Under Auto, the plan to begin with. Default: the rank's own, or that of a data-parallel replica "
            "(Megatron-LM)",
            reader="both",
        ),
        Variable(
            "STALLOC_DYNAMIC",
            "`auto` (default), `0`, `1`",
            "serve requests without a slot from the arena",
            ("0", "1", "auto"),
            "0: PyTorch's allocator serves them",
        ),
        Variable(
            "STALLOC_MEMORY_LIMIT",
            "size, `40G`",
            "limit an exact trace's memory, to 40G",
            details="Also limits the CPU's arena. Units are binary",
        ),
        Variable(
            "STALLOC_KEEP_FREE",
            "size, `4G`",
            "keep these bytes of the GPU free for others",
            details="While more is free, the arena grows instead of moving memory. Set it where processes share a GPU: "
            "then memory is moved before the rest is taken. "
            "Default: 2 % of it, 1G at least",
        ),
        Variable(
            "STALLOC_GRAPHS",
            "`shared` (default), `apart`, `poison`",
            "lend memory of CUDA graphs to other tensors between launches",
            ("shared", "apart", "poison"),
            "apart: each graph's pool keeps its memory. Use it also for programs with kernels that stay resident "
            "next to others (NVSHMEM, DeepEP). poison: shared, and after each launch stalloc fills its idle memory "
            "with 0xff, in a trace as well: a program that reads it gets NaN. Use it for one run whose losses must "
            "equal those of others",
        ),
        Variable(
            "STALLOC_LIB_PATH",
            "directory",
            "load the libraries from this directory",
            details="Default: those of the installed package",
            reader="both",
        ),
        Variable(
            "STALLOC_STATIC_FALLBACK",
            _OFF,
            "accept the variable: falling back is always on",
            SWITCH,
            "A variable of Infinigence's STAlloc",
        ),
    ),
    "What a run says": (
        Variable(
            "STALLOC_LOG_LEVEL",
            "`debug`, `info` (default), `warning`, `error`, `off`, `0` .. `3`",
            "print messages of this severity or above: off, error, warning, info or debug",
            ("debug", "info", "warning", "error", "off", "0", "1", "2", "3"),
            "info: rank 0 prints how it is served and the run's figures; of a warning of several ranks, each "
            "machine's first is printed. debug: everything, of every rank, and a line of figures each iteration. off: "
            "only errors that keep a program from starting. `0` to `2` are debug, `3` is info",
            "both",
        ),
        Variable(
            "STALLOC_LOG_STEPS",
            "a number",
            "print a line of figures every N iterations",
            details="Every rank prints. 0: none. Default: each iteration in mode Torch, and at log level debug",
            reader="Python",
        ),
        Variable(
            "STALLOC_TENSORBOARD",
            "directory",
            "write TensorBoard scalars to this directory",
            details="It has the same figures, one TensorBoard run a rank (needs `pip install tensorboard`)",
            reader="Python",
        ),
        Variable(
            "STALLOC_OOM_REPORT",
            "directory",
            "write reports on out-of-memory errors to this directory, in every mode",
            details="Also without a mode (then on the CPU only an error that ends the program). 16 a process at most; "
            "`stalloc oom FILE` shows one",
            reader="both",
        ),
        Variable("STALLOC_NVTX", _OFF, "emit marks as NVTX ranges, too", SWITCH, "Nsight Systems shows them", "Python"),
    ),
    "What a trace holds": (
        Variable(
            "STALLOC_TRACE_FAST_MODE",
            _OFF,
            "trace over PyTorch's allocator, at full speed",
            SWITCH,
            "0: exact, over a heap without fragmentation: a run whose live bytes fit can be traced though PyTorch "
            "cannot hold it",
        ),
        Variable(
            "STALLOC_TRACE_STEPS",
            "`N`, `2:5`, `2:`, `manual`",
            "end the trace after N iterations, or trace a window: 2:5",
            details="N: the first N. 2:5: iterations 2, 3 and 4, counted from 0 as they come (what is live then is "
            "the trace's set-up). 2: from 2 on. manual: from `stalloc.trace.start()` on. The run goes on. Default: all "
            "of it",
            reader="both",
        ),
        Variable(
            "STALLOC_TRACE_RANKS",
            "`0,3,8-15`",
            "trace these ranks: 0,3",
            details="Other ranks run as without stalloc",
            reader="both",
        ),
        Variable(
            "STALLOC_TRACE_MAX_EVENTS",
            "a number",
            "end the trace after this many events",
            details="The trace then has its last whole iteration",
        ),
        Variable(
            "STALLOC_TRACE_DETAIL",
            _OFF,
            "trace modules, stacks and uses: all that reports can show",
            SWITCH,
            "A variable of the three that is set itself wins. The run gets slower "
            "([what it costs](reports.md#what-a-trace-can-tell)); its allocations stay the same",
            "Python",
        ),
        Variable(
            "STALLOC_TRACE_NAMES",
            _ON,
            "name parameters, gradients, optimizer state and inputs in traces",
            SWITCH,
            "Reports take classes from them",
            "Python",
        ),
        Variable(
            "STALLOC_TRACE_MODULES",
            _OFF,
            "name the module of each block in traces",
            SWITCH,
            "It covers forward and backward passes; the plan does not need it",
            "Python",
        ),
        Variable(
            "STALLOC_TRACE_TIMES",
            _OFF,
            "give marks of a trace the device's time",
            SWITCH,
            "The host waits for the device at passes, layers and their parts: `stalloc fit` then knows how long each "
            "takes. torch's profiler watches two iterations after the trace",
            "Python",
        ),
        Variable(
            "STALLOC_TRACE_STACKS",
            "`0` (default), `1`, `N`, `64K`",
            "record Python stacks: 0, 1, every Nth request, or from a size as 64K",
            details="Reports then show the call sites of the peak's blocks. It needs Python 3.11 or later",
        ),
        Variable(
            "STALLOC_TRACE_USES",
            _OFF,
            "record which operations use which blocks",
            SWITCH,
            "Reports then show blocks that are allocated early, freed late, or idle",
            "both",
        ),
        Variable(
            "STALLOC_TRACE_FAKE",
            _OFF,
            "trace fake tensors: no device is touched",
            SWITCH,
            "`stalloc run --fake`",
            "Python",
        ),
        Variable(
            "STALLOC_FAKE_ASSUME",
            "`int=4096,bool=0,nonzero=1/16`",
            "give values that fake tensors lack: int=4096,bool=0,nonzero=1/16",
            details="`stalloc run --fake --assume`",
            reader="Python",
        ),
    ),
    "Looking for faults": (
        Variable(
            "STALLOC_WATCH",
            _OFF,
            "look for writes beyond the end of blocks and into freed ones (exact Trace, Alloc)",
            SWITCH,
            "Freed blocks of the arena read as NaN. The run is slow",
        ),
        Variable(
            "STALLOC_TEST_MOVES",
            _OFF,
            "for tests: move memory of the arena at every mark, where it may move",
            SWITCH,
        ),
    ),
}

VARIABLES: dict[str, Variable] = {variable.name: variable for group in GROUPS.values() for variable in group}

# Set by stalloc itself, for the processes that a run starts.
INTERNAL = {
    "STALLOC_OWNER": "the process that has the allocator, so that its children do not trace or plan as well",
    "STALLOC_FOUND_PATH": "the run's directory in the cache, where STALLOC_MODEL_INFO_PATH was not set",
    "STALLOC_FIT": "the file that says what `stalloc run --fit` does in this process",
    "STALLOC_HELD_LIMIT": "bytes that a start of `stalloc run --fit SIZE` shall hold at most",
    "STALLOC_STARTED_RANK": "the number of a process that a script starts itself to train, where no launcher gives one",
    "STALLOC_STARTED_RANKS": "how many of them there are, where that is known",
    "STALLOC_START_PATH": "the folder that this start has for itself under Auto, in the run's directory",
    "STALLOC_START_PLAN": "how sure this start is, under Auto, that the plan it found is its own",
    "STALLOC_TOLD": "misspelt variables that this process's parent has reported",
}

# What scripts, tests and benchmarks of the source tree read; no training run does.
TOOLS = {
    "STALLOC_PYTHON": "scripts: the interpreter to start from (default: python3). CMake: whose torch to build for",
    "STALLOC_VENV": "scripts: where the environment goes (default: .venv)",
    "STALLOC_DEMO_DIR": "scripts/demo: where its runs go (default: build/demo)",
    "STALLOC_BUILD_DIR": "tests: the libraries to test (default: build/release)",
    "STALLOC_COLD_TESTS": "tests: 1: each program in a fresh interpreter",
    "STALLOC_STRESS_SEED": "stress tests: the first seed",
    "STALLOC_STRESS_SEEDS": "stress tests: how many seeds",
    "STALLOC_STRESS_SECONDS": "stress tests: how long",
    "STALLOC_CORPUS_ROOT": "bench: where the recorded traces are",
    "STALLOC_FRAMEWORKS_PYTHON": "tests: a Python with the frameworks that this one lacks",
    "STALLOC_FRAMEWORKS_PATH": "tests: a folder of packages with other versions",
    "STALLOC_FRAMEWORKS_RESULTS": "tests: a file that gets a line of figures for each framework",
    "STALLOC_MEGATRON_PYTHON": "tests: a Python with megatron-core",
    "STALLOC_MEGATRON_PATH": "tests: a folder with Megatron-LM",
    "STALLOC_ROOT": "tests of Megatron: this repository",
    "STALLOC_MEMORY_VIZ": "tests: PyTorch's page of snapshots, a folder",
    "STALLOC_D3": "tests: the d3 that this page needs, a file",
    "STALLOC_KEEP_SNAPSHOT": "tests: where the snapshots that they make are kept",
    "STALLOC_PLANNER": "tests and bench: the planner's program",
    "STALLOC_LIBRARY": "tests: the adapter to look into",
    "STALLOC_TORCH_LIB": "tests: the adapter that a program loads",
    "STALLOC_SOURCE_DIR": "C++ tests: this repository",
    "STALLOC_SEEDS": "C++ tests of random traces: how many",
}


def misspelt(names: Iterable[str]) -> dict[str, Optional[str]]:
    """The names among these that begin with STALLOC_ and that nothing reads: each with the nearest known one,
    or None."""
    known = {*VARIABLES, *INTERNAL, *TOOLS}
    unknown = sorted(name for name in names if name.startswith(_PREFIX) and name not in known)
    ends = [name.removeprefix(_PREFIX) for name in VARIABLES]
    nearest = {name: difflib.get_close_matches(name.removeprefix(_PREFIX), ends, 1, 0.7) for name in unknown}
    return {name: f"{_PREFIX}{found[0]}" if found else None for name, found in nearest.items()}


def read_settings(path: Path) -> dict[str, str]:
    """Variables from a JSON object, {"mode": "Trace", "trace_steps": "2:5", "trace_ranks": [0, 3], "nvtx": true}, or
    the same as YAML: names without STALLOC_, in lower case. OSError, or ValueError naming what is wrong."""
    content = read_yaml_or_json(path)
    known = {name.removeprefix("STALLOC_").lower(): name for name in VARIABLES}
    unknown = sorted(set(content) - set(known))
    if unknown:
        raise ValueError(f"{path}: no setting is called {', '.join(unknown)}; there are {', '.join(sorted(known))}")
    return {known[key]: _text(path, key, value) for key, value in content.items()}


def _text(path: Path, key: str, value: Any) -> str:
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, (int, str)):
        return str(value)
    if isinstance(value, list) and all(isinstance(item, (int, str)) and not isinstance(item, bool) for item in value):
        return ",".join(map(str, value))
    raise ValueError(f"{path}: {key} must be a text, a number, true, false or a list of these: {json.dumps(value)}")
