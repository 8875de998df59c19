"""Python, torch, the adapter, the planner, frameworks, and what the environment requests."""

from __future__ import annotations

import importlib.metadata
import platform
import subprocess
from collections.abc import Iterator
from pathlib import Path

from stalloc.core import config, library
from stalloc.core import variables as _variables
from stalloc.core.version import __version__
from stalloc.tools.doctor.machine import Finding, Machine, failure, ok, warning

_FRAMEWORKS = (
    "transformers",
    "accelerate",
    "lightning",
    "pytorch-lightning",
    "deepspeed",
    "torchtitan",
    "megatron-core",
)
_REINSTALL = "reinstall stalloc: pip install --force-reinstall --no-deps, with its wheel or its source directory"


def versions(machine: Machine) -> Iterator[Finding]:
    yield ok("stalloc", f"{__version__}, Python {platform.python_version()}, {platform.platform(aliased=True)}")
    if machine.torch is None:
        yield warning(
            "torch", f"cannot be imported: {machine.torch_error}", "install torch; planner and reports work without"
        )
        return
    cuda = machine.torch.version.cuda
    yield ok("torch", f"{machine.torch.__version__}, {f'built for CUDA {cuda}' if cuda else 'without CUDA'}")


def adapter(machine: Machine) -> Iterator[Finding]:
    if machine.torch is None:
        return
    running = str(machine.torch.__version__)
    try:
        path = library.find_adapter(running, Path(machine.torch.__file__).parent / "include")
        found = library.TorchLibrary(path)
    except library.UnfitTorchError as error:
        yield failure("adapter", "there is none for this torch; planner and reports work", str(error))
        return
    except library.LibraryError as error:
        yield failure("adapter", str(error), _REINSTALL)
        return
    cuda = "with CUDA" if found.has_cuda else "without CUDA"
    yield ok("adapter", f"{found.version}, for torch {found.built_for}, {cuda}: {path}")
    if machine.torch.version.cuda and not found.has_cuda:
        yield failure(
            "adapter",
            "this torch has CUDA and the adapter was built without",
            "install the wheel, or build where CUDA's headers are (torch's wheels of nvidia-cuda-runtime have them)",
        )


def planner(machine: Machine) -> Iterator[Finding]:
    path = library.find(library.PLANNER_NAME)
    if path is None:
        yield failure("planner", "stalloc-planner was not found: no plans, no reports", _REINSTALL)
        return
    try:
        done = subprocess.run([str(path), "--version"], capture_output=True, text=True, check=True, timeout=60)
    except (OSError, subprocess.SubprocessError) as error:
        yield failure("planner", f"{path} does not run: {error}", _REINSTALL)
        return
    version = done.stdout.split()[-1] if done.stdout.split() else "nothing"
    if version != __version__ and "unknown" not in __version__:
        yield warning("planner", f"{path} is of version {version}, the package of {__version__}", _REINSTALL)
    else:
        yield ok("planner", f"{version}: {path}")


def frameworks(machine: Machine) -> Iterator[Finding]:
    found = []
    for name in _FRAMEWORKS:
        try:
            found.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            continue
    yield ok(
        "frameworks", f"{', '.join(found) or 'none'}; they mark themselves" if found else "none that mark themselves"
    )


def environment(machine: Machine) -> Iterator[Finding]:
    variables = machine.environ
    set_here = {name: value for name, value in sorted(variables.items()) if name.startswith("STALLOC_")}
    shown = ", ".join(f"{name}={value}" for name, value in set_here.items())
    try:
        config.read_config(variables)
    except config.ConfigError as error:
        yield failure("variables", shown, str(error))
    else:
        yield ok("variables", shown or "no STALLOC_ variable is set")
    for name, nearest in _variables.misspelt(variables).items():
        yield warning(
            "variables", f"{name} is not read by anything", f"did you mean {nearest}?" if nearest else "unset it"
        )
    if variables.get("TORCH_DEVICE_BACKEND_AUTOLOAD") == "0":
        yield warning(
            "variables",
            "TORCH_DEVICE_BACKEND_AUTOLOAD=0: STALLOC_MODE alone does nothing",
            "start with `stalloc run`, or `import stalloc` first",
        )
    if variables.get("PYTORCH_NO_CUDA_MEMORY_CACHING"):
        yield failure(
            "variables", "PYTORCH_NO_CUDA_MEMORY_CACHING: nothing is cached, so nothing is planned", "unset it"
        )
    allocator = variables.get("PYTORCH_CUDA_ALLOC_CONF", "") + variables.get("PYTORCH_ALLOC_CONF", "")
    if "cudaMallocAsync" in allocator:
        yield failure(
            "variables", "PyTorch is to use cudaMallocAsync, whose place stalloc's allocator takes", "unset backend:"
        )
