"""The real frameworks, trained on the CPU: trace, plan, Alloc, with the losses and weights of plain torch.

On a GPU: tests/gpu/python/test_frameworks_cuda.py.

Each needs its package in this Python, or in the one that STALLOC_FRAMEWORKS_PYTHON names; else it is skipped. A line of
JSON for each, with versions and figures, is added to the file that STALLOC_FRAMEWORKS_RESULTS names.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Optional

import pytest

from processes import HERE, PACKAGE, Finished, run, run_with_torch
from stalloc.train import api
from stalloc.train.frameworks import lightning

pytestmark = pytest.mark.timeout(900)
SCRIPTS = HERE / "framework_scripts"
EXTRA = os.environ.get("STALLOC_FRAMEWORKS_PATH", "")  # where other versions of packages are
# Without importing them, which takes seconds. A module of a package that is not there is an error.
FIND = "import sys, importlib.util as u; sys.exit(None in [u.find_spec(name) for name in sys.argv[1:]])"


def free_port() -> str:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return str(free.getsockname()[1])


class Framework:
    """Runs one script in one mode after the other on one directory."""

    def __init__(
        self,
        build: Path,
        directory: Path,
        package: str,
        script: str,
        ranks: int,
        *,
        device: str = "cpu",
        **environment: str,
    ) -> None:
        self.python = os.environ.get("STALLOC_FRAMEWORKS_PYTHON", sys.executable)
        if run([self.python, "-c", FIND, *package.split(", ")], {"PYTHONPATH": EXTRA}).code != 0:
            pytest.skip(f"{self.python} has no {package}; STALLOC_FRAMEWORKS_PYTHON may name one that has")
        self.build, self.directory, self.script, self.ranks = build, directory, script, ranks
        self.packages, self.device, self.environment = package, device, environment

    def train(self, mode: Optional[str], steps: int) -> list[dict[str, Any]]:
        """What each rank left."""
        outcome = self.directory / f"{mode}.json"
        variables = {
            **self.environment,
            "STALLOC_LIB_PATH": str(self.build),
            "STALLOC_MODEL_INFO_PATH": str(self.directory / "info"),
            "STALLOC_DEVICE": self.device,
            "DEVICE": self.device,
            "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
            "OMP_NUM_THREADS": "1",
            "STEPS": str(steps),
            "OUTCOME": str(outcome),
            "PYTHONPATH": f"{PACKAGE}:{SCRIPTS}:{HERE / 'megatron_real'}:{EXTRA}",
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": free_port(),
        }
        if mode is not None:
            variables["STALLOC_MODE"] = mode
        program = ["-m", "stalloc", "run"] if mode is not None else []
        program = [*program, str(SCRIPTS / self.script)]
        with ThreadPoolExecutor(self.ranks) as pool:
            ended = pool.map(lambda rank: self._run(program, variables | self._place(rank)), range(self.ranks))
        for done in list(ended):
            assert done.code == 0, done.err[-3000:]
            assert "warning" not in "".join(line for line in done.err.splitlines() if "[stalloc]" in line), done.err
        paths = sorted(self.directory.glob(f"{mode}.json*"))
        assert len(paths) == self.ranks
        return [json.loads(path.read_text()) for path in paths]

    def _run(self, program: list[str], variables: dict[str, str]) -> Finished:
        if self.python == sys.executable and self.device == "cpu" and not EXTRA:
            return run_with_torch(*program, environment=variables, cwd=self.directory)
        return run([self.python, *program], variables, cwd=self.directory)

    def _place(self, rank: int) -> dict[str, str]:
        """What a launcher tells a rank; test_training.py has the launcher itself."""
        if self.ranks == 1:
            return {}
        return {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(self.ranks)}

    def plan(self) -> None:
        run([str(self.build / "stalloc-planner"), "plan", str(self.directory / "info")]).good()

    def record(self, name: str, planned: list[dict[str, Any]]) -> None:
        """Versions, and what of the requests the plan has served on the first rank."""
        if "STALLOC_FRAMEWORKS_RESULTS" not in os.environ:
            return
        packages = [word.strip().partition(".")[0] for word in self.packages.split(",")]
        names = dict.fromkeys(["torch", *packages])
        program = "import importlib.metadata as m, sys\nfor n in sys.argv[1:]: print(n, m.version(n))"
        versions = run([self.python, "-c", program, *names], {"PYTHONPATH": EXTRA}).out.split("\n")
        device = planned[0]["figures"]["devices"][0]
        row = {"case": name, "ranks": self.ranks, "versions": dict(line.split() for line in versions if line)}
        row |= {"modes": ["native", "Torch", "Trace", "Alloc"], "device": self.device, "losses": planned[0]["losses"]}
        row |= {key: device[key] for key in ("requests", "planned_hits", "misses")}
        with open(os.environ["STALLOC_FRAMEWORKS_RESULTS"], "a") as file:
            file.write(json.dumps(row) + "\n")

    def marks(self, rank: int = 0) -> list[str]:
        trace = self.directory / "info" / "trace" / f"rank{rank:05d}.trace"
        done = run([str(self.build / "stalloc-planner"), "dump", str(trace)]).good()
        return [line for line in done.out.splitlines() if line[0] not in "0123#" and "-end" not in line]


CASES = {
    "loop": ("torch", "loop.py", 1, {}),
    "ddp": ("torch", "loop.py", 2, {"WRAP": "ddp"}),
    "fsdp2": ("torch", "loop.py", 2, {"WRAP": "fsdp"}),
    "pipelining": ("torch", "pipeline.py", 2, {}),
    "trainer": ("transformers, accelerate", "trainer.py", 1, {}),
    "lightning": ("lightning", "lightning_fit.py", 1, {}),
    "torchtitan": (
        "torchtitan.train",
        "torchtitan_train.py",
        1,
        {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1"},
    ),
    "deepspeed-1": ("deepspeed", "deepspeed_zero.py", 1, {"STAGE": "1", "RANK": "0"}),
    "deepspeed-3": ("deepspeed", "deepspeed_zero.py", 1, {"STAGE": "3", "RANK": "0"}),
}

# Which run in mode Torch, too: one loop, and those that only an environment of its own has.
TORCH_MODE = set(CASES) - {"ddp", "fsdp2", "pipelining"}

# Where targets are looked for without training: those above, and what cannot train on this machine.
TARGETS = {
    "torch": "pipelining",
    "transformers": "huggingface",
    "lightning": "lightning",
    "deepspeed": "deepspeed",
    "torchtitan": "torchtitan",
    "colossalai": "colossalai",
}

LOCATE = """
import importlib.metadata, importlib.util, pathlib
spec = importlib.util.find_spec("{package}")
print(pathlib.Path(spec.submodule_search_locations[0]).parent, importlib.metadata.version("{package}"))
"""

ACCUMULATED = ["micro-batch : F chunk 0 index 0", "micro-batch : B chunk 0 index 0"]
ACCUMULATED += ["micro-batch : F chunk 0 index 1", "micro-batch : B chunk 0 index 1"]


def iteration_of(marks: list[str], number: int) -> list[str]:
    """Without the optimizer's, which a hook may have placed, and fences."""
    begin = next(i for i, mark in enumerate(marks) if mark.startswith(f"Iteration Index : {number}"))
    end = next((i for i in range(begin + 1, len(marks)) if marks[i].startswith("Iteration")), len(marks))
    return [mark for mark in marks[begin + 1 : end] if mark.startswith("micro-batch")]


# Of DDP stalloc knows nothing that it does not of FSDP.
PARAMETERS = [pytest.param(name, marks=pytest.mark.slow) if name == "ddp" else name for name in CASES]


@pytest.mark.parametrize("name", PARAMETERS)
def test_a_framework_trains_from_its_plan_as_it_does_natively(name: str, build: Path, tmp_path: Path) -> None:
    package, script, ranks, environment = CASES[name]
    framework = Framework(build, tmp_path, package, script, ranks, **environment)
    plain = framework.train(None, 8)
    for mode in ("Torch", "Trace") if name in TORCH_MODE else ("Trace",):
        for ours, theirs in zip(framework.train(mode, 8), plain):
            assert (ours["losses"], ours["weights"]) == (theirs["losses"], theirs["weights"])
    marks = framework.marks()
    if name == "torchtitan":
        assert iteration_of(marks, 2) == [f"micro-batch : FB chunk 0 index {index}" for index in (0, 1)]
    elif name != "pipelining":
        assert iteration_of(marks, 2) == ACCUMULATED
        assert any(mark.startswith("Fence eval") for mark in marks)
    else:
        kinds = [mark[14] for mark in iteration_of(marks, 2)]
        assert (kinds.count("F"), kinds.count("B")) == (4, 4)
    if name == "trainer":  # two rows of 48 in each batch
        counts = json.loads((tmp_path / "info" / "trace" / "rank00000.tokens.json").read_text())
        assert (counts["least"], counts["most"]) == ([96, 96], [96, 96])
    framework.plan()
    planned = framework.train("Alloc", 8)
    framework.record(name, planned)
    for ours, theirs in zip(planned, plain):
        assert ours["losses"] == theirs["losses"]
        assert ours["weights"] == theirs["weights"]
        device = ours["figures"]["devices"][0]
        missed = sum(count for reason, count in device["misses"].items() if reason != "fenced")
        assert device["planned_hits"] > 100
        assert missed <= 0.02 * device["planned_hits"], device["misses"]


def test_passes_of_a_lightning_module_that_optimizes_by_itself_are_not_marked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its training step holds them all, and steps of optimizers, which end iterations."""
    kinds: list[str] = []
    monkeypatch.setattr(api, "microbatch", lambda kind, *_: contextlib.nullcontext(kinds.append(kind)))
    for automatic, marked in ((False, []), (True, ["F", "B"])):
        strategy = SimpleNamespace(lightning_module=SimpleNamespace(automatic_optimization=automatic))
        for role in ("forward", "backward"):
            assert lightning.WRAPPERS[role](lambda strategy, batch: batch)(strategy, "batch") == "batch"
        assert kinds == marked


@pytest.mark.parametrize("package", TARGETS)
def test_the_installed_version_has_every_target(package: str) -> None:
    python = os.environ.get("STALLOC_FRAMEWORKS_PYTHON", sys.executable)
    found = run([python, "-c", LOCATE.format(package=package)])
    if found.code != 0:
        pytest.skip(f"{python} has no {package}")
    adapter = f"stalloc.train.frameworks.{TARGETS[package]}"
    done = run([sys.executable, str(HERE / "check_targets.py"), *found.out.split(), adapter])
    assert (done.code, done.out) == (0, "all found\n"), done.err
