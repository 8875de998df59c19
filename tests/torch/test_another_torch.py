"""A torch that the adapter was not built for: one clear sentence, and the run goes on without a plan.

The torch is a copy of the installed one, in which one file differs: its version, or one of its headers.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
from adapter_process import ROOT, Finished

PROGRAM = """
import stalloc, torch
stalloc.iteration(0)
weights = torch.ones(300, 300, requires_grad=True)
weights.sum().backward()
print(stalloc.installed(), float(weights.grad.sum()))
"""
HEADER = "include/c10/cuda/CUDACachingAllocator.h"


def copy_with(original: Path, copy: Path, name: str, text: str) -> None:
    """A package of links to the original's files, but for `name`, which has another text."""
    first, _, rest = name.partition("/")
    copy.mkdir(parents=True)
    for entry in original.iterdir():
        if entry.name != first:
            (copy / entry.name).symlink_to(entry)
    if rest:
        copy_with(original / first, copy / first, rest, text)
    else:
        (copy / first).write_text(text)


@pytest.fixture(scope="module")
def torch_package() -> Path:
    spec = importlib.util.find_spec("torch")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent


def run(library: Path, directory: Path, **variables: str) -> Finished:
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("STALLOC_", "PYTHON"))}
    environment |= {
        "PYTHONPATH": f"{directory}:{ROOT / 'patches'}",
        "STALLOC_LIB_PATH": str(library.parent),
        "STALLOC_MODEL_INFO_PATH": str(directory / "run"),
        "STALLOC_MODE": "Trace",
        "STALLOC_DEVICE": "cpu",
    }
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=environment | variables,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    return Finished(done.returncode, done.stdout, done.stderr)


def changed_version(package: Path, version: str) -> str:
    lines = (package / "version.py").read_text().splitlines()
    return "\n".join(f"__version__ = {version!r}" if line.startswith("__version__") else line for line in lines)


@pytest.mark.every_torch
def test_a_copy_with_the_same_interface_is_served(library: Path, tmp_path: Path, torch_package: Path) -> None:
    copy_with(torch_package, tmp_path / "torch", HEADER, (torch_package / HEADER).read_text() + "\n// the end\n")
    done = run(library, tmp_path)
    assert (done.code, done.out) == (0, "True 90000.0\n")
    assert "warning" not in done.err
    assert "error" not in done.err


def test_a_torch_that_nobody_built_for_is_named_and_runs_unplanned(
    library: Path, tmp_path: Path, torch_package: Path
) -> None:
    copy_with(torch_package, tmp_path / "torch", "version.py", changed_version(torch_package, "2.99.1+cu140"))
    done = run(library, tmp_path)
    assert (done.code, done.out) == (0, "False 90000.0\n")
    assert done.err.count("\n") == 1
    assert "error: no adapter is for torch 2.99.1+cu140" in done.err
    assert "planner and reports work" in done.err
    assert list((tmp_path / "run").rglob("*.trace")) == []
    strict = run(library, tmp_path, STALLOC_STRICT="1")
    assert (strict.code, strict.out) == (1, "")
    assert "no adapter is for torch 2.99.1+cu140" in strict.err


@pytest.mark.every_torch
def test_a_snapshot_of_the_same_version_with_other_classes_is_no_torch_for_us(
    library: Path, tmp_path: Path, torch_package: Path
) -> None:
    text = (torch_package / HEADER).read_text()
    changed = text.replace(
        "virtual void enable(bool value) = 0;", "virtual void f();\n  virtual void enable(bool) = 0;"
    )
    assert changed != text
    copy_with(torch_package, tmp_path / "torch", HEADER, changed)
    done = run(library, tmp_path)
    assert (done.code, done.out) == (0, "False 90000.0\n")
    assert "whose allocator has other classes" in done.err
    assert run(library, tmp_path, STALLOC_STRICT="1").code == 1
