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
            "Torch, Auto, Trace or Alloc",
            details="Torch changes nothing and reports utilisation per iteration. Upper and lower case are alike",
            reader="both",
        ),
        Variable(
            "STALLOC_MODEL_INFO_PATH",
            "directory",
            "directory of traces and plans",
            details="Trace and Alloc need it; Auto's default is one below `~/.cache/stalloc/runs`, of the run that "
            "requests the same (`stalloc runs`). In it: "
            "`trace/rank00000.trace`, `output/plan/rank00000.plan`, `output/observed/rank00000.observed`, "
            "`log_output/rank00000.summary.json`; under Auto `output/plan/rank00000.signature.json`, what the plan's "
            "run requests, and `starts/`, what belongs to starts that run",
            reader="both",
        ),
        Variable(
            "STALLOC_STRICT",
            _OFF,
            "a missing or foreign plan is an error",
            SWITCH,
            "Else a warning and an unplanned run. In mode Alloc the loop ends with an error behind the iteration in "
            "which the run turned out not to resemble its plan, or gave it up",
            "both",
        ),
        Variable(
            "STALLOC_DEVICE",
            "`auto` (default), `cuda`, `cpu`",
            "which of torch's allocators is replaced",
            ("auto", "cuda", "cpu"),
            "auto: CUDA where there is a GPU",
            "Python",
        ),
        Variable(
            "STALLOC_AUTO_WAIT",
            _OFF,
            "mode Auto waits for its plan",
            SWITCH,
            "So the same iteration takes it up in every start. At its end the process waits for the next start's, too",
            "Python",
        ),
        Variable(
            "STALLOC_SLEEP_SOCKET",
            "`0` (default), `1`, `once`",
            "takes orders of `stalloc sleep PID` and `stalloc wake PID`",
            ("0", "1", "once"),
            "1: between two iterations; once: at once ([sleep.md](sleep.md))",
            "Python",
        ),
        Variable(
            "STALLOC_PLAN_RANK",
            "a rank",
            "whose plan this rank is served from, if not its own",
            details="Under Auto, whose it begins with. Default: its own, or that of a data-parallel replica of it "
            "(Megatron-LM)",
            reader="both",
        ),
        Variable(
            "STALLOC_DYNAMIC",
            "`auto` (default), `0`, `1`",
            "whether what has no slot is served from the arena",
            ("0", "1", "auto"),
            "0: PyTorch's allocator serves it",
        ),
        Variable(
            "STALLOC_MEMORY_LIMIT",
            "size, `40G`",
            "bytes, 40G: caps an exact trace's memory",
            details="And the CPU's arena. Units are binary",
        ),
        Variable(
            "STALLOC_KEEP_FREE",
            "size, `4G`",
            "bytes of the GPU that stay free for others",
            details="While more is free, the arena grows instead of moving memory. Set it where processes share a GPU: "
            "then memory is moved before the rest is taken. "
            "Default: 2 % of it, 1G at least",
        ),
        Variable(
            "STALLOC_GRAPHS",
            "`shared` (default), `apart`, `poison`",
            "whether memory of CUDA graphs serves other tensors between launches",
            ("shared", "apart", "poison"),
            "apart: what a graph's pool holds is its own. Also for programs with kernels that stay resident beside "
            "others (NVSHMEM, DeepEP). poison: shared, and each launch is followed by a fill of what it leaves idle "
            "with 0xff, in a trace as well: a program that reads it gets NaN. For one run whose losses must equal "
            "those of others",
        ),
        Variable(
            "STALLOC_LIB_PATH",
            "directory",
            "directory of the libraries",
            details="Default: those of the installed package",
            reader="both",
        ),
        Variable(
            "STALLOC_STATIC_FALLBACK", _OFF, "accepted; falling back is always on", SWITCH, "Of the published tool"
        ),
    ),
    "What a run says": (
        Variable(
            "STALLOC_LOG_LEVEL",
            "`debug`, `info` (default), `warning`, `error`, `off`, `0` .. `3`",
            "least severity that is printed: off, error, warning, info or debug",
            ("debug", "info", "warning", "error", "off", "0", "1", "2", "3"),
            "info: rank 0 says how it is served and what the run came to; of a warning that several ranks have, each "
            "machine's first is printed. debug: everything, of every rank, and a line of figures each iteration. off: "
            "only why a program cannot start. `0` to `2` are debug, `3` is info",
            "both",
        ),
        Variable(
            "STALLOC_LOG_STEPS",
            "a number",
            "a line of figures every so many iterations",
            details="Of every rank. 0: none. Default: each iteration in mode Torch, and at log level debug",
            reader="Python",
        ),
        Variable(
            "STALLOC_TENSORBOARD",
            "directory",
            "directory of TensorBoard scalars",
            details="The same figures, one TensorBoard run a rank (needs `pip install tensorboard`)",
            reader="Python",
        ),
        Variable(
            "STALLOC_OOM_REPORT",
            "directory",
            "directory of reports on out-of-memory errors, in every mode",
            details="And without one (there on the CPU: an error that ends the program). 16 a process at most; "
            "`stalloc oom FILE` shows one",
            reader="both",
        ),
        Variable("STALLOC_NVTX", _OFF, "marks are NVTX ranges, too", SWITCH, "For Nsight Systems", "Python"),
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
            "iterations after which the trace ends, or a window: 2:5",
            details="N: the first N. 2:5: iterations 2, 3 and 4, counted from 0 as they come (what is live then is "
            "the trace's set-up). 2: from 2 on. manual: from `stalloc.trace.start()` on. The run goes on. Default: all "
            "of it",
            reader="both",
        ),
        Variable(
            "STALLOC_TRACE_RANKS",
            "`0,3,8-15`",
            "ranks that are traced: 0,3",
            details="The others run as without stalloc",
            reader="both",
        ),
        Variable(
            "STALLOC_TRACE_MAX_EVENTS",
            "a number",
            "events after which the trace ends",
            details="With its last whole iteration",
        ),
        Variable(
            "STALLOC_TRACE_DETAIL",
            _OFF,
            "traces have modules, stacks and uses: all that reports can show",
            SWITCH,
            "Unless one of the three is set itself. The run gets slower "
            "([what it costs](reports.md#what-a-trace-can-tell)); what it allocates stays",
            "Python",
        ),
        Variable(
            "STALLOC_TRACE_NAMES",
            _ON,
            "traces name parameters, gradients, optimizer state and inputs",
            SWITCH,
            "Reports have classes from them",
            "Python",
        ),
        Variable(
            "STALLOC_TRACE_MODULES",
            _OFF,
            "traces name the module of each block",
            SWITCH,
            "Forward and backward; the plan needs no marks of them",
            "Python",
        ),
        Variable(
            "STALLOC_TRACE_TIMES",
            _OFF,
            "marks of a trace are at the device's time",
            SWITCH,
            "The host waits for the device at passes, layers and their parts: `stalloc fit` then knows how long each "
            "takes. Two iterations behind the trace are watched by torch's profiler",
            "Python",
        ),
        Variable(
            "STALLOC_TRACE_STACKS",
            "`0` (default), `1`, `N`, `64K`",
            "Python stacks: 0, 1, every Nth request, or a least size as 64K",
            details="The call sites of the peak's blocks. Python 3.11 or later",
        ),
        Variable(
            "STALLOC_TRACE_USES",
            _OFF,
            "traces know which operations use which blocks",
            SWITCH,
            "What is allocated early, freed late, or idle",
            "both",
        ),
        Variable(
            "STALLOC_TRACE_FAKE",
            _OFF,
            "the trace is of fake tensors: no device is touched",
            SWITCH,
            "`stalloc run --fake`",
            "Python",
        ),
        Variable(
            "STALLOC_FAKE_ASSUME",
            "`int=4096,bool=0,nonzero=1/16`",
            "values that fake tensors lack: int=4096,bool=0,nonzero=1/16",
            details="`stalloc run --fake --assume`",
            reader="Python",
        ),
    ),
    "Looking for faults": (
        Variable(
            "STALLOC_WATCH",
            _OFF,
            "writes beyond the end of blocks and into freed ones are looked for (exact Trace, Alloc)",
            SWITCH,
            "Freed blocks of the arena read as NaN. Slow",
        ),
        Variable(
            "STALLOC_TEST_MOVES",
            _OFF,
            "for tests: memory of the arena that may move does so at every mark",
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
    "STALLOC_STARTED_RANK": "the number of a process that a script starts itself to train, where no launcher gives one",
    "STALLOC_STARTED_RANKS": "how many of them there are, where that is known",
    "STALLOC_START_PATH": "the folder that this start has for itself under Auto, in the run's directory",
    "STALLOC_START_PLAN": "how sure this start is, under Auto, that the plan it found is its own",
    "STALLOC_TOLD": "misspelt variables that this process's parent has told of",
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
    """Of these names, those that begin with STALLOC_ and that nothing reads: each with the nearest that something does,
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
